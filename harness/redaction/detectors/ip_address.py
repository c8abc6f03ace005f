"""IP addresses, version 4 and 6, with ports, prefixes and zones beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address

from ..detector import Span, run_start

__all__ = ["find", "mask", "open_from"]

_V4 = re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w]|\.[0-9])", re.ASCII)
_V6 = re.compile(r"[0-9A-Fa-f:.]+")
_ZONE = re.compile(r"%[A-Za-z0-9._-]{1,32}")
_WORD = re.compile(r"\w", re.ASCII)
_RUN = re.compile(r"[\w:.%-]*", re.ASCII)
_MOST_V6 = 80
"""No address is longer, with what may stand around it."""


def find(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`."""
    if "." in text:
        for one in _V4.finditer(text):
            if all(int(part) <= 255 for part in one[0].split(".")):
                yield one.span()
    if "::" not in text and text.count(":") < 7:
        return
    for one in _V6.finditer(text):
        if one[0].count(":") >= 2 and len(one[0]) <= _MOST_V6:
            yield from _version_6(text, *one.span())


def _version_6(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the address in a run of its characters: labels, ports and full stops may touch it."""
    if start and _WORD.match(text[start - 1]):  # a label: `ip:fe80::1`
        start = text.index(":", start, end) + 1
    if end < len(text) and _WORD.match(text[end]):
        end = text.rindex(":", max(0, start - 1), end) + 1
    value = text[start:end]
    if value.startswith(":") and not value.startswith("::"):
        start += 1
    end -= len(value) - len(value.rstrip("."))
    value = text[start:end]
    if value.endswith(":::") or (value.endswith(":") and not value.endswith("::")):
        end -= 1
    value = text[start:end]
    if len(value) < 3 or (value.endswith("::") and value[:-2].isalpha()):
        return  # `::` and `a::` are everywhere
    try:
        IPv6Address(value)
    except ValueError:
        return
    zone = _ZONE.match(text, end)
    yield start, zone.end() if zone else end


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _RUN, 2 * _MOST_V6 + 64)


def mask(value: str) -> str:
    """Return the address with only its last part left."""
    if ":" in value:
        return "****:" + re.split("[:.]", value.partition("%")[0])[-1]
    return "*.*.*." + value.rpartition(".")[2]
