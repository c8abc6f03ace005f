"""Turns documents into text: Word, Excel, PowerPoint, OpenDocument, EPUB, HTML, mail and PDF.

    python3 document.py text FILE            all text, with headings, tables, sheets and slides
    python3 document.py outline FILE         headings, sheets or slides, with their sizes

Needs nothing but Python 3.9; for PDF the program `pdftotext` or the package `pypdf`. What looks
wrong is printed to standard error, behind a `!`.
"""

from __future__ import annotations

import csv
import email
import email.policy
import html.parser
import io
import posixpath
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

LARGEST = 64 << 20
"""Bytes of one part of a document, unpacked."""

Block = tuple[str, str]
"""A kind, `#` to `######`, `---` or nothing, and a text."""


class Problem(Exception):
    """What the user can put right."""


def note(text: str) -> None:
    """Tell what looks wrong."""
    sys.stderr.write(f"! {text}\n")


def part(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    """Return a part as XML; documents have no entities of their own, so none are allowed."""
    found = archive.getinfo(name)
    if found.file_size > LARGEST:
        raise Problem(f"{name} has {found.file_size:,} bytes, more than this program reads")
    data = archive.read(name)
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        data = re.sub(rb"<!DOCTYPE[^>\[]*>", b"", data)
        if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
            raise Problem(f"{name} declares entities, which no such document needs")
    return ElementTree.fromstring(data)


def local(element: ElementTree.Element) -> str:
    """Return a tag without its namespace."""
    return element.tag.rpartition("}")[2]


def attribute(element: ElementTree.Element, name: str) -> str:
    """Return an attribute, whatever its namespace."""
    found = (value for key, value in element.attrib.items() if key.rpartition("}")[2] == name)
    return next(found, "")


def reference(element: ElementTree.Element) -> str:
    """Return the id by which it refers to another part; its own `id` has no namespace."""
    return next((value for key, value in element.attrib.items() if key.endswith("}id")), "")


def row(cells: list[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells) + " |"


def related(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Return the parts that a part refers to, by the ids that it uses for them."""
    folder, _, file = name.rpartition("/")
    list_of_them = f"{folder}/_rels/{file}.rels"
    if list_of_them not in archive.namelist():
        return {}
    found = {}
    for one in part(archive, list_of_them):
        target = posixpath.join("/", folder, attribute(one, "Target"))
        found[attribute(one, "Id")] = posixpath.normpath(target).lstrip("/")
    return found


def said(element: ElementTree.Element) -> str:
    """Return the text of a paragraph of Word or PowerPoint; deleted text is left out."""
    words: list[str] = []
    for one in element.iter():
        if local(one) == "t":
            words.append(one.text or "")
        elif local(one) in ("tab", "br", "cr"):
            words.append("\t" if local(one) == "tab" else "\n")
    return "".join(words)


def word(archive: zipfile.ZipFile) -> Iterator[Block]:
    """Return the blocks of a text, its notes and comments."""
    names = archive.namelist()
    yield from flow(part(archive, "word/document.xml"))
    for extra in ("footnotes", "endnotes", "comments"):
        if f"word/{extra}.xml" in names:
            texts = [
                said(one) for one in part(archive, f"word/{extra}.xml").iter() if local(one) == "p"
            ]
            texts = [text for text in texts if text.strip()]
            if texts:
                yield "##", extra.capitalize()
                yield from (("", text) for text in texts)


def flow(element: ElementTree.Element) -> Iterator[Block]:
    """Return paragraphs and tables in order."""
    for one in element:
        if local(one) == "p":
            styles = [attribute(each, "val") for each in one.iter() if local(each) == "pStyle"]
            level = re.search(
                r"(?:Heading|berschrift|Titre)\s?([1-6])", styles[0] if styles else ""
            )
            if said(one).strip():
                yield ("#" * int(level[1]) if level else ""), said(one)
        elif local(one) == "tbl":
            rows = [each for each in one.iter() if local(each) == "tr"]
            cells = [[said(cell) for cell in each if local(cell) == "tc"] for each in rows]
            yield "", "\n".join(map(row, cells))
        elif local(one) not in ("del", "moveFrom"):
            yield from flow(one)


def excel(archive: zipfile.ZipFile) -> Iterator[Block]:
    """Return each sheet as CSV."""
    strings: list[str] = []
    if "xl/sharedStrings.xml" in archive.namelist():
        strings = [said(one) for one in part(archive, "xl/sharedStrings.xml") if local(one) == "si"]
    book = part(archive, "xl/workbook.xml")
    places = related(archive, "xl/workbook.xml")
    for sheet in (one for one in book.iter() if local(one) == "sheet"):
        name = places.get(reference(sheet), "")
        if not name.startswith("xl/worksheets/"):
            note(f"sheet {attribute(sheet, 'name')!r} is no table and is not shown")
            continue
        yield "#", attribute(sheet, "name")
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for one in part(archive, name).iter():
            if local(one) == "row":
                writer.writerow(cells_of(one, strings))
        yield "", out.getvalue().rstrip()


def cells_of(line: ElementTree.Element, strings: list[str]) -> list[str]:
    """Return the values of a row, at their columns."""
    cells: list[str] = []
    for cell in line:
        letters = re.match(r"[A-Z]+", attribute(cell, "r"))
        column = 0
        for letter in letters[0] if letters else "":
            column = 26 * column + ord(letter) - 64
        cells += [""] * (min(column, 16_384) - 1 - len(cells))
        values = [one.text or "" for one in cell if local(one) == "v"]
        value = values[0] if values else said(cell)
        if attribute(cell, "t") == "s" and value.isdigit() and int(value) < len(strings):
            value = strings[int(value)]
        cells.append(value)
    return cells


def powerpoint(archive: zipfile.ZipFile) -> Iterator[Block]:
    """Return slides with their notes."""
    places = related(archive, "ppt/presentation.xml")
    show = part(archive, "ppt/presentation.xml")
    slides = (one for one in show.iter() if local(one) == "sldId")
    for number, slide in enumerate(slides, 1):
        name = places.get(reference(slide), "")
        yield "#", f"Slide {number}"
        yield from (("", text) for text in paragraphs(archive, name))
        for notes in related(archive, name).values():
            if notes.startswith("ppt/notesSlides/"):
                yield "##", "Notes"
                yield from (("", text) for text in paragraphs(archive, notes))


def paragraphs(archive: zipfile.ZipFile, name: str) -> list[str]:
    """Return the paragraphs of a slide."""
    found = [said(one) for one in part(archive, name).iter() if local(one) == "p"]
    return [text for text in found if text.strip()]


def open_document(archive: zipfile.ZipFile) -> Iterator[Block]:
    """Return the blocks of a text, sheet or presentation."""
    yield from open_flow(part(archive, "content.xml"))


def open_flow(element: ElementTree.Element) -> Iterator[Block]:
    """Return headings, paragraphs and tables in order; deleted text is left out."""
    for one in element:
        text = "".join(one.itertext())
        if local(one) == "h" and text.strip():
            yield "#" * min(6, int(attribute(one, "outline-level") or 1)), text
        elif local(one) == "p" and text.strip():
            yield "", text
        elif local(one) == "table":
            yield "##", attribute(one, "name")
            rows = [open_cells(each) for each in one.iter() if local(each) == "table-row"]
            yield "", "\n".join(row(cells) for cells in rows if cells)
        elif local(one) != "tracked-changes":
            if local(one) == "page":
                yield "#", attribute(one, "name")
            yield from open_flow(one)


def open_cells(line: ElementTree.Element) -> list[str]:
    """Return the values of a row, at their columns."""
    cells: list[str] = []
    for cell in line:
        times = int(attribute(cell, "number-columns-repeated") or 1)
        cells += ["".join(cell.itertext())] * min(times, 256)
    while cells and not cells[-1]:
        cells.pop()
    return cells


def epub(archive: zipfile.ZipFile) -> Iterator[Block]:
    """Return the pages of a book."""
    for name in sorted(one for one in archive.namelist() if one.endswith((".xhtml", ".html"))):
        yield from web(archive.read(name).decode("utf-8", "replace"))


class Page(html.parser.HTMLParser):
    """Collects the text of a page in blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self.kind, self.words, self.hidden = "", [], 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, or a cell."""
        self.hidden += tag in ("script", "style", "template")
        if re.fullmatch(r"h[1-6]|p|div|li|tr|br|table|section|title|blockquote|pre", tag):
            self.flush()
            self.kind = "#" * int(tag[1]) if re.fullmatch(r"h[1-6]", tag) else ""
        if tag in ("td", "th"):
            self.words.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        self.hidden -= self.hidden > 0 and tag in ("script", "style", "template")
        if re.fullmatch(r"h[1-6]|p|div|li|tr|table|title|pre", tag):
            self.flush()

    def handle_data(self, data: str) -> None:
        """Take the text."""
        if not self.hidden:
            self.words.append(data)

    def flush(self) -> None:
        """Keep the block that has ended."""
        text = re.sub(r"\s+", " ", "".join(self.words)).strip()
        if text:
            self.blocks.append((self.kind, text))
        self.kind, self.words = "", []


def web(text: str) -> list[Block]:
    """Return the blocks of a page."""
    page = Page()
    page.feed(text)
    page.close()
    page.flush()
    return page.blocks


def mail(data: bytes) -> Iterator[Block]:
    """Return the head and the text of a message."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    yield "#", str(message["subject"] or "(no subject)")
    for name in ("from", "to", "cc", "date"):
        if message[name]:
            yield "", f"{name.capitalize()}: {message[name]}"
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = body.get_content()
        yield from (web(text) if body.get_content_subtype() == "html" else [("", text.strip())])
    for one in message.iter_attachments():
        note(f"attachment {one.get_filename()!r}, {one.get_content_type()}, is not shown")


def pdf(path: Path) -> Iterator[Block]:
    """Return the text of each page."""
    for number, text in enumerate(pdf_pages(path), 1):
        yield "#", f"Page {number}"
        if text.strip():
            yield "", text.strip("\n")
        else:
            note(f"page {number} has no text; it is likely a picture and needs reading by eye")


def pdf_pages(path: Path) -> list[str]:
    """Return the text of each page, by a program or a package."""
    program = shutil.which("pdftotext")
    if program:
        command = [program, "-layout", "-enc", "UTF-8", str(path.resolve()), "-"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        if done.returncode:
            raise Problem(f"pdftotext: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode("utf-8", "replace").removesuffix("\f").split("\f")
    try:
        from pypdf import PdfReader
    except ImportError:
        raise Problem(
            "there is neither pdftotext (package poppler-utils) nor pypdf here; read the file with "
            "the tool for files instead, which shows it to models that take PDF"
        ) from None
    return [page.extract_text() or "" for page in PdfReader(path).pages]


ZIPPED = {
    "word/document.xml": word,
    "xl/workbook.xml": excel,
    "ppt/presentation.xml": powerpoint,
    "content.xml": open_document,
    "META-INF/container.xml": epub,
}


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a document, whose kind its first bytes tell."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    if data[:4] == b"%PDF":
        return [*pdf(path)]
    if data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name, reader in ZIPPED.items():
                if name in archive.namelist():
                    return [*reader(archive)]
        raise Problem(f"{path}: an archive, but no document that this program knows")
    if data[:4] == b"\xd0\xcf\x11\xe0":
        raise Problem(f"{path}: an old or encrypted format; save it as .docx, .xlsx or .pptx")
    if path.suffix.lower() == ".eml":
        return [*mail(data)]
    if re.search(rb"<(html|body|p|div|table)\b", data[:4096], re.IGNORECASE):
        return web(data.decode("utf-8", "replace"))
    raise Problem(f"{path}: no document that this program knows; plain text needs no program")


def main(arguments: list[str]) -> int:
    """Do what was asked; return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("text", "outline"):
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        blocks = blocks_of(Path(arguments[1]))
    except (Problem, zipfile.BadZipFile, KeyError, ValueError, ElementTree.ParseError) as error:
        note(str(error))
        return 1
    if arguments[0] == "text":
        texts = (f"{kind} {text}".strip() if kind else text for kind, text in blocks)
        sys.stdout.write("\n\n".join(texts) + "\n")
        return 0
    heads = [place for place, (kind, _) in enumerate(blocks) if kind]
    for number, place in enumerate(heads, 1):
        end = heads[number] if number < len(heads) else len(blocks)
        size = sum(len(text) for _, text in blocks[place + 1 : end])
        kind, title = blocks[place]
        sys.stdout.write(f"{kind} {title} ({size:,} characters)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
