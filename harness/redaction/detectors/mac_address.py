"""Hardware addresses: six or eight bytes with `:` or `-`, or three groups with dots."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..detector import Span, run_start

__all__ = ["find", "mask", "open_from"]

_HEX = "[0-9A-Fa-f]"
_PAIRS = re.compile(
    rf"(?<!{_HEX})(?<!\b{_HEX}{{2}}[:-]){_HEX}{{2}}([:-])(?:{_HEX}{{2}}\1){{4}}"
    rf"(?:{_HEX}{{2}}\1{_HEX}{{2}}\1)?{_HEX}{{2}}(?!\1?{_HEX})",
    re.ASCII,
)
_QUADS = re.compile(rf"(?<![\w.]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?![\w]|\.{_HEX})", re.ASCII)
_RUN = re.compile(r"[\w:.-]*", re.ASCII)


def find(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`."""
    for pattern in (_PAIRS, _QUADS):
        for one in pattern.finditer(text):
            yield one.span()


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _RUN, 120)


def mask(value: str) -> str:
    """Return the address with only its last byte left."""
    separator = next((one for one in value if one in ":-."), ":")
    return separator.join(["**"] * 5 + [value[-2:]])
