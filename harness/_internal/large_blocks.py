"""Large blocks: memory of large values goes back to the system as soon as it is free.

The allocator of the C library on Linux keeps freed blocks of up to 32 MiB once it has seen one, and
cannot give back what lies between others. Then a file of 10 MB that was written holds on to several
times its size. With a fixed threshold such blocks are mapped, and unmapped, by themselves.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from typing import Final

__all__ = ["LARGE_BYTES", "release_large_blocks"]

LARGE_BYTES: Final = 1 << 20

_M_MMAP_THRESHOLD: Final = -3
"""Its number in the header `malloc.h` of glibc."""


@cache
def release_large_blocks() -> None:
    """Map blocks of `LARGE_BYTES` and more by themselves from now on; nothing where that is no use.

    Called when something large arrives: loading `ctypes` takes milliseconds of a start.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
