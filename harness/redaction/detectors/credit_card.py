"""Card numbers: 13 to 19 digits, plain or in groups, whose check digit is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..detector import Span
from ..folding import folded

__all__ = ["find", "mask", "open_from"]

_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""What copying from pages and documents leaves between digits: soft hyphens and their like."""

_SEPARATORS = f" \\-\u00a0\u2009\u202f\u2010\u2011{_INVISIBLE}"
_NUMBER = re.compile(rf"(?<![0-9])(?<![0-9]\.)[0-9](?:[{_SEPARATORS}]?[0-9]){{12,}}")
_GROUP = re.compile("[0-9]+")
_RUN = f"0123456789. -\u00a0\u2009\u202f\u2010\u2011{_INVISIBLE}"
_TIME = re.compile(r"1[4-9][0-9]{11}(?:[0-9]{3}){0,2}")
"""Milli-, micro- or nanoseconds since 1970, as logs are full of; a tenth would pass for cards."""

_SHAPES = frozenset(
    {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 5), (4, 4, 4, 1), (6, 13), (6, 10), (8, 8)}
    | {(4, 4, 4, 4, more) for more in (1, 2, 3)}
)
"""How cards are printed, as digits by group."""


def find(text: str) -> Iterator[Span]:
    """Yield the numbers; see `Detector.find`.

    A number may stand beside others (a date, a security code), so every sequence of groups that
    may be a card is looked at, and those that overlap are all given: together they hide it all.
    """
    for number in _NUMBER.finditer(text):
        start = number.start()
        groups = [(start + one.start(), start + one.end()) for one in _GROUP.finditer(number[0])]
        for first in range(len(groups)):
            yield from _from(text, groups, first)


def _from(text: str, groups: Sequence[Span], first: int) -> Iterator[Span]:
    """Yield the cards that begin with a group."""
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
    """Whether the last digit is the check digit of the others (Luhn)."""
    doubled = (int(one) * 2 for one in digits[-2::-2])
    return (sum(map(int, digits[::-2])) + sum(one - 9 * (one > 9) for one in doubled)) % 10 == 0


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    start = len(text.rstrip(_RUN))
    return len(text) - len(text[start:].lstrip(f" .-{_INVISIBLE}"))


def mask(value: str) -> str:
    """Return the number with all but its last four digits hidden."""
    plain = folded(value)
    digits = "".join(_GROUP.findall(plain))
    separator = next((one for one in plain if not one.isdigit()), "")
    return separator.join(["****"] * 3 + [digits[-4:]])
