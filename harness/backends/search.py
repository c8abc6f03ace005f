"""Search in files without ripgrep: globs, and regular expressions line by line.

Everything here runs in worker threads and is bounded: results, time, and the size of what is
looked into. Globs are the dialect of `wcmatch`, hidden files included, as in the policy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

from wcmatch import glob as wcglob
from wcmatch._wcparse import PatternLimitException

from harness.backends.base import GrepMatch, Page
from harness.backends.text import decode
from harness.errors import ToolError

__all__ = ["MAX_LINE", "Budget", "find_lines", "glob_matcher", "line_pattern"]

SEARCH_SECONDS = 10.0
MAX_LINE = 4_000
"""Characters of a line that are searched."""

_MAX_SHOWN = 500
_GLOB_FLAGS = wcglob.GLOBSTAR | wcglob.BRACE | wcglob.DOTGLOB | wcglob.FORCEUNIX | wcglob.CASE
_REPEAT = re.compile(r"[*+]|\{\d*,(\d{2,})?\}|\{\d{2,}\}")
_LITERAL = re.compile(r"[A-Za-z0-9_ ]{3,}")


class Budget:
    """How long a search may go on; `stop` ends it from another thread."""

    def __init__(self, seconds: float = SEARCH_SECONDS) -> None:
        self._deadline = time.monotonic() + seconds
        self._stopped = False

    def stop(self) -> None:
        """End the search at its next look."""
        self._stopped = True

    def over(self) -> bool:
        """Whether the search should end now."""
        return self._stopped or time.monotonic() > self._deadline


def glob_matcher(pattern: str, path: str) -> Callable[[str], bool]:
    """Return a test of canonical paths below `path`.

    A pattern without `/` looks at names at any depth; one that starts with `/` at whole paths;
    others at what follows `path`.

    Raises:
        ToolError: The pattern is empty, or its braces expand to too many patterns.
    """
    if not pattern.strip():
        raise ToolError("a glob pattern is needed, such as *.py or docs/**/*.md")
    try:
        included, excluded = wcglob.translate(pattern, flags=_GLOB_FLAGS, limit=200)
    except (PatternLimitException, re.error) as error:
        raise ToolError(f"the glob {pattern!r} cannot be used: {error}") from error
    tests = [re.compile(expression).match for expression in included]
    refused = [re.compile(expression).match for expression in excluded]

    def test(text: str) -> bool:
        return any(one(text) for one in tests) and not any(one(text) for one in refused)

    if pattern.startswith("/"):
        return test
    if "/" not in pattern:
        return lambda full: test(full.rpartition("/")[2])
    start = len(path.rstrip("/")) + 1
    return lambda full: test(full[start:])


def line_pattern(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Return the compiled expression.

    Raises:
        ToolError: It is not valid, or repeats a group in a way that can take for ever.
    """
    if not pattern:
        raise ToolError("grep needs an expression, such as TODO or def \\w+")
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"{pattern!r} is not a valid regular expression: {error}. To look for the text as it "
            f"is, use {re.escape(pattern)!r}."
        ) from error
    if _repeats_a_choice(pattern):
        raise ToolError(
            f"{pattern!r} repeats a group that itself repeats or chooses, such as (a+)+ or "
            "(a|b)*, which can take for ever. Use a character class, as in [ab]*, or repeat the "
            "group a fixed number of times."
        )
    return compiled


def _repeats_a_choice(pattern: str) -> bool:
    """Whether a repeat is applied to a group with a repeat or a choice inside."""
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    risky = [False]
    for place, char in enumerate(plain):
        if char == "(":
            risky.append(False)
        elif char == ")" and len(risky) > 1:
            inside = risky.pop()
            repeated = _repeats(plain, place + 1)
            if inside and repeated:
                return True
            risky[-1] |= inside or repeated
        elif char == "|" or _repeats(plain, place):
            risky[-1] = True
    return False


def _repeats(plain: str, place: int) -> bool:
    return _REPEAT.match(plain, place) is not None


def _required(pattern: re.Pattern[str]) -> bytes | None:
    """Return ASCII text that every match contains, if the expression shows one at a glance."""
    if pattern.flags & re.IGNORECASE or re.search(r"[|(\[\\{]", pattern.pattern):
        return None
    # The last character may be made optional by what follows it, so it is left out.
    found = [match[0][:-1] for match in _LITERAL.finditer(pattern.pattern)]
    return max(found, key=len).encode() if found else None


def _shown(line: str, match: re.Match[str]) -> str:
    """Return a long line cut around its match."""
    if len(line) <= _MAX_SHOWN:
        return line
    start = max(0, min(match.start() - 100, len(line) - _MAX_SHOWN))
    end = start + _MAX_SHOWN
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def find_lines(
    documents: Iterable[tuple[str, Callable[[], bytes | None]]],
    pattern: re.Pattern[str],
    limit: int,
    budget: Budget,
) -> Page:
    """Return matching lines of text files, in the documents' order.

    Binary files, and those whose bytes are None, are left out. Lines are searched as if they
    ended after `MAX_LINE` characters; those longer than 500 come back cut around the match.
    """
    matches: list[GrepMatch] = []
    required = _required(pattern)
    for path, read in documents:
        if budget.over():
            return Page(matches, truncated=True)
        data = read()
        if data is None or (required and required not in data and data[:1] not in b"\xff\xfe"):
            continue
        text = decode(data)
        if text is None:
            continue
        for number, line in enumerate(text.lines, start=1):
            match = pattern.search(line, 0, MAX_LINE)
            if match is not None:
                if len(matches) == limit:
                    return Page(matches, truncated=True)
                matches.append(GrepMatch(path, number, _shown(line, match)))
            elif number % 1_000 == 0 and budget.over():
                return Page(matches, truncated=True)
    return Page(matches)
