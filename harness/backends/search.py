"""Search in files without ripgrep: globs, and regular expressions line by line.

Everything here runs in worker threads, with limits for results, time, and file sizes. Expressions
take time linear in a line and let other threads run meanwhile; see `expressions`. Globs have the
dialect of `wcmatch`, hidden files included, as in the policy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import anyio.to_thread

from .._internal.patterns import settled
from ..errors import ToolError
from .base import GrepMatch, Page, PathTest
from .expressions import Expression
from .text import TextTooLarge, decode

__all__ = [
    "MAX_LINE",
    "Budget",
    "Named",
    "Unhurried",
    "find_lines",
    "glob_matcher",
    "meant",
    "names_of",
]

SEARCH_SECONDS = 10.0
MAX_LINE = 4_000
"""Characters of a line that are searched."""

T = TypeVar("T")

_FEW_FILES = 1_000
"""For up to this many names, comparing in a thread would cost more than it saves."""

_MAX_SHOWN = 500
_MAX_GLOB = 1_000
_ANY_DIRECTORY = "**/"
_SIMPLE_NAMES = re.compile(r"\*?[\w.-]*(?:\{[\w-]+(?:,[\w-]+)+\})?", re.ASCII)
_LITERAL = re.compile(r"[A-Za-z0-9_ ]{3,}")


_REST_AFTER_SECONDS = 0.01
_REST_SECONDS = 0.0001


class Budget:
    """Time budget of a search; `stop` ends it from another thread.

    A search pauses for a moment now and then. Each file access releases the interpreter and takes
    it back at once, before another thread wakes up, so the event loop could otherwise wait for
    seconds.
    """

    def __init__(self, seconds: float | None = None) -> None:
        seconds = SEARCH_SECONDS if seconds is None else seconds
        self._rested = time.monotonic()
        self._deadline = self._rested + seconds
        self._stopped = False

    def stop(self) -> None:
        """End the search at its next check."""
        self._stopped = True

    @property
    def left(self) -> float:
        """Seconds that are left; never 0, which would mean no limit."""
        return max(0.001, self._deadline - time.monotonic())

    def over(self) -> bool:
        """Whether the search should end now."""
        now = time.monotonic()
        if now - self._rested > _REST_AFTER_SECONDS:
            time.sleep(_REST_SECONDS)
            self._rested = now
        return self._stopped or now > self._deadline


class Unhurried:
    """A test for `Files.glob` that accepts partial results instead of an error if time runs out.

    Attributes:
        late: Whether time ran out before everything was searched.
    """

    def __init__(self, test: PathTest) -> None:
        self._test = test
        self.late = False

    def __call__(self, path: str) -> bool:
        """Whether the file matches."""
        return self._test(path)


class Named:
    """A test of paths that also knows a glob for the file names.

    Attributes:
        names: The glob; see `names_of`.
    """

    def __init__(self, test: PathTest, names: str | None) -> None:
        self._test = test
        self.names = names

    def __call__(self, path: str) -> bool:
        """Whether the file matches."""
        return self._test(path)


def names_of(pattern: str | PathTest | None) -> str | None:
    """Return a glob that fits the names of all files that a pattern or a test matches.

    It is so simple that every program understands it in the same way; None if there is none.
    """
    if not isinstance(pattern, str):
        return getattr(pattern, "names", None)
    name = pattern.removeprefix(_ANY_DIRECTORY)
    return name if name and _SIMPLE_NAMES.fullmatch(name) else None


async def meant(
    files: Sequence[tuple[str, T]], pattern: str | PathTest, path: str
) -> list[tuple[str, T]]:
    """Return the files that match a pattern or a test; uses a thread if that may take long.

    Args:
        files: Canonical paths, each with its data.
        pattern: As for `glob_matcher`.
        path: Likewise.

    Raises:
        ToolError: As for `glob_matcher`.
    """
    test = glob_matcher(pattern, path)

    def judge() -> list[tuple[str, T]]:
        return [one for one in files if test(one[0])]

    if isinstance(pattern, str) and len(files) <= _FEW_FILES:
        return judge()
    return await anyio.to_thread.run_sync(judge, abandon_on_cancel=True)


def glob_matcher(pattern: str | PathTest, path: str) -> PathTest:
    """Return a test of canonical paths below `path`; a test is returned as it is.

    A pattern without `/` is compared with names at any depth, and so is `**/NAME`; one that starts
    with `/`, with whole paths; others, with the part after `path`.

    Raises:
        ToolError: The pattern is empty or too long, or its braces expand to too many patterns.
    """
    if not isinstance(pattern, str):
        return pattern
    if not pattern.strip():
        raise ToolError("a glob pattern is needed, such as *.py or docs/**/*.md")
    if len(pattern) > _MAX_GLOB:
        raise ToolError(
            f"the glob {pattern[:50]!r}… cannot be used: it has {len(pattern)} characters, and the "
            f"limit is {_MAX_GLOB}. Nothing was searched. Use a shorter one, or search several "
            "times."
        )
    from wcmatch import glob  # not needed to start
    from wcmatch._wcparse import PatternLimitException

    name = pattern.removeprefix(_ANY_DIRECTORY)
    by_name = bool(name) and "/" not in name  # four times as fast as `**` on a path
    flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    try:
        included, excluded = glob.translate(name if by_name else pattern, flags=flags, limit=200)
    except (PatternLimitException, re.error) as error:
        raise ToolError(f"the glob {pattern!r} cannot be used: {error}") from error
    test = _matcher(included, excluded)
    if by_name:
        return lambda full: test(full.rpartition("/")[2]) is not None
    if pattern.startswith("/"):
        return lambda full: test(full) is not None
    start = len(path.rstrip("/")) + 1
    return lambda full: test(full[start:]) is not None


def _matcher(
    included: Sequence[str], excluded: Sequence[str]
) -> Callable[[str], re.Match[str] | None]:
    """Return a single test: matches any of the first expressions and none of the others."""
    anywhere = "|".join(f"(?:{settled(one)})" for one in included)
    nowhere = "".join(f"(?!{settled(one)})" for one in excluded)
    return re.compile(f"{nowhere}(?:{anywhere})").fullmatch


def _required(expression: Expression) -> bytes | None:
    """Return ASCII text that every match contains, if the expression shows one at a glance."""
    if expression.ignore_case or re.search(r"[|(\[\\{]", expression.text):
        return None
    # The next element may make the last character optional, so it is left out.
    found = [match[0][:-1] for match in _LITERAL.finditer(expression.text)]
    return max(found, key=len).encode() if found else None


def _shown(line: str, place: int) -> str:
    """Return a long line cut around a place in its match."""
    if len(line) <= _MAX_SHOWN:
        return line
    start = max(0, min(place - 100, len(line) - _MAX_SHOWN))
    end = start + _MAX_SHOWN
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def find_lines(
    documents: Iterable[tuple[str, Callable[[], bytes | None]]],
    expression: Expression,
    limit: int,
    budget: Budget,
) -> Page:
    """Return matching lines of text files, in the documents' order.

    Binary files, files that are too large as text, and files with None for bytes are left out.
    Lines are searched as if they ended after `MAX_LINE` characters; lines longer than 500 are
    returned cut around the match.
    """
    matches: list[GrepMatch] = []
    required = _required(expression)
    part = required.decode() if required else ""
    for path, read in documents:
        if budget.over():
            return Page(matches, truncated=True)
        data = text = line = None  # the lines of the previous file may be large
        data = read()
        if data is None or (required and required not in data and data[:1] not in b"\xff\xfe"):
            continue
        try:
            text, data = decode(data), None
        except TextTooLarge:
            continue
        if text is None:
            continue
        for number, line in text.lines_with(part) if part else enumerate(text.lines(), start=1):
            if budget.over():
                return Page(matches, truncated=True)
            place = expression.find(line[:MAX_LINE])
            if place is not None:
                if len(matches) == limit:
                    return Page(matches, truncated=True)
                matches.append(GrepMatch(path, number, _shown(line, place)))
    return Page(matches)
