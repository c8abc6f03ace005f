"""File tool results: search matches, text and media files, as text and as data.

A search ends at a number of results or after a time. The number grows with the requested offset,
and the order is stable, so callers can page through all results. If time ran out, the answer says
so, and suggests a narrower search.

Media files (images, documents, audio, video) are recognised by their first bytes. A file's name
proves nothing, and a PDF without a NUL may look like text.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from ..._internal.concurrency import work_apart
from ..._internal.records import record
from ...messages.message import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    VideoBlock,
)
from ...tools.tool import ToolResult
from ..base import FileEntry, Files, GrepMatch, Page, PathTest, shown, size_text
from ..ignore import Unignored
from ..search import Unhurried, glob_matcher
from .pages import Listing, Row, call_text

__all__ = [
    "ENTRIES",
    "FLAG",
    "MATCHES",
    "NEXT",
    "NUMBER",
    "STRING",
    "SearchResults",
    "answer",
    "binary_notice",
    "entry_line",
    "entry_row",
    "found_files",
    "found_lines",
    "found_schema",
    "match_line",
    "match_rows",
    "media_content",
    "media_type_of",
    "next_page",
    "schema",
    "span",
]


def entry_row(entry: FileEntry) -> Row:
    """Return a file or directory as data."""
    if entry.is_dir:
        return {"path": entry.path, "is_dir": True}
    size = {} if entry.size is None else {"size": entry.size}
    return {"path": entry.path, "is_dir": False, **size}


def entry_line(row: Row) -> str:
    """Return it as text; directories end with a slash."""
    path = shown(str(row["path"]))
    if row["is_dir"]:
        return f"{path}/"
    return f"{path} ({row['size']} bytes)" if "size" in row else f"{path} (size unknown)"


def match_rows(matches: Sequence[GrepMatch], mode: str) -> list[Row]:
    """Return matches as data, in the order of the files."""
    if mode == "content":
        return [{"path": one.path, "line": one.line, "text": one.text} for one in matches]
    counts = Counter(one.path for one in matches)
    if mode == "count":
        return [{"path": path, "count": count} for path, count in counts.items()]
    return [{"path": path} for path in counts]


def match_line(row: Row) -> str:
    """Return a row of any mode as text."""
    path = shown(str(row["path"]))
    if "line" in row:
        return f"{path}:{row['line']}: {row['text']}"
    return f"{path}: {row['count']}" if "count" in row else path


def span(listing: Listing, offset: int, total: int, what: str) -> str:
    """Return the range of shown rows, such as `entries 1-20 of 45`."""
    if not listing.rows:
        return f"no {what}" if not total else f"{total} {what}, offset {offset} is past the end"
    return f"{what} {offset + 1}-{listing.end} of {total}"


def next_page(
    listing: Listing, total: int, name: str, **arguments: JsonValue
) -> dict[str, JsonValue]:
    """Return the call that continues the listing, or nothing."""
    if not listing.rows or listing.end >= total:
        return {}
    return {"next": call_text(name, **arguments, offset=listing.end)}


def schema(properties: dict[str, JsonValue], *optional: str) -> dict[str, JsonValue]:
    """Return the schema of an object with exactly these properties."""
    required: list[JsonValue] = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


STRING: JsonValue = {"type": "string"}
NUMBER: JsonValue = {"type": "integer"}
FLAG: JsonValue = {"type": "boolean"}
NEXT: JsonValue = {"type": "string", "description": "The call that gets the next results"}


def _list_of(properties: dict[str, JsonValue], *optional: str) -> JsonValue:
    return {"type": "array", "items": schema(properties, *optional)}


ENTRIES = _list_of({"path": STRING, "is_dir": FLAG, "size": NUMBER}, "size")
MATCHES = _list_of(
    {"path": STRING, "line": NUMBER, "text": STRING, "count": NUMBER}, "line", "text", "count"
)


def found_schema(results: JsonValue) -> dict[str, JsonValue]:
    """Return the schema of search results."""
    return schema({"total": NUMBER, "truncated": FLAG, "results": results, "next": NEXT}, "next")


MAX_RESULTS = 1_000
"""Files, or lines, that are looked for beyond the offset."""
MAX_COUNTED = 20_000
"""The most lines that are searched to list or count files."""
MOST = 50_000
"""Results that are looked for, whatever the offset."""

_LATE = "there was no time to look everywhere: for the rest, search one directory at a time by path"
_MOST = "no more are looked for: narrow the search"
_PARTLY = (
    "not all .gitignore rules were applied: 1,000 of a file are, 5,000 in all, and what can be "
    "read "
    "in 5 s"
)


@record
class SearchResults:
    """Rows from the first on.

    Attributes:
        rows: The results, before any offset.
        more: Whether a larger offset returns more results.
        rest: Why rows are missing that no offset returns, and how to get them; empty if none are.
        note: Further text about the results.
    """

    rows: Sequence[Row]
    more: bool = False
    rest: str = ""
    note: str = ""

    def judged(self, wanted: object) -> SearchResults:
        """Return results with the remarks of their test."""
        if not isinstance(wanted, Unignored):
            return self
        return replace(
            self,
            rest=_LATE if wanted.late else self.rest,
            note=_PARTLY if wanted.partly else "",
        )


async def found_files(
    files: Files, wanted: str | PathTest, path: str, offset: int
) -> SearchResults:
    """Return matching files, newest first, at least to one page beyond the offset."""
    limit = min(offset + MAX_RESULTS, MOST)
    test = Unhurried(glob_matcher(wanted, path))
    entries = await files.glob(test, path, limit=limit + 1)
    kept = entries[:limit]
    rows = await work_apart(lambda: [entry_row(one) for one in kept], items=len(kept))
    full = len(entries) > limit
    return SearchResults(
        rows, full and limit < MOST, _LATE if test.late else _MOST if full and limit == MOST else ""
    )


async def found_lines(
    search: Callable[[int], Awaitable[Page]], mode: str, offset: int
) -> SearchResults:
    """Return lines, files with lines, or their counts, at least to one page beyond the offset.

    Args:
        search: Finds lines up to a number.
        mode: `content`, `files` or `count`.
        offset: Rows that will be skipped.
    """
    limit = min(offset + MAX_RESULTS, MOST) if mode == "content" else MAX_COUNTED
    while True:
        page = await search(limit)
        rows = await work_apart(partial(match_rows, page.matches, mode), items=len(page.matches))
        if not page.truncated:
            return SearchResults(rows)
        if len(page.matches) < limit:
            return SearchResults(rows, rest=_LATE)
        if limit == MOST:
            return SearchResults(rows, rest=_MOST)
        if mode == "count":
            rows = rows[:-1]  # not counted to its end
        if len(rows) > offset or mode == "content":
            return SearchResults(rows, more=True)
        limit = min(8 * limit, MOST)


def answer(
    found: SearchResults,
    head: str,
    listing: Listing,
    offset: int,
    name: str,
    call: Mapping[str, JsonValue],
) -> ToolResult:
    """Return a page of results, as text and as data, with the call for the next page."""
    total = len(found.rows)
    notes = [span(listing, offset, total, head)]
    if found.more:
        notes[0] += " or more"
    more = next_page(listing, total + found.more, name, **call)
    if more:
        notes.append(f"next: {more['next']}")
    if found.rest and (found.rest == _LATE or not more):
        notes.append(found.rest)
    if found.note:
        notes.append(found.note)
    text = "\n".join([f"[{'; '.join(notes)}]", *listing.lines])
    data: dict[str, JsonValue] = {
        "total": total,
        "truncated": bool(found.more or found.rest),
        "results": listing.rows,
        **more,
    }
    return ToolResult(text, data)


MAX_IMAGE_BYTES = 3_500_000
"""A provider's bound is 5 MB in base64."""

