"""Directory search and restore: finds files by name or content, and restores earlier contents.

Names are found along a walk; contents are searched with ripgrep's help.

A change is recorded before it is made, so a crash can leave a record of a change that never
happened. This record is recognised (the file is unchanged) and does no harm.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio.to_thread

from ..._internal.records import record
from ...checkpoint.base import REDACTED, FileChange
from ...errors import ToolError
from ..base import FileEntry, FileError, Page, PathTest
from ..expressions import Expression
from ..ripgrep import Candidates, candidates, find_ripgrep, prefilter
from ..search import Budget, Unhurried, find_lines
from .tree import Present, Tree

__all__ = ["DirectorySearch", "RestorePlan", "Undo", "apply", "plan"]


LIKELY_SHARE = 0.7
"""Fraction of a search's time for finding candidate files."""

_T = TypeVar("_T")
_Document: TypeAlias = tuple[str, Callable[[], bytes | None]]


@record
class DirectorySearch:
    """Searches below the root of a directory backend.

    Attributes:
        tree: The files.
        root: Their root on disk.
        limit: Larger files are not read.
        ripgrep: Whether ripgrep selects the candidate files.
    """

    tree: Tree
    root: Path
    limit: int
    ripgrep: bool

    async def glob(self, test: PathTest, path: str, limit: int) -> list[FileEntry]:
        """Return the newest files below a directory that are meant; see `Files.glob`."""
        return await _search(lambda budget: self._glob(test, path, limit, budget), Budget())

    async def grep(
        self, expression: Expression, test: PathTest, path: str, limit: int, names: str | None
    ) -> Page:
        """Return lines of files that are meant; see `Files.grep` and `names_of`."""
        budget = Budget()
        likely = await self._likely(path, expression, names, budget)

        def search(budget: Budget) -> Page:
            if likely is None:
                return find_lines(self._documents(path, test), expression, limit, budget)
            documents = self._named(path, likely.names, test)
            return find_lines(documents, expression, limit, budget)

        page = await _search(search, budget)
        return page if likely is None or likely.complete else replace(page, truncated=True)

    def _glob(self, test: PathTest, path: str, limit: int, budget: Budget) -> list[FileEntry]:
        newest = heapq.nsmallest(limit, self._found(test, path, budget))
        return [FileEntry(full, size=size, modified=-age) for age, full, size in newest]

    def _found(self, test: PathTest, path: str, budget: Budget) -> Iterator[tuple[float, str, int]]:
        try:
            for leaf in self.tree.walk(path, _within(budget, path, test)):
                try:
                    status = leaf.status()
                except OSError:
                    continue
                yield -status.st_mtime, leaf.path, status.st_size
        except _TimeIsUp:
            if not isinstance(test, Unhurried):
                raise
            test.late = True

    async def _likely(
        self, path: str, expression: Expression, names: str | None, budget: Budget
    ) -> Candidates | None:
        """Return the files below a directory that may match; None if unknown."""
        program = find_ripgrep() if self.ripgrep else None
        if program is None:
            return None
        wide = await anyio.to_thread.run_sync(prefilter, expression)
        if wide is None:
            return None
        if not await anyio.to_thread.run_sync(self.tree.is_dir, path):
            return None
        # The links in the path stay inside; if one is replaced now, it only yields names.
        directory = os.path.join(self.root, path[1:])
        seconds = budget.left * LIKELY_SHARE
        return await candidates(
            program, wide, directory, names=names, most_bytes=self.limit, seconds=seconds
        )

    def _named(self, path: str, names: Sequence[str], test: PathTest) -> Iterator[_Document]:
        base = path.rstrip("/")
        for leaf in self.tree.pick(f"{base}/{name}" for name in names):
            if test(leaf.path):
                yield leaf.path, lambda leaf=leaf: leaf.read(self.limit)

    def _documents(self, path: str, test: PathTest) -> Iterator[_Document]:
        if not self.tree.is_dir(path):
            yield path, lambda: self.tree.read(path, self.limit)
            return
        for leaf in self.tree.walk(path, test):
            yield leaf.path, lambda leaf=leaf: leaf.read(self.limit)


class _TimeIsUp(ToolError):
    pass


def _within(budget: Budget, path: str, test: PathTest) -> PathTest:
    """Return the test, which ends the walk through `path` when the time is over."""

    def timely(full: str) -> bool:
        if budget.over():
            raise _TimeIsUp(
                f"looking through {path} took too long and was stopped. Search a directory "
                "further down, or use a pattern in a smaller one."
            )
        return test(full)

    return timely


