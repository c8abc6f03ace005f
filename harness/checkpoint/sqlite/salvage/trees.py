"""The trees of a damaged file: what of a table or an index can be reached, and where gaps are.

A tree is walked from its root. Below a page that cannot be read everything is out of reach; which
keys those are follows from the entries around it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from .database_file import Cell, DatabaseFile, Value

__all__ = ["FIRST", "LAST", "Gap", "Key", "Tree", "key_of", "touches"]

Key: TypeAlias = tuple[tuple[int, object], ...]
"""Values of any type in SQLite's order: each with the rank of its type."""

Gap: TypeAlias = tuple[Key, Key]
"""Between which keys something may be missing; neither of the two is."""

FIRST: Key = ()
LAST: Key = ((9, None),)

_DEEPEST = 30


def key_of(values: Sequence[Value]) -> Key:
    """Return what compares as SQLite compares the values."""
    return tuple((_rank(one), 0 if one is None else one) for one in values)


def _rank(value: Value) -> int:
    match value:
        case None:
            return 0
        case int() | float():
            return 1
        case str():
            return 2
        case _:
            return 3


def touches(gaps: Sequence[Gap], values: Sequence[Value]) -> bool:
    """Whether a key that begins with these values may be in one of the gaps."""
    key = key_of(values)
    return any(low < (*key, *LAST) and key < high for low, high in gaps)


class Tree:
    """What a walk from a root has found.

    Attributes:
        cells: The entries that hold a record, in order of their keys.
        gaps: Where more may have been.
        pages: The pages it has come to.

    Args:
        file: The file.
        root: The root's page; None if nobody knows it.
        index: Whether it is an index, or a table without row numbers.
        width: How many of a record's values are its key; all by default.
    """

    def __init__(
        self, file: DatabaseFile, root: int | None, *, index: bool, width: int | None = None
    ) -> None:
        self._file = file
        self._index = index
        self._width = width
        self.cells: list[tuple[Key, Cell]] = []
        self.gaps: list[Gap] = []
        self.pages: set[int] = set()
        if root is None:
            self.gaps.append((FIRST, LAST))
        else:
            self._walk(root, FIRST, LAST, 0)

    def _walk(self, page: int, low: Key, high: Key, depth: int) -> None:
        try:
            if page in self.pages or depth > _DEEPEST:
                raise ValueError("a page is below itself")
            found = self._file.tree_page(page)
            if found.of_index != self._index:
                raise ValueError("the page is another tree's")
        except ValueError:
            self.gaps.append((low, high))
            return
        self.pages.add(page)
        keys = [self.key(cell) for cell in found.cells]
        previous, sound = low, set(ascending(keys, low, high))
        gap = False
        for place, (cell, key) in enumerate(zip(found.cells, keys, strict=True)):
            if cell is None or key is None or place not in sound:
                gap = True
            else:
                self._enter(cell, previous, key, depth, gap=gap)
                previous, gap = key, False
        if gap:
            self.gaps.append((previous, high))
        if found.after is not None:
            self._walk(found.after, previous, high, depth + 1)

    def _enter(self, cell: Cell, low: Key, key: Key, depth: int, *, gap: bool) -> None:
        """Take in an entry, with what is below it; there may be a gap before it."""
        if gap:
            self.gaps.append((low, key))
        if cell.child is not None:
            # An entry of an index is not below itself again; the number of a row is.
            high = key if self._index else (*key, *LAST)
            self._walk(cell.child, low, high, depth + 1)
        if cell.payload is not None:
            self.cells.append((key, cell))

    def key(self, cell: Cell | None) -> Key | None:
        """Return the key of an entry, or None if it cannot be read."""
        if cell is None:
            return None
        if cell.rowid is not None:
            return key_of((cell.rowid,))
        try:
            return key_of(self._file.record(cell)[: self._width])
        except ValueError:
            return None


def ascending(keys: Sequence[Key | None], low: Key, high: Key) -> list[int]:
    """Return the places of the most keys between two that ascend.

    One that was altered is left out so, and not those that come after it.
    """
    smallest: list[Key] = []
    ends: list[int] = []
    before: list[int | None] = [None] * len(keys)
    for place, key in enumerate(keys):
        if key is None or not low < key < high:
            continue
        length = bisect_left(smallest, key)
        smallest[length : length + 1] = [key]
        ends[length : length + 1] = [place]
        before[place] = ends[length - 1] if length else None
    found: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(last)
        last = before[last]
    return found[::-1]
