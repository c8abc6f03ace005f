"""Web addresses, with a scheme or without, and connection strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..detector import GRAPH, Span, run_start

__all__ = ["find", "mask", "open_from"]

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
"""Ends the sentence around it, not the address."""


def find(text: str) -> Iterator[Span]:
    """Yield the addresses; see `Detector.find`.

    Without a scheme an address begins with `www.` or has a path; `example.com` alone is a name.
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


def open_from(text: str) -> int:
    """See `Detector.open_from`."""
    word = run_start(text, _WORD, len(text))
    start = len(text.rstrip(GRAPH))
    # Beyond ASCII only the rest of an address goes on.
    begun = word < start and ("/" in text[word:start] or "www." in text[word:start].lower())
    return word if begun else start


def mask(value: str) -> str:
    """Return what stands for any address."""
    return "[MASKED_URL]"
