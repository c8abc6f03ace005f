"""Memory use of text: estimated from a file's bytes before they are decoded.

Python keeps every character of a text in as many bytes as its widest one: one emoji makes a file
of ASCII four times as large.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from ..errors import ToolError

__all__ = ["MOST_MEMORY", "TextTooLarge", "blocks", "memory_of", "text_size"]

_BLOCK = 1 << 16
"""Bytes that are looked at at a time, so that other threads get their turn."""

MOST_MEMORY: Final = 56 << 20
"""Bytes that a file and its text may take together; known before the text is made."""

_FOUR_BYTES = re.compile(rb"[\xf0-\xff]")
_TWO_BYTES = re.compile(rb"[\xc4-\xff]")
_CONTINUATION = bytes(range(0x80, 0xC0))


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
    for block in blocks(data):
        chars += len(block.translate(None, _CONTINUATION))
        if width < 4 and _FOUR_BYTES.search(block):
            width = 4
        elif width < 2 and _TWO_BYTES.search(block, start):
            width = 2
        start = 0
    return width * chars


def blocks(data: bytes) -> Iterator[bytes]:
    """Yield the bytes piece by piece."""
    return (data[place : place + _BLOCK] for place in range(0, len(data), _BLOCK))
