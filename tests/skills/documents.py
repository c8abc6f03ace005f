"""Small hand-made documents in the formats of office programs."""

import zipfile
from pathlib import Path

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
P = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
OPEN = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
)


def paragraph(text: str, style: str = "", tag: str = "t") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}<w:r><w:{tag}>{text}</w:{tag}></w:r></w:p>"


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(one)}</w:tc>" for one in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def archive(path: Path, refers: dict[str, dict[str, str]] | None = None, **parts: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in parts.items():
            made.writestr(name.replace("__", "/") + ".xml", text)
        for name, targets in (refers or {}).items():
            listed = "".join(
                f'<Relationship Id="{one}" Target="{target}"/>' for one, target in targets.items()
            )
            folder, _, file = name.rpartition("/")
            made.writestr(
                f"{folder}/_rels/{file}.xml.rels", f"<Relationships>{listed}</Relationships>"
            )
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
    # Like after a sheet was moved: the numbers of parts do not match the order of sheets.
    sheets = (
        '<sheet name="Spring" sheetId="2" r:id="rId7"/>'
        '<sheet name="Empty" sheetId="1" r:id="rId3"/>'
    )
    return archive(
        path,
        {"xl/workbook": {"rId3": "/xl/worksheets/sheet1.xml", "rId7": "worksheets/sheet2.xml"}},
        xl__workbook=f"<workbook {S} {R}><sheets>{sheets}</sheets></workbook>",
        xl__sharedStrings=f"<sst {S}>{''.join(f'<si><t>{one}</t></si>' for one in strings)}</sst>",
        xl__worksheets__sheet1=f"<worksheet {S}><sheetData/></worksheet>",
        xl__worksheets__sheet2=f"<worksheet {S}><sheetData>{lines}</sheetData></worksheet>",
    )


def slides(path: Path) -> Path:
    """Return three slides whose part numbers do not match their order; the second has notes."""

    def slide(text: str) -> str:
        return f"<sld {P}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></sld>"

    order = {"rId4": ("2", "Point 1"), "rId2": ("10", "Point 2"), "rId3": ("1", "Point 3")}
    listed = "".join(f'<sldId id="25{number}" r:id="{one}"/>' for number, one in enumerate(order))
    several = {f"ppt__slides__slide{number}": slide(text) for number, text in order.values()}
    return archive(
        path,
        {
            "ppt/presentation": {
                one: f"slides/slide{number}.xml" for one, (number, _) in order.items()
            },
            "ppt/slides/slide10": {"rId1": "../notesSlides/notesSlide1.xml"},
        },
        ppt__presentation=f"<x {R}><sldIdLst>{listed}</sldIdLst></x>",
        ppt__notesSlides__notesSlide1=slide("Say it slowly"),
        **several,
    )


def open_text(path: Path) -> Path:
    body = '<text:h text:outline-level="2">Head</text:h><text:p>Open words</text:p>'
    return archive(path, content=f"<office:document {OPEN}>{body}</office:document>")


def open_sheet(path: Path) -> Path:
    cells = [("Item", 1), ("", 2), ("Euro", 1), ("", 16_000)]
    row = "".join(
        f'<table:table-cell table:number-columns-repeated="{times}"><text:p>{text}</text:p>'
        "</table:table-cell>"
        for text, times in cells
    )
    gone = "<text:tracked-changes><text:p>Deleted</text:p></text:tracked-changes>"
    table = (
        f'<table:table table:name="Costs"><table:table-row>{row}</table:table-row></table:table>'
    )
    return archive(path, content=f"<office:document {OPEN}>{gone}{table}</office:document>")


def bomb(path: Path) -> Path:
    entities = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    return archive(path, word__document=f"{entities}<d>&b;</d>")


def large(path: Path) -> Path:
    return archive(path, word__document="<d>" + " " * (65 << 20) + "</d>")