async def _search(function: Callable[[Budget], _T], budget: Budget) -> _T:
    """Run a search in a thread; if the caller is cancelled, the thread ends soon after."""
    try:
        return await anyio.to_thread.run_sync(function, budget, abandon_on_cancel=True)
    finally:
        budget.stop()


@record
class Undo:
    """One file to restore: its current and its earlier content (None: it did not exist)."""

    present: Present
    target: bytes | None


@record
class RestorePlan:
    """The steps of a restore.

    Attributes:
        steps: The files to restore.
        stuck: Files that cannot be restored, even if changes by others may be lost.
    """

    steps: Sequence[Undo]
    stuck: Sequence[str]


def plan(tree: Tree, changes: Sequence[FileChange], limit: int, force: bool) -> RestorePlan:
    """Return the steps to undo `changes`, which are ordered newest first.

    Raises:
        FileError: `changed`, with every file that others have changed, or may have changed, or
            that cannot be restored, unless `force`.
    """
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    steps: list[Undo] = []
    foreign: list[str] = []
    unclear: list[str] = []
    stuck: dict[str, str] = {}
    for path, history in by_path.items():
        present = _present(tree, path, limit)
        if isinstance(present, str):
            stuck[path] = present
            continue
        if history[-1].after_digest == REDACTED:
            stuck[path] = "its earlier content is stored redacted"
            continue
        if not _ours(present.data, history):
            is_redacted = any(one.after_digest == REDACTED for one in history)
            (unclear if is_redacted else foreign).append(path)
        if history[-1].before != present.data:
            steps.append(Undo(present, history[-1].before))
    if (foreign or unclear or stuck) and not force:
        raise _refused(foreign, unclear, stuck)
    return RestorePlan(steps, [*stuck])


def _present(tree: Tree, path: str, limit: int) -> Present | str:
    """Return the state of a file, or why it cannot be restored."""
    try:
        present = tree.present(path, limit)
    except FileError as error:
        if error.code == "not_found":
            return Present(path, None)
        why = str(error).partition(" Nothing was done.")[0]
        return _IN_THE_WAY.get(error.code) or why.removeprefix(f"{path}: ").rstrip(".")
    return present if present.path == path else "it is, or passes through, a link now"


_IN_THE_WAY = {
    "is_directory": "a directory is in its place",
    "not_a_directory": "a file is in the place of one of its directories",
    "too_large": "the file in its place is too large to be kept",
}


def _refused(foreign: Sequence[str], unclear: Sequence[str], stuck: Mapping[str, str]) -> FileError:
    parts: list[str] = []
    if foreign:
        parts.append(
            f"somebody else changed {', '.join(foreign)} since this thread did. To put the files "
            "back anyway, losing those changes, repeat with force."
        )
    if unclear:
        parts.append(
            f"it is unknown whether somebody else changed {', '.join(unclear)} since this thread "
            "did, because a content in between is stored redacted. To put the files back anyway, "
            "repeat with force."
        )
    if stuck:
        why = "; ".join(f"{path} cannot be put back: {reason}" for path, reason in stuck.items())
        parts.append(f"{why}. To leave this as it is and put the rest back, repeat with force.")
    return FileError(
        "changed", (*foreign, *unclear, *stuck)[0], f"{' '.join(parts)} Nothing was put back."
    )


def _ours(present: bytes | None, history: Sequence[FileChange]) -> bool:
    """Whether the chain from the current file to the oldest change has no content by others."""
    current = _digest(present)
    for change in history:
        before = _digest(change.before)
        if current not in (change.after_digest, before):
            return False
        current = before
    return True


def _digest(data: bytes | None) -> str | None:
    return None if data is None else sha256(data).hexdigest()


def apply(tree: Tree, steps: Sequence[Undo]) -> list[str]:
    """Restore the files and return their paths.

    Raises:
        ToolError: A file could not be restored; the text lists the restored ones.
    """
    done: list[str] = []
    for step in steps:
        try:
            if step.target is None:
                tree.remove(step.present)
            else:
                tree.replace(step.present, step.target)
        except ToolError as error:
            raise ToolError(
                f"{error} Put back before that: {', '.join(done) or 'nothing'}."
            ) from error
        done.append(step.present.path)
    return done
