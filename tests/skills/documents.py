"""Small documents in the formats of office programs, made by hand."""

import zipfile
from pathlib import Path

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
P = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
OPEN = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def paragraph(text: str, style: str = "", tag: str = "t") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}<w:r><w:{tag}>{text}</w:{tag}></w:r></w:p>"


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(one)}</w:tc>" for one in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def archive(path: Path, **parts: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in parts.items():
            made.writestr(name.replace("__", "/") + ".xml", text)
    return path


def word(path: Path, body: str) -> Path:
    return archive(path, word__document=f"<w:document {W}><w:body>{body}</w:body></w:document>")


def plan(path: Path) -> Path:
    deleted = f"<w:del>{paragraph('We never begin', tag='delText')}</w:del>"
    body = [
        paragraph("Plan for spring", "Heading1"),
        deleted,
        paragraph("We begin on 1 March 2026"),
        paragraph("Costs", "Heading2"),
        table(("Item", "Euro"), ("Seeds", "120"), ("Tools", "80")),
        paragraph("Prices as of May."),
    ]
    return word(path, "".join(body))


def budget(path: Path) -> Path:
    strings = ["Item", "Euro", "Seeds", "Tools", "Total"]
    rows = [("s0", "s1"), ("s2", "120"), ("s3", "80"), ("s4", "200")]

    def cell(value: str, place: str) -> str:
        kind = ' t="s"' if value.startswith("s") else ""
        return f'<c r="{place}"{kind}><v>{value.removeprefix("s")}</v></c>'

    lines = "".join(
        f"<row>{cell(one, f'A{number}')}{cell(two, f'B{number}')}</row>"
        for number, (one, two) in enumerate(rows, 1)
    )
    return archive(
        path,
        xl__workbook=f'<workbook {S}><sheets><sheet name="Spring"/></sheets></workbook>',
        xl__sharedStrings=f"<sst {S}>{''.join(f'<si><t>{one}</t></si>' for one in strings)}</sst>",
        xl__worksheets__sheet1=f"<worksheet {S}><sheetData>{lines}</sheetData></worksheet>",
    )


def slides(path: Path) -> Path:
    def slide(text: str) -> str:
        return f"<sld {P}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></sld>"

    several = {f"ppt__slides__slide{number}": slide(f"Point {number}") for number in (1, 2, 10)}
    notes = {"ppt__notesSlides__notesSlide2": slide("Say it slowly")}
    return archive(path, ppt__presentation="<x/>", **several, **notes)


def open_text(path: Path) -> Path:
    body = '<text:h text:outline-level="2">Head</text:h><text:p>Open words</text:p>'
    return archive(path, content=f"<office:document {OPEN}>{body}</office:document>")


def bomb(path: Path) -> Path:
    entities = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    return archive(path, word__document=f"{entities}<d>&b;</d>")


def large(path: Path) -> Path:
    return archive(path, word__document="<d>" + " " * (65 << 20) + "</d>")
