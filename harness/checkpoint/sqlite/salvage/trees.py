"""The trees of a damaged file: which parts of a table or index can be reached, and where gaps are.

A tree is walked from its root. Everything below an unreadable page is out of reach; the entries
around the page tell which keys are affected. The layout of the tables comes from SQLite itself.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from ..migrations import CREATE
from .database_file import Cell, DatabaseFile, Value

__all__ = [
    "FIRST",
    "LAST",
    "Column",
    "Gap",
    "Key",
    "Layout",
    "Row",
    "Tree",
    "key_of",
    "layout",
    "touches",
]


Key: TypeAlias = tuple[tuple[int, object], ...]
"""Values of any type in SQLite's order: each with the rank of its type."""

Gap: TypeAlias = tuple[Key, Key]
"""Between which keys something may be missing; neither of the two is."""

FIRST: Key = ()
LAST: Key = ((9, None),)

_DEEPEST = 30


def key_of(values: Sequence[Value]) -> Key:
    """Return a sort key that orders values like SQLite."""
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
    """Whether a key that starts with these values may be in one of the gaps."""
    key = key_of(values)
    return any(low < (*key, *LAST) and key < high for low, high in gaps)


class Tree:
    """Result of a walk from a root.

    Attributes:
        cells: The entries with a record, in order of their keys.
        gaps: Ranges of keys in which entries may be missing.
        pages: The pages that the walk has reached.

    Args:
        file: The file.
        root: The root's page; None if unknown.
        index: Whether it is an index, or a table without row numbers.
        width: How many values of a record form its key; all by default.
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
        """Add an entry, with everything below it; there may be a gap before it."""
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

    This leaves out an altered entry, and not the entries after it.
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


Row: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the table's columns."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: Its declared type; empty for any number or text.
        default: The value in rows that were written before the column existed.
        required: Whether there is always a value.
        is_row: Whether it is the row's number.
    """

    kind: str
    default: Any
    required: bool
    is_row: bool

    def fits(self, value: Any) -> bool:
        """Whether a value can be in the column."""
        if value is None:
            return not self.required
        match self.kind:
            case "INTEGER":
                return isinstance(value, int)
            case "REAL":
                return isinstance(value, int | float)
            case "TEXT":
                return isinstance(value, str)
            case "BLOB":
                return isinstance(value, bytes)
            case _:
                return isinstance(value, int | str)


class Layout(NamedTuple):
    """The tables and indices of a journal.

    Attributes:
        columns: The columns of each table.
        indices: For each index, its table, and the positions of its columns in the table.
        roots: The root pages of the trees in a new journal.
    """

    columns: Mapping[str, Sequence[Column]]
    indices: Mapping[str, tuple[str, Sequence[int]]]
    roots: Mapping[str, int]

    def is_index(self, name: str) -> bool:
        """Whether a tree is stored like an index, which includes tables without row numbers."""
        return name not in self.columns or not any(one.is_row for one in self.columns[name])

    def row(self, table: str, number: int | None, values: Sequence[Any]) -> Row:
        """Return a row as SQLite would.

        Raises:
            ValueError: It is not a row of the table.
        """
        columns = self.columns[table]
        filled = [*values, *(one.default for one in columns[len(values) :])]
        if len(filled) != len(columns):
            raise ValueError(f"a row of {table} has too many values")
        for place, column in enumerate(columns):
            if column.is_row and filled[place] is None:
                filled[place] = number
            if not column.fits(filled[place]):
                raise ValueError(f"a row of {table} holds what cannot be in it")
            if column.kind == "REAL" and filled[place] is not None:
                filled[place] = float(filled[place])
        return tuple(filled)


@cache
def layout() -> Layout:
    """Return how journals of this version are laid out."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        for part in CREATE:
            part(conn) if callable(part) else conn.execute(part)
        found = conn.execute("SELECT type, name, tbl_name, rootpage FROM sqlite_master").fetchall()
        columns: dict[str, Sequence[Column]] = {}
        indices: dict[str, tuple[str, Sequence[int]]] = {}
        for kind, name, table, _ in found:
            if kind == "table":
                columns[name] = _columns(conn, name)
            else:
                places = conn.execute(f"SELECT cid FROM pragma_index_info('{name}')").fetchall()
                indices[name] = table, [cid for (cid,) in places]
        return Layout(columns, indices, {name: root for _, name, _, root in found})


def _columns(conn: sqlite3.Connection, table: str) -> list[Column]:
    (sql,) = conn.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    with_rows = "WITHOUT ROWID" not in sql
    rows = conn.execute(
        'SELECT type, dflt_value, "notnull", pk FROM pragma_table_info(?)', (table,)
    ).fetchall()
    single = sum(pk > 0 for *_, pk in rows) == 1
    return [
        Column(
            kind,
            None if default is None else conn.execute(f"SELECT {default}").fetchone()[0],
            bool(required),
            with_rows and single and pk == 1 and kind == "INTEGER",
        )
        for kind, default, required, pk in rows
    ]
