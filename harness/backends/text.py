"""The text of files: decoded, measured, and edited in place.

A model sees and writes text with LF line ends. The file keeps its own encoding, byte order mark
and line ends: matches are found on the LF view and spliced back into the text as it is stored.

How much memory a text takes is known before it is made. Python keeps every character of a text in
as many bytes as its widest one: one emoji makes a file of ASCII four times as large.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from ..errors import ToolError

__all__ = [
    "MOST_MEMORY",
    "Text",
    "TextTooLarge",
    "decode",
    "lf",
    "memory_of",
    "text_size",
]

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CONTROL = bytes([*range(0x07), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
_BLOCK = 1 << 16
"""Characters of a text that are taken apart at a time."""

_PIECE = 1 << 20
"""Characters whose line ends are replaced at a time."""

_BYTES = 1 << 16
"""Bytes that are looked at at a time, so that other threads get their turn."""

MOST_MEMORY: Final = 56 << 20
"""Bytes that a file and its text may take together; known before the text is made."""

_FOUR_BYTES = re.compile(rb"[\xf0-\xff]")
_TWO_BYTES = re.compile(rb"[\xc4-\xff]")
_CONTINUATION = bytes(range(0x80, 0xC0))


def lf(text: str) -> str:
    """Return the text with every line end as LF."""
    if "\r" not in text:
        return text
    if len(text) <= _PIECE:
        return text.replace("\r\n", "\n").replace("\r", "\n")
    pieces: list[str] = []  # in one piece, no other thread would run for a tenth of a second
    place = 0
    while place < len(text):
        end = place + _PIECE
        end += text[end - 1 : end + 1] == "\r\n"
        pieces.append(text[place:end].replace("\r\n", "\n").replace("\r", "\n"))
        place = end
    return "".join(pieces)


@dataclass(frozen=True)
class Text:
    """A decoded file.

    Attributes:
        raw: The text with its own line ends, without byte order mark.
        encoding: Codec of the bytes after the mark.
        bom: The byte order mark, usually empty.
    """

    raw: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @cached_property
    def view(self) -> str:
        """The text with LF line ends, as a model sees it."""
        return lf(self.raw)

    @cached_property
    def line_count(self) -> int:
        """Lines of the view; a final line end starts no further line."""
        return self.view.count("\n") + (self.view[-1:] not in ("", "\n"))

    def lines(self, first: int = 0) -> Iterator[str]:
        """Yield the lines of the view from one on, with no more than a block of them in memory."""
        view, place = self.view, self._start_of(first)
        while place < len(view):
            last = view.rfind("\n", place, place + _BLOCK)
            if last < 0:
                last = view.find("\n", place + _BLOCK)
            end = last if last >= 0 else len(view)
            if view.find("\n", place, end) < 0:  # one line, perhaps a very long one: no copy more
                yield view[place:end]
            else:
                yield from view[place:end].split("\n")
            place = end + 1

    def lines_with(self, part: str) -> Iterator[tuple[int, str]]:
        """Yield number and text of each line of the view that holds some text, which is one line.

        The lines between are not taken apart.
        """
        view, number, start = self.view, 1, 0
        while (found := view.find(part, start)) >= 0:
            number += view.count("\n", start, found)
            start = max(start, view.rfind("\n", start, found) + 1)
            end = view.find("\n", found)
            if end < 0:
                yield number, view[start:]
                return
            yield number, view[start:end]
            number, start = number + 1, end + 1

    def _start_of(self, line: int) -> int:
        """Return the position at which a line of the view begins; its length if it has fewer."""
        view, place = self.view, 0
        while line and place < len(view):
            ends = view.count("\n", place, place + _BLOCK)
            if ends < line:
                line -= ends
                place += _BLOCK
                continue
            for _ in range(line):
                place = view.find("\n", place) + 1
            return place
        return min(place, len(view))

    @cached_property
    def newline(self) -> str:
        """The most frequent line end; LF when there is none."""
        crlf = self.raw.count("\r\n")
        counts = {
            "\n": self.raw.count("\n") - crlf,
            "\r\n": crlf,
            "\r": self.raw.count("\r") - crlf,
        }
        return max(counts, key=lambda end: counts[end])

    def encode(self) -> bytes:
        """Return the bytes of the file.

        Raises:
            UnicodeEncodeError: The text holds characters that the encoding does not have.
        """
        return self.bom + self.raw.encode(self.encoding)

    def notes(self) -> str:
        """Return unusual properties of the bytes as text, such as `CRLF line ends, utf-16-le`."""
        notes: list[str] = []
        if "\r" in self.raw:
            notes.append({"\r\n": "CRLF", "\r": "CR"}.get(self.newline, "mixed") + " line ends")
        if self.encoding != "utf-8":
            notes.append(self.encoding)
        elif self.bom:
            notes.append("byte order mark")
        return ", ".join(notes)

    def find(self, old: str, most: int | None = None) -> list[int]:
        """Return the first `most` positions of `old` in the view, also overlapping ones."""
        return list(islice(_occurrences(self.view, lf(old), 1), most)) if old else []

    def length_after(self, old: str, new: str) -> int:
        """Return how many characters replacing every place of `old` would leave, at most."""
        old, new = lf(old), lf(new)
        grown = len(new) + new.count("\n") * (len(self.newline) - 1) - len(old)
        apart = 1  # a character that keeps two line ends from becoming one
        return len(self.raw) + self.view.count(old) * (max(grown, 0) + apart)

    def replaced(self, old: str, new: str, *, every: bool = False) -> Text:
        """Return the text with the first place, or every place, of `old` replaced by `new`.

        Everything outside of the difference between `old` and `new` stays as it is, byte for
        byte; new line ends are of the file's most frequent kind.
        """
        old, new = lf(old), lf(new)
        places = list(_occurrences(self.view, old, len(old)))
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        middle = new[head : len(new) - tail].replace("\n", self.newline)
        crlfs = array(  # there may be millions
            "I", (place - number for number, place in enumerate(_occurrences(self.raw, "\r\n", 2)))
        )
        pieces: list[str] = []
        done = 0
        for place in places if every else places[:1]:
            start, end = place + head, place + len(old) - tail
            begin = start + bisect_left(crlfs, start)
            pieces += (self.raw[done:begin], middle)
            done = end + bisect_left(crlfs, end)
        return replace(self, raw=_join([*pieces, self.raw[done:]]))


def _occurrences(text: str, part: str, step: int) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + step)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with together."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _join(pieces: list[str]) -> str:
    """Join pieces; a CR that meets an LF stays a line end of its own."""
    joined: list[str] = []
    for piece in filter(None, pieces):
        if joined and joined[-1].endswith("\r") and piece.startswith("\n"):
            joined.append("\n")
        joined.append(piece)
    return "".join(joined)


def decode(data: bytes) -> Text | None:
    """Return the bytes as text, or None when they are binary.

    UTF-8 with or without mark, UTF-16 with mark, else Latin-1. NUL means binary; so do control
    characters in what would be Latin-1. Encoding the result gives the same bytes.

    Raises:
        TextTooLarge: It would take more memory than `MOST_MEMORY`.
    """
    encoding = _UTF16.get(data[:2])
    bom = data[:2] if encoding else b""
    if data.startswith(codecs.BOM_UTF8):
        bom = codecs.BOM_UTF8
    if encoding is None and not _is_utf8(data):
        if _has_control(data):
            return None
        encoding, bom = "latin-1", b""
    encoding = encoding or "utf-8"
    if (size := memory_of(data, encoding)) > MOST_MEMORY:
        raise TextTooLarge(size)
    try:
        raw = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError:  # UTF-16 alone
        return None
    if "\0" in raw:
        return None
    return Text(raw, encoding, bom)


def _is_utf8(data: bytes) -> bool:
    """Whether it can be decoded. A try at all of it would take its memory once more."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in _blocks(data):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _has_control(data: bytes) -> bool:
    """Whether there are control characters; most binary files have some near their start."""
    return any(len(block.translate(None, _CONTROL)) < len(block) for block in _blocks(data))


