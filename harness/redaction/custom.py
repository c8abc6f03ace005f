"""Detectors of one's own: a regular expression, or a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import regex

from harness.errors import AgentBuildError, MiddlewareError
from harness.redaction.detector import Span

__all__ = ["Boundary", "CallableDetector", "Finder", "RegexDetector", "within"]

Finder: TypeAlias = Callable[[str], Iterable[Any]]
"""A function that returns the matches in a text: `(start, end)` pairs, or objects or mappings
with `start` and `end`."""

Boundary: TypeAlias = Literal["word", "line", "end"]
"""What no match goes beyond: white space, a line break, or only the end of the text. Streams wait
for it."""

_SECONDS = 0.25
"""For one text at most."""

_SLOW_SECONDS = 1.0
_REGAINED = 0.1
"""For slow texts together: this long at once, and this long more for every second."""

_SURE_SECONDS = 0.005
_SURE_CHARS = 1_000_000
"""What every text gets: this long, and a second for so many characters."""

_LINES = regex.compile(r"\\[sWDnrvXRPp]|\[\^|\n|\[:|\(\?[a-zA-Z]*[sx]")
"""In a pattern, what may match a line break."""

_SPACES = regex.compile(r"[ \t.]|\\[thZ]|\\x|\\u|\\N")
"""In a pattern, what may match other white space."""


class RegexDetector:
    """Matches a regular expression of the `regex` package, which is `re` with more.

    A text that takes the expression longer than 0.25 s counts as one match: nobody knows what is
    in it. So does, once texts have kept it busy for a second, any that takes it longer than 5 ms
    and a second for each million characters; each second that passes allows 0.1 s more. Many slow
    texts thus cannot hold up other runs: they are replaced as a whole or, with `block`, refused.

    Args:
        pattern: The expression; the whole match is what is replaced.

    Raises:
        AgentBuildError: It is no expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = regex.compile(pattern)
        except regex.error as error:
            raise AgentBuildError(
                f"detector={pattern!r} is no regular expression: {error}"
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
    """Matches what a function finds.

    Args:
        function: The function; plain, not async. It gets whole texts, and parts of streams up to
            a boundary.
        boundary: What none of its matches goes beyond.
    """

    def __init__(self, function: Finder, *, boundary: Boundary = "end") -> None:
        self._function = function
        self._boundary: Boundary = boundary

    def find(self, text: str) -> Iterator[Span]:
        """Yield the matches; see `Detector.find`.

        Raises:
            MiddlewareError: What the function returned is no list of matches in the text.
        """
        for one in self._function(text):
            start, end = _span(one)
            if not 0 <= start <= end <= len(text):
                raise MiddlewareError(
                    f"a detector found {start} to {end} in a text of {len(text)} characters; "
                    "nothing was let through. It must return places in the text it is given"
                )
            if start < end:
                yield start, end

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)


def within(boundary: Boundary, text: str) -> int:
    """Return where the part of a text begins that goes on beyond its end."""
    if boundary == "end":
        return 0
    if boundary == "line":
        return text.rfind("\n") + 1
    return len(text) - len(text.rsplit(None, 1)[-1]) if text[-1:].strip() else len(text)


def _boundary(pattern: str) -> Boundary:
    """Return what the matches of an expression certainly do not go beyond."""
    plain = regex.sub(r"\\\\|\\\.", "", pattern)
    if _LINES.search(plain):
        return "end"
    return "line" if _SPACES.search(plain) else "word"


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
