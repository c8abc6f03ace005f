"""Message limits: how much memory one JSON message may need, counted before it is parsed.

A few bytes of JSON can become a hundred times as many bytes of Python objects, and one character
beyond U+FFFF makes each character of its text take four bytes. Both are counted in the pieces of a
message as they arrive, so that no message that is too large is ever held or parsed.

Memory of large values is returned to the system at once. Once it has freed a large block, the C
library's allocator on Linux keeps blocks of up to 32 MiB, and cannot return blocks that lie between
others. So writing a file of 10 MB would hold several times its size. With a fixed threshold, large
blocks are mapped and unmapped separately.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from functools import cache
from typing import Final

__all__ = [
    "FREE_BYTES",
    "LARGE_BYTES",
    "MAX_TEXT_BYTES",
    "MAX_VALUES",
    "MessageBounds",
    "MessageTooLarge",
    "release_large_blocks",
]


LARGE_BYTES: Final = 1 << 20

_M_MMAP_THRESHOLD: Final = -3
"""Its number in glibc's `malloc.h`."""


@cache
def release_large_blocks() -> None:
    """Map blocks of `LARGE_BYTES` and more separately from now on; does nothing without glibc.

    Called when something large arrives, because loading `ctypes` at startup takes milliseconds.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


MAX_VALUES: Final = 10_000
"""The most values of one message: list items, object members, and the lists and objects."""

MAX_TEXT_BYTES: Final = 24 << 20
"""The most bytes of a message's text in Python: one, two or four for each character."""

FREE_BYTES: Final = 2 * MAX_VALUES
"""A message of up to this many bytes is within both limits: each value takes two bytes."""

_CONTINUATION = bytes(range(0x80, 0xC0))
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89abAB]")
_TWO_BYTES = re.compile(rb"[\xc4-\xff]|\\u(?!00)")
_ESCAPE_BYTES = 6


class MessageTooLarge(ValueError):
    """A message exceeds a limit and was not read; the text says which one and what to do."""


class MessageBounds:
    """Counts one message, and finds where strings begin and end."""

    def __init__(self) -> None:
        self._size = 0
        self._early: list[bytes] = []
        self._rest = b""
        self._in_string = False
        self._values = 1
        self._chars = 0
        self._width = 1

    def feed(self, piece: bytes) -> None:
        """Count the next piece.

        Raises:
            MessageTooLarge: The message now exceeds a limit.
        """
        self._size += len(piece)
        self._early.append(piece)
        if self._size <= FREE_BYTES:
            return
        if self._size >= LARGE_BYTES:
            release_large_blocks()
        for one in self._early:
            self._count(one)
        self._early.clear()
        if self._values > MAX_VALUES:
            raise MessageTooLarge(
                f"the message has more than {MAX_VALUES:,} values (list items, members of objects) "
                "and was not read. Nothing was done. Send less in one call."
            )
        if self._chars * self._width > MAX_TEXT_BYTES:
            raise MessageTooLarge(
                f"the text of the message takes more than {MAX_TEXT_BYTES >> 20} MiB in memory, "
                f"with {self._width} bytes for each character, and was not read. Nothing was "
                "done. Send large content in several calls."
            )

    def _count(self, piece: bytes) -> None:
        if not piece.isascii():
            self._chars += len(piece.translate(None, _CONTINUATION))
        else:
            self._chars += len(piece)
        plain = (self._rest + piece).replace(rb"\\", b"")
        # If a piece ends within an escape, the escape belongs to the next piece.
        place = plain.rfind(b"\\", max(0, len(plain) - _ESCAPE_BYTES + 1))
        self._rest = plain[place:] if place >= 0 else b""
        plain = plain[:place] if place >= 0 else plain
        self._chars -= (_ESCAPE_BYTES - 1) * plain.count(rb"\u")
        if self._width < 4 and _FOUR_BYTES.search(plain):
            self._width = 4
        elif self._width < 2 and _TWO_BYTES.search(plain):
            self._width = 2
        parts = plain.replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._values += sum(map(outside.count, (b",", b"[", b"{")))
        self._in_string ^= len(parts) % 2 == 0
