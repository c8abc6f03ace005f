"""Telephone numbers: international ones, and national ones that are written like one.

A bare row of digits is not taken for a number: there is no telling it from any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..detector import Span

__all__ = ["find", "open_from"]

_BETWEEN = "[ .\\-/()\u00a0]{0,2}"
_INTERNATIONAL = re.compile(rf"(?<![\w+/=])\+[1-9](?:{_BETWEEN}[0-9]){{6,14}}(?![0-9])")
_DOUBLE_ZERO = re.compile(rf"(?=((?<![\w+.])00[1-9](?:{_BETWEEN}[0-9]){{8,13}}(?![0-9])))")
_NORTH_AMERICAN = re.compile(
    r"(?=((?<![\w+])(?<![0-9][.-])(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[ .-])"
    r"[0-9]{3}[ .-][0-9]{4}(?![0-9])(?![.-][0-9])))"
)
_END = re.compile(r"[0-9]{3}[ .-][0-9]{4}")
_AREA = re.compile(r"(?<![\w+.,])\(?0[1-9][0-9]{0,3}\)?(?=[ /-])")
_GROUP = re.compile(r"[ /-][0-9]{2,8}(?![0-9])")
_GOES_ON = re.compile(r"-|\.[0-9]")
_DIGIT = re.compile("[0-9]")
_RUN = "0123456789+(). -/,\u00a0"


def find(text: str) -> Iterator[Span]:
    """Yield the numbers; see `Detector.find`."""
    if "+" in text:
        for one in _INTERNATIONAL.finditer(text):
            yield one.span()
    if "00" in text:
        for one in _DOUBLE_ZERO.finditer(text):
            yield one.span(1)
    if _END.search(text):  # most texts have none, and this is told sooner
        for one in _NORTH_AMERICAN.finditer(text):
            yield one.span(1)
    for area in _AREA.finditer(text):
        yield from _national(text, area)


def _national(text: str, area: re.Match[str]) -> Iterator[Span]:
    """Yield the numbers that begin with an area code: up to four groups, 9 to 12 digits."""
    digits, end = len(_DIGIT.findall(area[0])), area.end()
    for _ in range(4):
        group = _GROUP.match(text, end)
        if group is None:
            return
        digits, end = digits + len(group[0]) - 1, group.end()
        if 9 <= digits <= 12 and _GOES_ON.match(text, end) is None:
            yield area.start(), end


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    start = len(text.rstrip(_RUN))
    return len(text) - len(text[start:].lstrip(" .,-/)\u00a0"))
