"""Detectors for API keys, tokens and private key blocks.

A key is recognised by its issuer's prefix, or as a random value whose name says that it is a key.
A private key block without an end line extends to the end of the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from .. import GRAPH, Span

__all__ = [
    "find_api_key",
    "find_private_key",
    "mask_private_key",
    "open_api_key",
    "open_private_key",
]


_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-ant-[A-Za-z0-9_-]{16,}"  # Anthropic
    r"|sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}"  # OpenAI and those like it
    r"|gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}"  # Google
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"  # Slack
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}"  # Stripe
    r"|glpat-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,}"
    r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}"  # JSON web tokens
    r")"
)
_CALLED = re.compile(
    r"(?:api[_-]?key|apikey|secret(?:[_-]?(?:access[_-]?)?key)?|access[_-]?(?:key|token)"
    r"|auth(?:[_-]?token|orization)?|client[_-]?secret|private[_-]?key|token|bearer|passw(?:or)?d"
    r"|pwd)[\"']?(?:[ \t]{0,3}(?:=>|:=|[:=])[ \t]{0,3}|[ \t]{1,3})(?:(?:bearer|basic)[ \t]{1,3})?"
    r"[\"']?([A-Za-z0-9_~+/=.!@#$%^&*?-]{12,})",
    re.IGNORECASE,
)
_LEAST_BITS = 3.0


def find_api_key(text: str) -> Iterator[Span]:
    """Yield the keys; see `Detector.find`. A value found by its name must also look random."""
    for one in _SHAPES.finditer(text):
        yield one.span()
    for one in _CALLED.finditer(text):
        if _is_random(one[1].rstrip(".,;!?")):
            yield one.span(1)


def _is_random(value: str) -> bool:
    """Return whether a value looks random: letters and digits, and high entropy."""
    if len(value) < 12 or value.isalpha() or not any(one.isalpha() for one in value):
        return False
    if not any(one.isdigit() for one in value):
        return False
    sample = value[:256]
    counts = Counter(sample).values()
    bits = -sum(n / len(sample) * math.log2(n / len(sample)) for n in counts)
    return bits >= _LEAST_BITS


def open_api_key(text: str) -> int:
    """See `Detector.open_from`."""
    return len(text.rstrip(GRAPH))


_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BEGUN = re.compile(r"-(?:-{0,4}|-{4}[A-Z0-9 ]{1,110}-{0,5})\Z")
_MOST = 130


def find_private_key(text: str) -> Iterator[Span]:
    """Yield the blocks; see `Detector.find`."""
    begin = _BEGIN.search(text) if "-----BEGIN " in text else None
    while begin is not None:
        end = _END.search(text, begin.end())
        yield begin.start(), end.end() if end else len(text)
        begin = _BEGIN.search(text, end.end()) if end else None


def open_private_key(text: str) -> int:
    """See `Detector.open_from`."""
    last = 0
    while begin := _BEGIN.search(text, last):
        end = _END.search(text, begin.end())
        if end is None:
            return begin.start()
        last = end.end()
    begun = _BEGUN.search(text, max(last, len(text) - _MOST))
    return begun.start() if begun else len(text)


def mask_private_key(value: str) -> str:
    """Return the replacement for any block."""
    return "[MASKED_PRIVATE_KEY]"
