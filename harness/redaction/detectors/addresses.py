"""Detectors for addresses: email, web, IP and MAC.

Email addresses may contain non-ASCII letters. Web addresses are found with and without a scheme;
connection strings count, too. IP addresses are version 4 or 6, with ports, prefixes and zones. MAC
addresses are six or eight bytes with `:` or `-`, or three groups with dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address

from .. import GRAPH, Span, run_start

__all__ = [
    "find_email",
    "find_ip",
    "find_mac",
    "find_url",
    "mask_email",
    "mask_ip",
    "mask_mac",
    "mask_url",
    "open_email",
    "open_ip",
    "open_mac",
    "open_url",
]


_MOST = 320
"""Maximum length of an email address: a local part of 64 characters, `@`, a domain of 255."""

_LOCAL = re.compile(r"[\w.%+-]*")
_DOMAIN = re.compile(r"@(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,63}")
_EMAIL_RUN = re.compile(r"[\w.%+@-]*")


def find_email(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`."""
    if "@" not in text:
        return
    for domain in _DOMAIN.finditer(text):
        at = domain.start()
        before = text[max(0, at - _MOST) : at]
        start = at - len(before) + run_start(before, _LOCAL, _MOST)
        if start < at:
            yield start, domain.end()


def open_email(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _EMAIL_RUN, 2 * _MOST)


def mask_email(value: str) -> str:
    """Return the address with its domain hidden: `ann@****.org`."""
    local, _, domain = value.partition("@")
    return f"{local}@****.{domain.rpartition('.')[2]}"


_SPACE = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f\u2060\u3000\ufeff"
_REST = rf"[^{_SPACE}<>\"{{}}|\\^`\[\]]"
_WORD = re.compile(rf"[^{_SPACE}]*")
_SCHEME = re.compile(
    r"(?:https?|ftps?|sftp|wss?|ssh|git|file|s3|postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?"
    rf"|rediss?|amqps?|smtps?|ldaps?)://(?:{_REST}|\[[0-9A-Fa-f:.]+\])+",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"(?<![\w@.-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,10}[a-z]{2,63}"
    rf"(?::[0-9]{{1,5}})?(?:/{_REST}*)?",
    re.IGNORECASE | re.ASCII,
)
_AFTER = ".,;:!?'\")*"
"""Characters at the end that belong to the sentence, not to the address."""


def find_url(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`.

    An address without a scheme must begin with `www.` or have a path: `example.com` alone is only
    a name.
    """
    if "://" in text:
        for one in _SCHEME.finditer(text):
            yield one.start(), one.start() + len(one[0].rstrip(_AFTER))
    if "/" not in text and "www." not in text.lower():
        return
    for one in _BARE.finditer(text):
        value = one[0]
        if "/" in value or value[:4].lower() == "www.":
            yield one.start(), one.start() + len(value.rstrip(_AFTER))


def open_url(text: str) -> int:
    """See `Detector.open_from`."""
    word = run_start(text, _WORD, len(text))
    start = len(text.rstrip(GRAPH))
    # Non-ASCII characters can only continue an address that has begun.
    begun = word < start and ("/" in text[word:start] or "www." in text[word:start].lower())
    return word if begun else start


def mask_url(value: str) -> str:
    """Return the replacement for any address."""
    return "[MASKED_URL]"


_V4 = re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w]|\.[0-9])", re.ASCII)
_V6 = re.compile(r"[0-9A-Fa-f:.]+")
_ZONE = re.compile(r"%[A-Za-z0-9._-]{1,32}")
_IP_WORD = re.compile(r"\w", re.ASCII)
_IP_RUN = re.compile(r"[\w:.%-]*", re.ASCII)
_MOST_V6 = 80
"""Maximum length of a version 6 address, including the characters around it."""


def find_ip(text: str) -> Iterator[Span]:
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
    """Yield the address in a run of address characters; labels and ports may touch it."""
    if start and _IP_WORD.match(text[start - 1]):  # a label: `ip:fe80::1`
        start = text.index(":", start, end) + 1
    if end < len(text) and _IP_WORD.match(text[end]):
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
        return  # `::` and `a::` are too common in code
    try:
        IPv6Address(value)
    except ValueError:
        return
    zone = _ZONE.match(text, end)
    yield start, zone.end() if zone else end


def open_ip(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _IP_RUN, 2 * _MOST_V6 + 64)


def mask_ip(value: str) -> str:
    """Return the address with only its last part left."""
    if ":" in value:
        return "****:" + re.split("[:.]", value.partition("%")[0])[-1]
    return "*.*.*." + value.rpartition(".")[2]


_HEX = "[0-9A-Fa-f]"
_PAIRS = re.compile(
    rf"(?<!{_HEX})(?<!\b{_HEX}{{2}}[:-]){_HEX}{{2}}([:-])(?:{_HEX}{{2}}\1){{4}}"
    rf"(?:{_HEX}{{2}}\1{_HEX}{{2}}\1)?{_HEX}{{2}}(?!\1?{_HEX})",
    re.ASCII,
)
_QUADS = re.compile(rf"(?<![\w.]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?![\w]|\.{_HEX})", re.ASCII)
_MAC_RUN = re.compile(r"[\w:.-]*", re.ASCII)


def find_mac(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`."""
    for pattern in (_PAIRS, _QUADS):
        for one in pattern.finditer(text):
            yield one.span()


def open_mac(text: str) -> int:
    """See `Detector.open_from`."""
    return run_start(text, _MAC_RUN, 120)


def mask_mac(value: str) -> str:
    """Return the address with only its last byte left."""
    separator = next((one for one in value if one in ":-."), ":")
    return separator.join(["**"] * 5 + [value[-2:]])
