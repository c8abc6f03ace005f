"""Ignored files: applies `.gitignore` files, in any backend.

The rules are Git's: the last matching line decides, nearer files take precedence over those further
up, and files in an ignored directory cannot be included again. The root of the files counts as the
top of the repository.

Anybody may have written the rules, so their number and time are limited, and they are read in
worker threads. The answer mentions everything that a limit left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import anyio.to_thread

from .._internal.records import record
from .base import FileError, Files, PathTest
from .expressions import _MOST_CHARS, gitignore_expression
from .search import Budget, glob_matcher, names_of
from .text import TextTooLarge, decode

__all__ = ["Unignored", "without_ignored"]

_NAME = ".gitignore"
_MOST_FILES = 20_000
_MOST_RULES_OF_A_FILE = 1_000
_MOST_RULES = 5_000
_READING_SECONDS = 5.0
_JUDGING_SECONDS = 5.0
_RULES_BETWEEN_LOOKS = 32
"""How many rules are tried between two checks of the clock."""

_TRIMMED = re.compile(r"((?:\\.|[^\\ ]| +(?=[^ ]))*) *", re.DOTALL)
"""A line, with a group for the part before trailing spaces; escaped spaces belong to the part."""


@record
class _Rule:
    """A line of a `.gitignore` file."""

    fits: Callable[[str], re.Match[str] | None]
    ignores: bool
    only_directories: bool


@record
class _Directory:
    """A directory that was judged.

    Attributes:
        ignored: Whether it, or a directory above it, is ignored.
        path: The nearest directory, itself included, with a `.gitignore` file.
        rules: The rules of that file; empty if there is no such directory.
        above: The directory above `path`.
    """

    ignored: bool
    path: str = ""
    rules: Sequence[_Rule] = ()
    above: _Directory | None = None


class Unignored:
    """A test of paths: true for files that fit and are not ignored.

    Only one thread may use it at a time.

    Attributes:
        late: Whether the rules took so long that files were left out unchecked.
        partly: Whether there were more rules than the limit.
        names: See `names_of`.
    """

    def __init__(self, ignored: _Ignored, partly: bool, fits: PathTest) -> None:
        self.names: str | None = None
        self._ignored = ignored
        self._fits = fits
        self._kept: dict[str, bool] = {}
        self._left = _JUDGING_SECONDS
        self.late = False
        self.partly = partly

    def __call__(self, path: str) -> bool:
        """Whether the file matches; False for all new files once the time is used up."""
        if not self._fits(path):
            return False
        kept = self._kept.get(path)  # a search may start again to find more
        if kept is None:
            kept = self._kept[path] = self._judged(path)
        return kept

    def _judged(self, path: str) -> bool:
        if self._left <= 0:
            self.late = True
            return False
        begun = time.monotonic()
        try:
            return not self._ignored.file(path, begun + self._left)
        except _OutOfTime:
            self.late = True
            return False
        finally:
            self._left -= time.monotonic() - begun


async def without_ignored(files: Files, path: str, pattern: str) -> Unignored:
    """Return a test of the files below `path`: true for those that fit a glob and are not ignored.

    Files in `.git` are ignored. `.gitignore` files that are unreadable, or in an ignored directory,
    have no effect. The limits are 1,000 rules of each file, 5,000 in all, and five seconds for
    reading them.

    Args:
        files: The files, also those with the rules.
        path: A canonical path.
        pattern: A glob as for `glob_matcher`, or empty for all files.

    Raises:
        FileError: The path is wrong.
        ToolError: The pattern is wrong.
    """
    fits = glob_matcher(pattern or "*", path)
    places = [f"{above}/{_NAME}" for above in _directories(path)]
    try:
        found = await files.glob(_NAME, path, limit=_MOST_FILES)
    except FileError as error:
        if error.code != "not_a_directory":
            raise
        found = ()
    below = sorted({one.path for one in found} - {*places})
    ignored = _Ignored()
    budget = Budget(_READING_SECONDS)
    partly = len(found) == _MOST_FILES
    try:
        for place in [*places, *sorted(below, key=lambda one: one.count("/"))]:
            if budget.over():
                partly = True
                break
            try:
                data = await files.read(place)
            except FileError:
                continue
            directory = place.rpartition("/")[0]
            heeded = await anyio.to_thread.run_sync(
                ignored.add, directory, data, budget, abandon_on_cancel=True
            )
            partly = partly or not heeded
    finally:
        budget.stop()
    kept = Unignored(ignored, partly, fits)
    kept.names = names_of(pattern)
    return kept


class _OutOfTime(Exception):
    pass


class _Ignored:
    """Paths that are ignored so far; directories have no slash at the end."""

    def __init__(self) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        self._known = {"": _Directory(ignored=False)}
        self._left = _MOST_RULES

    def add(self, directory: str, data: bytes, budget: Budget) -> bool:
        """Add a `.gitignore` file, those further up first; return whether all of it is used."""
        try:
            if self._directory(directory, budget.over).ignored:
                return True
        except _OutOfTime:
            return False
        try:
            text = decode(data)
        except TextTooLarge:
            return False
        rules: list[_Rule] = []
        most = min(_MOST_RULES_OF_A_FILE, self._left)
        heeded = True
        for line in () if text is None else text.lines():
            rule = _rule(line) if len(rules) < most else None
            if rule is not None:
                rules.append(rule)
            elif len(rules) == most and line.strip() and not line.startswith("#"):
                heeded = False
            if not heeded or budget.over():
                heeded = False
                break
        self._left -= len(rules)
        # Later lines decide, so they are tried first.
        self._rules[directory] = rules[::-1]
        self._known = {"": _Directory(False, "", self._rules.get("", ()))}
        return heeded

    def file(self, path: str, deadline: float) -> bool:
        """Whether a file is ignored.

        Raises:
            _OutOfTime: The deadline, in seconds of the monotonic clock, has passed.
        """

        def over() -> bool:
            return time.monotonic() > deadline

        directory = self._directory(path.rpartition("/")[0], over)
        return directory.ignored or _judged(path, False, directory, over)

    def _directory(self, path: str, over: Callable[[], bool]) -> _Directory:
        known, above, unknown = self._known.get(path), path, list[str]()
        while known is None:
            unknown.append(above)
            above = above.rpartition("/")[0]
            known = self._known.get(above)
        for one in reversed(unknown):  # a path may have more names than the recursion limit
            ignored = known.ignored or one.endswith("/.git") or _judged(one, True, known, over)
            rules = self._rules.get(one)
            if rules:
                known = _Directory(ignored, one, rules, known)
            else:
                known = _Directory(ignored, known.path, known.rules, known.above)
            self._known[one] = known
        return known


def _judged(
    path: str, is_directory: bool, directory: _Directory | None, over: Callable[[], bool]
) -> bool:
    """Whether the rules of the directories that contain a path ignore it."""
    while directory is not None:
        name = path[len(directory.path) + 1 :]
        for number, rule in enumerate(directory.rules):
            if number % _RULES_BETWEEN_LOOKS == 0 and over():
                raise _OutOfTime
            if is_directory >= rule.only_directories and rule.fits(name):
                return rule.ignores
        directory = directory.above
    return False


def _directories(path: str) -> list[str]:
    """Return a directory and those above it, the root first, without slashes at the end."""
    names = path.rstrip("/").split("/")
    return ["/".join(names[:end]) for end in range(1, len(names) + 1)]


def _rule(line: str) -> _Rule | None:
    if len(line) > _MOST_CHARS:
        return None
    trimmed = _TRIMMED.fullmatch(line)
    if trimmed is None or line.startswith("#"):
        return None
    pattern = trimmed[1]
    ignores = not pattern.startswith("!")
    pattern = pattern if ignores else pattern[1:]
    only_directories = pattern.endswith("/")
    pattern = pattern[:-1] if only_directories else pattern
    if not pattern:
        return None
    anchored = "/" in pattern
    expression = gitignore_expression(pattern.removeprefix("/"))
    if expression is None:
        return None
    start = "" if anchored else "(?s:.*/)?+"
    return _Rule(re.compile(f"{start}{expression}").fullmatch, ignores, only_directories)
