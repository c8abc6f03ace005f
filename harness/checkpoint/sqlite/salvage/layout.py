"""What the tables of a journal look like, asked of SQLite itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from ..migrations import CREATE

__all__ = ["Column", "Layout", "Row", "layout"]

Row: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the table's columns."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: What it was declared as; empty for any number or text.
        default: What a row has that was written before there was this column.
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
        columns: Those of each table.
        indices: Of each index its table, and where its columns are in that.
        roots: The pages that trees begin at in a new journal.
    """

    columns: Mapping[str, Sequence[Column]]
    indices: Mapping[str, tuple[str, Sequence[int]]]
    roots: Mapping[str, int]

    def is_index(self, name: str) -> bool:
        """Whether a tree is stored like an index; tables without row numbers are."""
        return name not in self.columns or not any(one.is_row for one in self.columns[name])

    def row(self, table: str, number: int | None, values: Sequence[Any]) -> Row:
        """Return a row as SQLite would.

        Raises:
            ValueError: It is not one of the table.
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
