"""International bank account numbers whose length and checksum are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ..detector import Span

__all__ = ["find", "open_from"]

_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Countries by the length of their numbers."""

_LENGTHS = {one: length for length, names in _COUNTRIES.items() for one in names.split()}

_START = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{2})[0-9]{2}")
_BEGUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{1,2}[0-9]?\Z")
_REST = re.compile(r"[A-Za-z0-9 -]*\Z")
_MOST = 70
"""Characters, each with a space."""


@cache
def _body(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ -]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])")


def find(text: str) -> Iterator[Span]:
    """Yield the numbers; see `Detector.find`."""
    for start in _START.finditer(text):
        length = _LENGTHS.get(start[1].upper())
        body = _body(length).match(text, start.end()) if length else None
        if body is not None and _checks(start[0] + body[0]):
            yield start.start(), body.end()


def _checks(value: str) -> bool:
    plain = value.replace(" ", "").replace("-", "").upper()
    number = "".join(str(int(one, 36)) for one in plain[4:] + plain[:4])
    return int(number) % 97 == 1


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    begun = _BEGUN.search(text, max(0, len(text) - 4))
    for start in _START.finditer(text, max(0, len(text) - _MOST)):
        if start[1].upper() in _LENGTHS and _REST.match(text, start.end()):
            return start.start()
    return begun.start() if begun else len(text)
