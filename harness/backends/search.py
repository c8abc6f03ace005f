"""Search in files without ripgrep: globs, and regular expressions line by line.

Everything here runs in worker threads and is bounded: results, time, and the size of what is
looked into. Expressions take time linear in a line and let other threads run meanwhile; see
`expressions`. Globs are the dialect of `wcmatch`, hidden files included, as in the policy.
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
from .text import decode
from .text_memory import TextTooLarge

__all__ = ["MAX_LINE", "Budget", "Unhurried", "find_lines", "glob_matcher", "meant"]

SEARCH_SECONDS = 10.0
MAX_LINE = 4_000
"""Characters of a line that are searched."""

T = TypeVar("T")

_FEW_FILES = 1_000
"""So many names are compared with a pattern in less time than a thread costs to matter."""

_MAX_SHOWN = 500
_MAX_GLOB = 1_000
_LITERAL = re.compile(r"[A-Za-z0-9_ ]{3,}")


_REST_AFTER_SECONDS = 0.01
_REST_SECONDS = 0.0001


class Budget:
    """Time budget of a search; `stop` ends it from another thread.

    A search rests for a moment now and then. It looks at many files between other work, and each
    look hands the interpreter over and takes it back at once, sooner than another thread wakes: the
    event loop could wait for seconds.
    """

    def __init__(self, seconds: float | None = None) -> None:
        seconds = SEARCH_SECONDS if seconds is None else seconds
        self._rested = time.monotonic()
        self._deadline = self._rested + seconds
        self._stopped = False

    def stop(self) -> None:
        """End the search at its next look."""
        self._stopped = True

    @property
    def left(self) -> float:
        """Seconds that are left; never quite none, which would mean no limit."""
        return max(0.001, self._deadline - time.monotonic())

    def over(self) -> bool:
        """Whether the search should end now."""
        now = time.monotonic()
        if now - self._rested > _REST_AFTER_SECONDS:
            time.sleep(_REST_SECONDS)
            self._rested = now
        return self._stopped or now > self._deadline


class Unhurried:
    """A test for `Files.glob` whose caller takes what was found in time in place of an error.

    Attributes:
        late: Whether the time was over before everything was looked at.
    """

    def __init__(self, test: PathTest) -> None:
        self._test = test
        self.late = False

    def __call__(self, path: str) -> bool:
        """Whether the file is meant."""
        return self._test(path)


async def meant(
    files: Sequence[tuple[str, T]], pattern: str | PathTest, path: str
) -> list[tuple[str, T]]:
    """Return the files that a pattern or a test means; if that may take long, asked in a thread.

    Args:
        files: Canonical paths, each with what belongs to it.
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

    A pattern without `/` looks at names at any depth; one that starts with `/` at whole paths;
    others at what follows `path`.

    Raises:
        ToolError: The pattern is empty or too long, or its braces expand to too many patterns.
    """
    if not isinstance(pattern, str):
        return pattern
    if not pattern.strip():
        raise ToolError("a glob pattern is needed, such as *.py or docs/**/*.md")
    _require_short(pattern, "glob", _MAX_GLOB)
    from wcmatch import glob  # not needed to start
    from wcmatch._wcparse import PatternLimitException

    flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    try:
        included, excluded = glob.translate(pattern, flags=flags, limit=200)
    except (PatternLimitException, re.error) as error:
        raise ToolError(f"the glob {pattern!r} cannot be used: {error}") from error
    test = _matcher(included, excluded)
    if pattern.startswith("/"):
        return lambda full: test(full) is not None
    if "/" not in pattern:
        return lambda full: test(full.rpartition("/")[2]) is not None
    start = len(path.rstrip("/")) + 1
    return lambda full: test(full[start:]) is not None


def _require_short(pattern: str, what: str, most: int) -> None:
    if len(pattern) > most:
        raise ToolError(
            f"the {what} {pattern[:50]!r}… cannot be used: it has {len(pattern)} characters, and "
            f"the bound is {most}. Nothing was searched; use a shorter one, or several in turn."
        )


def _matcher(
    included: Sequence[str], excluded: Sequence[str]
) -> Callable[[str], re.Match[str] | None]:
    """Return what matches any of the first expressions and none of the others, in one go."""
    anywhere = "|".join(f"(?:{settled(one)})" for one in included)
    nowhere = "".join(f"(?!{settled(one)})" for one in excluded)
    return re.compile(f"{nowhere}(?:{anywhere})").match


def _required(expression: Expression) -> bytes | None:
    """Return ASCII text that every match contains, if the expression shows one at a glance."""
    if expression.ignore_case or re.search(r"[|(\[\\{]", expression.text):
        return None
    # The last character may be made optional by what follows it, so it is left out.
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

    Binary files, those too large as text, and those whose bytes are None, are left out. Lines are
    searched as if they ended after `MAX_LINE` characters; those longer than 500 come back cut
    around the match.
    """
    matches: list[GrepMatch] = []
    required = _required(expression)
    part = required.decode() if required else ""
    for path, read in documents:
        if budget.over():
            return Page(matches, truncated=True)
        data = text = line = None  # those of the file before may be large
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