MAX_OTHER_BYTES = 8_000_000
"""Of a provider's limit of 32 MB for a request, with space for other media."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS\0", "audio/ogg"),
    (b"fLaC\0", "audio/flac"),
    (b"fLaC\x80", "audio/flac"),
    *((b"ID3" + bytes([version]), "audio/mpeg") for version in (2, 3, 4)),
    (b"\x1aE\xdf\xa3", "video/webm"),
)

_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
"""Media types of files that start with `RIFF` and a length, by the bytes after those."""

_BRANDS = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"qt  ": "video/quicktime",
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1"), "image/heif"),
    **dict.fromkeys((b"3gp4", b"3gp5", b"3gp6", b"3gp7"), "video/3gpp"),
    b"crx ": None,
}
"""ISO base media files (ISO 14496-12) with a major brand other than MP4 video. None: raw."""

_BRAND = 64
"""The greatest length of a file's first box, which contains its brand."""

_WORDS = {"image": "an image", "audio": "a recording", "video": "a film"}


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a file from its first bytes, or None if unknown."""
    for beginning, media in _BEGINNINGS:
        if data.startswith(beginning):
            return "video/x-matroska" if media == "video/webm" and _is_matroska(data) else media
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[4:8] == b"ftyp" and int.from_bytes(data[:4], "big") <= _BRAND:
        return _BRANDS.get(data[8:12], "video/mp4")
    return "audio/mpeg" if _is_mpeg_audio(data) else None


def media_content(path: str, data: bytes) -> str | tuple[TextBlock | MediaBlock, ...] | None:
    """Return a media file as content, a notice for one that is too large, None for other files."""
    media = media_type_of(data)
    if media is None:
        return None
    kind = media.partition("/")[0]
    size = size_text(len(data))
    if len(data) > (MAX_IMAGE_BYTES if kind == "image" else MAX_OTHER_BYTES):
        what = _WORDS.get(kind, "a document")
        return f"[{shown(path)} is {what} ({media}) of {size}, too large to show]"
    encoded = base64.b64encode(data).decode("ascii")
    return (TextBlock(f"[{shown(path)}: {media}, {size}]"), _block(kind, media, encoded, path))


def binary_notice(path: str, data: bytes) -> str:
    """Return the notice about a file that is neither media nor text."""
    size = size_text(len(data))
    return f"[{shown(path)} is a binary file of {size}; there is no text to show]"


def _block(kind: str, media: str, data: str, path: str) -> MediaBlock:
    match kind:
        case "image":
            return ImageBlock(media, data)
        case "audio":
            return AudioBlock(media, data)
        case "video":
            return VideoBlock(media, data)
        case _:
            return DocumentBlock(media, data, name=path.rpartition("/")[2])


def _is_matroska(data: bytes) -> bool:
    """Whether the document type of an EBML header is Matroska."""
    return b"matroska" in data[:_BRAND]


def _is_mpeg_audio(data: bytes) -> bool:
    """Whether two MPEG audio frames of a kind follow each other: one alone may be chance.

    A frame's header is eleven set bits, version, layer III, bit rate, sample rate and padding
    (ISO 11172-3, 13818-3).
    """
    length = _frame_length(data[:4])
    return length is not None and _frame_length(data[length : length + 4]) is not None


_KBPS = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_HERTZ = (44_100, 48_000, 32_000)


def _frame_length(header: bytes) -> int | None:
    """Return the bytes of a frame of layer III, or None if it is not one."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return None
    version, rate, hertz = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or rate in (0, 15) or hertz == 3:
        return None
    first = version == 3
    kbps = _KBPS[1 if first else 2][rate - 1]
    per_second = _HERTZ[hertz] // (1 if first else 2 if version == 2 else 4)
    return (144 if first else 72) * kbps * 1_000 // per_second + (header[2] >> 1 & 1)
