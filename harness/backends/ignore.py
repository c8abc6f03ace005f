"""Which files `.gitignore` files leave out, in any backend.

The rules are Git's: the last line that fits decides, the nearest file before those further up, and
nothing comes back out of a directory that is left out. The root of the files counts as the top of
the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.backends.base import FileError, Files, PathTest
from harness.backends.ignore_patterns import expression_of
from harness.backends.search import glob_matcher
from harness.backends.text import decode

__all__ = ["kept_by_gitignore", "without_ignored"]

_NAME = ".gitignore"
_MOST_FILES = 20_000

_TRIMMED = re.compile(r"((?:\\.|[^\\ ]| +(?=[^ ]))*) *", re.DOTALL)
"""A line, and in it what is left without the spaces at its end; escaped ones stay."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of a `.gitignore` file."""

    fits: Callable[[str], re.Match[str] | None]
    ignores: bool
    only_directories: bool


async def kept_by_gitignore(files: Files, path: str = "/") -> PathTest:
    """Return a test of the files below `path`: false for those that are ignored, and for `.git`.

    `.gitignore` files that cannot be read, or are in a directory that is left out, say nothing.

    Raises:
        FileError: The path is wrong.
    """
    places = [f"{above}/{_NAME}" for above in _directories(path)]
    try:
        found = await files.glob(_NAME, path, limit=_MOST_FILES)
    except FileError as error:
        if error.code != "not_a_directory":
            raise
        found = ()
    below = sorted({one.path for one in found} - {*places})
    ignored = _Ignored()
    for place in [*places, *sorted(below, key=lambda one: one.count("/"))]:
        directory = place.rpartition("/")[0]
        if ignored.directory(directory):
            continue
        try:
            text = decode(await files.read(place))
        except FileError:
            continue
        ignored.add(directory, [] if text is None else text.lines)
    return lambda full: not ignored.file(full)


async def without_ignored(files: Files, path: str, pattern: str) -> PathTest:
    """Return a test of the files below `path` that fit a glob and are not ignored.

    Raises:
        FileError: The path is wrong.
        ToolError: The pattern is wrong.
    """
    fits, kept = glob_matcher(pattern or "*", path), await kept_by_gitignore(files, path)
    return lambda full: fits(full) and kept(full)


class _Ignored:
    """What the rules read so far leave out; directories are named without a slash at the end."""

    def __init__(self) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        self._known: dict[str, bool] = {"": False}

    def add(self, directory: str, lines: Sequence[str]) -> None:
        """Take in a `.gitignore` file; those further up come first."""
        # Later lines decide, so they are asked first.
        self._rules[directory] = [rule for line in reversed(lines) if (rule := _rule(line))]
        self._known = {"": False}

    def directory(self, path: str) -> bool:
        """Whether a directory is left out."""
        known, above, unknown = self._known.get(path), path, list[str]()
        while known is None:
            unknown.append(above)
            above = above.rpartition("/")[0]
            known = self._known.get(above)
        for one in reversed(unknown):  # a path may have more names than calls may be nested
            known = known or one.endswith("/.git") or self._judged(one, True)
            self._known[one] = known
        return known

    def file(self, path: str) -> bool:
        """Whether a file is left out."""
        return self.directory(path.rpartition("/")[0]) or self._judged(path, False)

    def _judged(self, path: str, is_directory: bool) -> bool:
        base = path
        while base:
            base = base.rpartition("/")[0]
            for rule in self._rules.get(base, ()):
                if is_directory >= rule.only_directories and rule.fits(path[len(base) + 1 :]):
                    return rule.ignores
        return False


def _directories(path: str) -> list[str]:
    """Return a directory and those above it, the root first, without slashes at the end."""
    names = path.rstrip("/").split("/")
    return ["/".join(names[:end]) for end in range(1, len(names) + 1)]


def _rule(line: str) -> _Rule | None:
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
    expression = expression_of(pattern.removeprefix("/"))
    if expression is None:
        return None
    start = "" if anchored else "(?s:.*/)?+"
    return _Rule(re.compile(f"{start}{expression}").fullmatch, ignores, only_directories)
