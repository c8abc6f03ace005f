"""Detectors for personal numbers: payment cards, bank accounts and telephones.

Card numbers have 13 to 19 digits, plain or in groups, and a correct check digit. International bank
account numbers have the right length and checksum. Telephone numbers are international, or national
with the usual punctuation: plain digits could be any number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from .. import Span, folded

__all__ = [
    "find_card",
    "find_iban",
    "find_phone",
    "mask_card",
    "open_card",
    "open_iban",
    "open_phone",
]


_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Invisible characters, such as soft hyphens, that copied text may have between digits."""

_SEPARATORS = f" \\-\u00a0\u2009\u202f\u2010\u2011{_INVISIBLE}"
_NUMBER = re.compile(rf"(?<![0-9])(?<![0-9]\.)[0-9](?:[{_SEPARATORS}]?[0-9]){{12,}}")
_CARD_GROUP = re.compile("[0-9]+")
_CARD_RUN = f"0123456789. -\u00a0\u2009\u202f\u2010\u2011{_INVISIBLE}"
_TIME = re.compile(r"1[4-9][0-9]{11}(?:[0-9]{3}){0,2}")
"""Milli-, micro- or nanoseconds since 1970, common in logs; a tenth would look like a card."""

_SHAPES = frozenset(
    {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 5), (4, 4, 4, 1), (6, 13), (6, 10), (8, 8)}
    | {(4, 4, 4, 4, more) for more in (1, 2, 3)}
)
"""Formats of printed card numbers: the number of digits in each group."""


def find_card(text: str) -> Iterator[Span]:
    """Yield the card numbers; see `Detector.find`.

    Other numbers (a date, a security code) may be next to a card number. So every sequence of
    groups that may be a card is checked. Overlapping matches are all returned: together they hide
    the whole card number.
    """
    for number in _NUMBER.finditer(text):
        start = number.start()
        groups = [
            (start + one.start(), start + one.end()) for one in _CARD_GROUP.finditer(number[0])
        ]
        for first in range(len(groups)):
            yield from _from(text, groups, first)


def _from(text: str, groups: Sequence[Span], first: int) -> Iterator[Span]:
    """Yield the card numbers that begin with the group at index `first`."""
    digits, lengths = "", list[int]()
    for place in range(first, len(groups)):
        start, end = groups[place]
        digits += text[start:end]
        lengths.append(end - start)
        if len(digits) > 19:
            return
        whole = first == 0 and place == len(groups) - 1
        printed = len(lengths) == 1 or tuple(lengths) in _SHAPES
        if len(digits) >= 13 and (whole or printed) and _is_card(digits, lengths):
            yield groups[first][0], end


def _is_card(digits: str, lengths: Sequence[int]) -> bool:
    if digits[0] == "0" or not _checks(digits):
        return False
    if len(lengths) == 1:
        return _TIME.fullmatch(digits) is None
    quads = [digits[place : place + 4] for place in range(0, len(digits), 4)]
    return not all(quad[:2] in ("19", "20") for quad in quads)  # years


def _checks(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (Luhn)."""
    doubled = (int(one) * 2 for one in digits[-2::-2])
    return (sum(map(int, digits[::-2])) + sum(one - 9 * (one > 9) for one in doubled)) % 10 == 0


def open_card(text: str) -> int:
    """See `Detector.open_from`."""
    start = len(text.rstrip(_CARD_RUN))
    return len(text) - len(text[start:].lstrip(f" .-{_INVISIBLE}"))


def mask_card(value: str) -> str:
    """Return the number with all but its last four digits hidden."""
    plain = folded(value)
    digits = "".join(_CARD_GROUP.findall(plain))
    separator = next((one for one in plain if not one.isdigit()), "")
    return separator.join(["****"] * 3 + [digits[-4:]])


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
"""Countries by the length of their account numbers."""

_LENGTHS = {one: length for length, names in _COUNTRIES.items() for one in names.split()}

_START = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{2})[0-9]{2}")
_BEGUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{1,2}[0-9]?\Z")
_REST = re.compile(r"[A-Za-z0-9 -]*\Z")
_MOST = 70
"""Maximum length in characters, if a space follows each of them."""


@cache
def _body(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ -]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])")


def find_iban(text: str) -> Iterator[Span]:
    """Yield the numbers; see `Detector.find`."""
    for start in _START.finditer(text):
        length = _LENGTHS.get(start[1].upper())
        body = _body(length).match(text, start.end()) if length else None
        if body is not None and _iban_checks(start[0] + body[0]):
            yield start.start(), body.end()


def _iban_checks(value: str) -> bool:
    plain = value.replace(" ", "").replace("-", "").upper()
    number = "".join(str(int(one, 36)) for one in plain[4:] + plain[:4])
    return int(number) % 97 == 1


def open_iban(text: str) -> int:
    """See `Detector.open_from`."""
    begun = _BEGUN.search(text, max(0, len(text) - 4))
    for start in _START.finditer(text, max(0, len(text) - _MOST)):
        if start[1].upper() in _LENGTHS and _REST.match(text, start.end()):
            return start.start()
    return begun.start() if begun else len(text)


_BETWEEN = "[ .\\-/()\u00a0]{0,2}"
_INTERNATIONAL = re.compile(rf"(?<![\w+/=])\+[1-9](?:{_BETWEEN}[0-9]){{6,14}}(?![0-9])")
_DOUBLE_ZERO = re.compile(rf"(?=((?<![\w+.])00[1-9](?:{_BETWEEN}[0-9]){{8,13}}(?![0-9])))")
_NORTH_AMERICAN = re.compile(
    r"(?=((?<![\w+])(?<![0-9][.-])(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[ .-])"
    r"[0-9]{3}[ .-][0-9]{4}(?![0-9])(?![.-][0-9])))"
)
_END = re.compile(r"[0-9]{3}[ .-][0-9]{4}")
_AREA = re.compile(r"(?<![\w+.,])\(?0[1-9][0-9]{0,3}\)?(?=[ /-])")
_PHONE_GROUP = re.compile(r"[ /-][0-9]{2,8}(?![0-9])")
_GOES_ON = re.compile(r"-|\.[0-9]")
_DIGIT = re.compile("[0-9]")
_PHONE_RUN = "0123456789+(). -/,\u00a0"


def find_phone(text: str) -> Iterator[Span]:
    """Yield the numbers; see `Detector.find`."""
    if "+" in text:
        for one in _INTERNATIONAL.finditer(text):
            yield one.span()
    if "00" in text:
        for one in _DOUBLE_ZERO.finditer(text):
            yield one.span(1)
    if _END.search(text):  # most texts have none, and this check is faster
        for one in _NORTH_AMERICAN.finditer(text):
            yield one.span(1)
    for area in _AREA.finditer(text):
        yield from _national(text, area)


def _national(text: str, area: re.Match[str]) -> Iterator[Span]:
    """Yield the numbers that begin with an area code: up to four groups, 9 to 12 digits."""
    digits, end = len(_DIGIT.findall(area[0])), area.end()
    for _ in range(4):
        group = _PHONE_GROUP.match(text, end)
        if group is None:
            return
        digits, end = digits + len(group[0]) - 1, group.end()
        if 9 <= digits <= 12 and _GOES_ON.match(text, end) is None:
            yield area.start(), end


def open_phone(text: str) -> int:
    """See `Detector.open_from`."""
    start = len(text.rstrip(_PHONE_RUN))
    return len(text) - len(text[start:].lstrip(" .,-/)\u00a0"))
