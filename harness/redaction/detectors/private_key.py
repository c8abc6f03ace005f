"""Blocks of private keys; one that does not end goes to the end of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..detector import Span

__all__ = ["find", "mask", "open_from"]

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BEGUN = re.compile(r"-(?:-{0,4}|-{4}[A-Z0-9 ]{1,110}-{0,5})\Z")
_MOST = 130


def find(text: str) -> Iterator[Span]:
    """Yield the blocks; see `Detector.find`."""
    begin = _BEGIN.search(text) if "-----BEGIN " in text else None
    while begin is not None:
        end = _END.search(text, begin.end())
        yield begin.start(), end.end() if end else len(text)
        begin = _BEGIN.search(text, end.end()) if end else None


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    last = 0
    while begin := _BEGIN.search(text, last):
        end = _END.search(text, begin.end())
        if end is None:
            return begin.start()
        last = end.end()
    begun = _BEGUN.search(text, max(last, len(text) - _MOST))
    return begun.start() if begun else len(text)


def mask(value: str) -> str:
    """Return what stands for any block."""
    return "[MASKED_PRIVATE_KEY]"
