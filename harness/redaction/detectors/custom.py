"""Custom detectors: your regular expression or function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import regex

from ...errors import AgentBuildError, MiddlewareError
from .. import Span

__all__ = ["Boundary", "CallableDetector", "Finder", "RegexDetector", "inside", "within"]

Finder: TypeAlias = Callable[[str], Iterable[Any]]
"""A function that returns the matches in a text: `(start, end)` pairs, or objects or mappings
with `start` and `end`."""

Boundary: TypeAlias = Literal["word", "line", "end"]
"""Boundary that no match crosses: white space, a line break, or only the end of the text. Streams
hold text back until they reach one."""

_SECONDS = 0.25
"""Maximum time for one text, in seconds."""

_SLOW_SECONDS = 1.0
_REGAINED = 0.1
"""Time budget for slow texts: its size in seconds, and how much of it each second gives back."""

_SURE_SECONDS = 0.005
_SURE_CHARS = 1_000_000
"""Every text gets `_SURE_SECONDS`, and a second more for this many characters."""

_BEYOND = regex.compile(
    r"\\(?![dwSbBmMhZ ]|[1-9](?![0-9]))|\n|\[\^|\[:|\(\?[a-zA-Z]*[sx]|\{[^}]*[a-zA-Z]"
)
"""Parts of a pattern (without its plain escapes) that may match a line break. Unknown escapes and
fuzzy counts are included."""

_PLACES = regex.compile(r"[$^]")
"""Anchors for the start and end of a text, or of a line with the flag `m`."""

_MULTILINE = regex.compile(r"\(\?[a-zA-Z]*m[a-zA-Z]*\)")
_CLASS = regex.compile(r"\[[^]]*\]")
_RANGE = regex.compile(r"(?s)(?=(.)-(.))")
_CODE = regex.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([afnrtv]))")
_NAMED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SPACE = regex.compile(r"(?r)\s")
_SPACES = tuple(regex.findall(r"\s", "".join(map(chr, range(0x3001)))))


class RegexDetector:
    """Detector with a regular expression of the `regex` package, a superset of `re`.

    If matching takes longer than 0.25 s, the whole text counts as one match, because its content
    is unknown. Slow texts share a time budget of one second, which regains 0.1 s each second. Once
    it is used up, a text gets only 5 ms plus a second for each million characters. So many slow
    texts cannot delay other runs: they are replaced as a whole or, with `block`, refused.

    Args:
        pattern: The expression; the whole match is replaced.

    Raises:
        AgentBuildError: The pattern is not a valid regular expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = regex.compile(pattern)
        except regex.error as error:
            raise AgentBuildError(
                f"detector={pattern!r} is not a regular expression: {error}"
            ) from error
        if self._pattern.match(""):
            raise AgentBuildError(f"detector={pattern!r} matches nothing at all; let it match text")
        self._boundary: Boundary = _boundary(pattern)
        self._slow = _SLOW_SECONDS
        self._looked = time.monotonic()

    def find(self, text: str) -> Iterator[Span]:
        """Yield the matches; see `Detector.find`."""
        sure = min(_SECONDS, _SURE_SECONDS + len(text) / _SURE_CHARS)
        started = time.monotonic()
        self._slow = min(_SLOW_SECONDS, self._slow + (started - self._looked) * _REGAINED)
        self._looked = started
        seconds = max(sure, min(_SECONDS, self._slow))
        try:
            spans = [one.span() for one in self._pattern.finditer(text, timeout=seconds)]
        except TimeoutError:
            spans = [(0, len(text))]
        self._slow -= max(0.0, time.monotonic() - started - sure)
        yield from (span for span in spans if span[0] < span[1])

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)


class CallableDetector:
    """Detector that calls a function.

    Args:
        function: The function; it must not be async. It gets whole texts, or parts of streams up
            to a boundary.
        boundary: Boundary that no match crosses.
    """

    def __init__(self, function: Finder, *, boundary: Boundary = "end") -> None:
        self._function = function
        self._boundary: Boundary = boundary

    def find(self, text: str) -> Iterator[Span]:
        """Yield the matches; see `Detector.find`.

        Raises:
            MiddlewareError: The function did not return a list of matches in the text.
        """
        for one in self._function(text):
            start, end = _span(one)
            if inside(text, start, end):
                yield start, end

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)


def inside(text: str, start: int, end: int) -> bool:
    """Return whether a detector's match is not empty.

    Raises:
        MiddlewareError: The match is outside the text.
    """
    if not 0 <= start <= end <= len(text):
        raise MiddlewareError(
            f"a detector found {start} to {end} in a text of {len(text)} characters; nothing was "
            "let through. It must return places in the text it is given"
        )
    return start < end


def within(boundary: Boundary, text: str) -> int:
    """Return the start of the last part of a text, which more text could continue."""
    if boundary == "end":
        return 0
    if boundary == "line":
        return text.rfind("\n") + 1
    space = _SPACE.search(text)
    return space.end() if space else 0


def _boundary(pattern: str) -> Boundary:
    """Return a boundary that matches of the expression can never cross."""
    plain = _CODE.sub(_decoded, regex.sub(r"\\[^\w\s]", "_", pattern))
    if _BEYOND.search(plain):
        return "end"
    if _PLACES.search(_CLASS.sub("", plain)) and not _MULTILINE.search(plain):
        return "end"
    ranges = [one.groups() for one in _RANGE.finditer(plain)]
    among = [char for char in _SPACES if any(low <= char <= high for low, high in ranges)]
    if "\n" in among:
        return "end"
    spaces = among or any(char in plain for char in (*_SPACES, ".", r"\h", r"\Z"))
    return "line" if spaces else "word"


def _decoded(code: regex.Match[str]) -> str:
    """Return the character of an escape sequence."""
    if code[4]:
        return _NAMED[code[4]]
    digits = code[1] or code[2] or code[3]
    return chr(min(int(digits, 16), 0x10FFFF))


def _span(one: Any) -> Span:
    try:
        if hasattr(one, "keys"):
            return int(one["start"]), int(one["end"])
        if hasattr(one, "start"):
            return int(one.start), int(one.end)
        start, end = one
        return int(start), int(end)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MiddlewareError(
            f"a detector returned {type(one).__name__}; nothing was let through. It must return "
            "(start, end) pairs, or objects or mappings with start and end"
        ) from error
