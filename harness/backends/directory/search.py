"""Searching a real directory: by name along a walk, by content with ripgrep's help."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio.to_thread

from ..._internal.records import record
from ...errors import ToolError
from ..base import FileEntry, Page, PathTest
from ..search.expressions import Expression
from ..search.ripgrep import Candidates, candidates, find_ripgrep, prefilter
from ..search.search import Budget, Unhurried, find_lines
from .tree import Tree

__all__ = ["DirectorySearch"]

LIKELY_SHARE = 0.7
"""Part of a search's time for finding out where to look."""

_T = TypeVar("_T")
_Document: TypeAlias = tuple[str, Callable[[], bytes | None]]


@record
class DirectorySearch:
    """Searches below the root of a directory backend.

    Attributes:
        tree: The files.
        root: Where they are on disk.
        limit: Larger files are not read.
        ripgrep: Whether ripgrep is asked where to look.
    """

    tree: Tree
    root: Path
    limit: int
    ripgrep: bool

    async def glob(self, test: PathTest, path: str, limit: int) -> list[FileEntry]:
        """Return the newest files below a directory that are meant; see `Files.glob`."""
        return await _search(lambda budget: self._glob(test, path, limit, budget), Budget())

    async def grep(self, expression: Expression, test: PathTest, path: str, limit: int) -> Page:
        """Return lines of files that are meant; see `Files.grep`."""
        budget = Budget()
        likely = await self._likely(path, expression, budget)

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

    async def _likely(self, path: str, expression: Expression, budget: Budget) -> Candidates | None:
        """Return the files below a directory that may match; None when nobody can say."""
        program = find_ripgrep() if self.ripgrep else None
        if program is None:
            return None
        wide = await anyio.to_thread.run_sync(prefilter, expression)
        if wide is None:
            return None
        if not await anyio.to_thread.run_sync(self.tree.is_dir, path):
            return None
        # Links in the path were found to stay inside; if one is swapped now, it yields only names.
        directory = os.path.join(self.root, path[1:])
        seconds = budget.left * LIKELY_SHARE
        return await candidates(program, wide, directory, most_bytes=self.limit, seconds=seconds)

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
    """Return the test, which ends the walk through `path` when there is no time left."""

    def timely(full: str) -> bool:
        if budget.over():
            raise _TimeIsUp(
                f"looking through {path} took too long and was stopped. Search a directory "
                "further down, or use a pattern in a smaller one."
            )
        return test(full)

    return timely


async def _search(function: Callable[[Budget], _T], budget: Budget) -> _T:
    """Run a search in a thread; when the caller goes away, the thread ends soon after."""
    try:
        return await anyio.to_thread.run_sync(function, budget, abandon_on_cancel=True)
    finally:
        budget.stop()
