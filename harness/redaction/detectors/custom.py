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

_BEYOND = regex.compile(
    r"\\(?![dwSbBmMhZ ]|[1-9](?![0-9]))|\n|\[\^|\[:|\(\?[a-zA-Z]*[sx]|\{[^}]*[a-zA-Z]"
)
"""In a pattern without its plain escapes, what may match a line break: also escapes that nothing is
known of, and counts of errors that a match may have."""

_PLACES = regex.compile(r"[$^]")
"""What depends on where a text begins or ends, unless `m` makes it depend on lines."""

_MULTILINE = regex.compile(r"\(\?[a-zA-Z]*m[a-zA-Z]*\)")
_CLASS = regex.compile(r"\[[^]]*\]")
_RANGE = regex.compile(r"(?s)(?=(.)-(.))")
_CODE = regex.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([afnrtv]))")
_NAMED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SPACE = regex.compile(r"(?r)\s")
_SPACES = tuple(regex.findall(r"\s", "".join(map(chr, range(0x3001)))))


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
            if inside(text, start, end):
                yield start, end

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)


def inside(text: str, start: int, end: int) -> bool:
    """Return whether a detector's match is one: an empty one is none.

    Raises:
        MiddlewareError: It is not in the text.
    """
    if not 0 <= start <= end <= len(text):
        raise MiddlewareError(
            f"a detector found {start} to {end} in a text of {len(text)} characters; nothing was "
            "let through. It must return places in the text it is given"
        )
    return start < end


def within(boundary: Boundary, text: str) -> int:
    """Return where the part of a text begins that continues beyond its end."""
    if boundary == "end":
        return 0
    if boundary == "line":
        return text.rfind("\n") + 1
    space = _SPACE.search(text)
    return space.end() if space else 0


def _boundary(pattern: str) -> Boundary:
    """Return what the matches of an expression certainly do not go beyond."""
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
    """Return the character that an escape stands for."""
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