class TextTooLarge(ToolError):
    """A file would take too much memory as text. One wide character makes all of them wide."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the file was not opened: as text it would take {size >> 20} MiB in memory, and at "
            f"most {MOST_MEMORY >> 20} MiB are used for a file. Nothing was done. Search it with "
            "grep, or work on it with a command."
        )


def memory_of(data: bytes, encoding: str = "utf-8") -> int:
    """Return how many bytes a file and its text with LF line ends take at most, to be made too."""
    is_plain = data.isascii() or encoding == "latin-1"
    own = len(data) if is_plain else 2 * len(data)  # a decoder begins with the narrowest characters
    return own + text_size(data, encoding) * (3 if b"\r" in data else 1)


def text_size(data: bytes, encoding: str = "utf-8") -> int:
    """Return how many bytes the text of a file takes: its widest character decides."""
    if encoding != "utf-8" or data.isascii():
        return len(data)
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    width, chars = 1, 0
    for block in _blocks(data):
        chars += len(block.translate(None, _CONTINUATION))
        if width < 4 and _FOUR_BYTES.search(block):
            width = 4
        elif width < 2 and _TWO_BYTES.search(block, start):
            width = 2
        start = 0
    return width * chars


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the bytes piece by piece."""
    return (data[place : place + _BYTES] for place in range(0, len(data), _BYTES))
