"""Mail addresses, also with letters beyond ASCII."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..detector import Span, run_start

__all__ = ["find", "mask", "open_from"]

_MOST = 320
"""A local part of 64 characters, an `@`, a domain of 255."""

_LOCAL = re.compile(r"[\w.%+-]*")
_DOMAIN = re.compile(r"@(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,63}")
_RUN = re.compile(r"[\w.%+@-]*")


def find(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`."""
    if "@" not in text:
        return
    for domain in _DOMAIN.finditer(text):
        at = domain.start()
        before = text[max(0, at - _MOST) : at]
        start = at - len(before) + run_start(before, _LOCAL, _MOST)
        if start < at:
            yield start, domain.end()


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _RUN, 2 * _MOST)


def mask(value: str) -> str:
    """Return the address with its domain hidden: `ann@****.org`."""
    local, _, domain = value.partition("@")
    return f"{local}@****.{domain.rpartition('.')[2]}"
