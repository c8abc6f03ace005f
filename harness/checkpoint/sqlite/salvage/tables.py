"""The rows of a journal: of an intact file through SQLite, of a damaged one as far as possible.

A row of a damaged file counts if its page is reachable from the root of the table. On other pages,
a row counts only if its index contains it too; otherwise it may be a deleted row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ....errors import CheckpointError, NewerDatabase
from ..connections import JOURNAL
from .database_file import Cell, DatabaseFile, Value
from .trees import LAST, Gap, Row, Tree, key_of, layout, touches

__all__ = ["INDEX_OF", "DamagedTables", "OpenTables", "Tables"]

_ROWS = (
    *("threads", "scopes", "checkpoints", "pending"),
    *("runs", "interrupts", "file_changes", "event_logs"),
)
"""Tables with small rows: nearly all writes of steps are in pages."""

_LARGE = ("pages", "blobs")
"""Tables with rows that are read on demand."""

INDEX_OF: Mapping[str, str] = {
    "threads": "sqlite_autoindex_threads_1",
    "scopes": "sqlite_autoindex_scopes_1",
    "checkpoints": "checkpoints_by_id",
    "pending": "pending_by_step",
    "pages": "pages_by_scope",
    "blobs": "sqlite_autoindex_blobs_1",
    "runs": "sqlite_autoindex_runs_1",
    "interrupts": "sqlite_autoindex_interrupts_1",
    "file_changes": "file_changes_by_thread",
    "event_logs": "sqlite_autoindex_event_logs_1",
}
"""The index that has an entry for each row of a table."""

_EVENT_KEY = 2
"""How many columns of an event's row are its key."""


class Tables(Protocol):
    """The tables of a journal."""

    def rows(self, table: str) -> Mapping[int, Row]:
        """Return the rows of a table by number."""
        ...

    def keys(self, table: str) -> Mapping[int, Sequence[Row]]:
        """Return the data of rows in a table's index, by number; empty if it is not needed."""
        ...

    def may_lack(self, table: str, key: Sequence[Value]) -> bool:
        """Whether rows with this start of the key may be missing without a trace."""
        ...

    def large(self, table: str, number: int) -> Row:
        """Return a row of `pages` or `blobs`.

        Raises:
            ValueError: It is missing or damaged.
        """
        ...

    def events(self, log: int) -> Sequence[Row]:
        """Return the rows of events of a log, the oldest first."""
        ...


class OpenTables:
    """The tables of a file that SQLite can read.

    Args:
        conn: A connection inside of a transaction.
    """

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def rows(self, table: str) -> Mapping[int, Row]:
        """Return the rows of a table by number, without rows that no version could have written."""
        found: dict[int, Row] = {}
        for number, *values in self._conn.execute(f"SELECT rowid, * FROM {table}"):
            with suppress(ValueError):
                found[number] = layout().row(table, number, values)
        return found

    def keys(self, table: str) -> Mapping[int, Sequence[Row]]:
        """Return the keys of rows that are left out."""
        places = layout().indices[INDEX_OF[table]][1]
        known, found = self.rows(table), dict[int, Sequence[Row]]()
        for number, *values in self._conn.execute(f"SELECT rowid, * FROM {table}"):
            if number not in known:
                found[number] = [tuple(values[place] for place in places)]
        return found

    def may_lack(self, table: str, key: Sequence[Value]) -> bool:
        """Nothing is missing without a trace."""
        return False

    def large(self, table: str, number: int) -> Row:
        """Return a row of `pages` or `blobs`.

        Raises:
            ValueError: It is missing or damaged.
        """
        row = self._conn.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone()
        if row is None:
            raise ValueError(f"row {number} of {table} is missing")
        return layout().row(table, number, row)

    def events(self, log: int) -> Sequence[Row]:
        """Return the rows of events of a log, the oldest first."""
        rows = self._conn.execute("SELECT * FROM events WHERE log = ? ORDER BY last", (log,))
        return rows.fetchall()


class DamagedTables:
    """The tables of a file that SQLite cannot read.

    Args:
        path: The file. No process may write to it meanwhile.

    Raises:
        OSError: It cannot be read.
        NewerDatabase: A newer version wrote it.
        CheckpointError: An older version wrote it, or another program.
    """

    def __init__(self, path: Path) -> None:
        self._file = DatabaseFile(path)
        roots = _Roots(self._file)
        _require_known(path, self._file, roots)
        self._trees = {name: self._tree(name, roots) for name in (*_ROWS, *_LARGE, "events")}
        self._indices = {
            table: self._tree(name, roots, width=None) for table, name in INDEX_OF.items()
        }
        self._keys = {table: self._named(table) for table in INDEX_OF}
        self._rows: dict[str, dict[int, Row]] = {}
        self._cells: dict[str, dict[int, Cell]] = {}
        for table in _ROWS:
            cells = self._numbered(table)
            self._rows[table] = {
                number: row
                for number, cell in cells.items()
                if (row := self._row(table, cell)) is not None
            }
            self._trees[table].gaps += [_around(one) for one in cells.keys() - self._rows[table]]
        for table in _LARGE:
            self._cells[table] = self._numbered(table)
        self._add_unreached()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def rows(self, table: str) -> Mapping[int, Row]:
        """Return the rows of a table by number."""
        return self._rows[table]

    def keys(self, table: str) -> Mapping[int, Sequence[Row]]:
        """Return the data of rows in a table's index, by number."""
        return self._keys[table]

    def may_lack(self, table: str, key: Sequence[Value]) -> bool:
        """Whether rows with this start of the key may be missing without a trace."""
        return bool(self._trees[table].gaps) and touches(self._indices[table].gaps, key)

    def large(self, table: str, number: int) -> Row:
        """Return a row of `pages` or `blobs`.

        Raises:
            ValueError: It is missing or damaged.
        """
        cell = self._cells[table].get(number)
        row = None if cell is None else self._row(table, cell)
        if row is None:
            raise ValueError(f"row {number} of {table} is missing or damaged")
        return row

    def events(self, log: int) -> Sequence[Row]:
        """Return the rows of events of a log, the oldest first."""
        return [
            row
            for cell in self._events.get(log, ())
            if (row := self._row("events", cell)) is not None
        ]

    @cached_property
    def _events(self) -> Mapping[object, Sequence[Cell]]:
        found: dict[object, list[Cell]] = {}
        for ((_, log), *_), cell in self._trees["events"].cells:
            found.setdefault(log, []).append(cell)
        return found

    # --- reading ---------------------------------------------------------------------------

    def _tree(self, name: str, roots: _Roots, width: int | None = _EVENT_KEY) -> Tree:
        index = layout().is_index(name)
        return Tree(self._file, roots.of(name), index=index, width=width)

    def _numbered(self, table: str) -> dict[int, Cell]:
        cells = (cell for _, cell in self._trees[table].cells)
        return {cell.rowid: cell for cell in cells if cell.rowid is not None}

    def _row(self, table: str, cell: Cell) -> Row | None:
        try:
            return layout().row(table, cell.rowid, self._file.record(cell))
        except ValueError:
            return None

    def _named(self, table: str) -> dict[int, list[Row]]:
        """Return the data of rows in an index."""
        columns = [layout().columns[table][at] for at in layout().indices[INDEX_OF[table]][1]]
        found: dict[int, list[Row]] = {}
        for key, _ in self._indices[table].cells:
            *values, number = (None if rank == 0 else value for rank, value in key)
            fit = len(values) == len(columns) and all(
                column.fits(value) for column, value in zip(columns, values, strict=True)
            )
            if isinstance(number, int) and fit:
                found.setdefault(number, []).append(tuple(values))
        return found

    def _add_unreached(self) -> None:
        """Add rows that fill a gap of their table, from pages that are in no tree."""
        wanted = [table for table in (*_ROWS, *_LARGE) if table in INDEX_OF]
        wanted = [table for table in wanted if self._trees[table].gaps]
        if not wanted:
            return
        reached = {1, *self._file.free_pages()}
        for tree in (*self._trees.values(), *self._indices.values()):
            reached |= tree.pages
        found: dict[tuple[str, int], list[tuple[Cell, Row]]] = {}
        for cell in _leaf_cells(self._file, reached):
            for table in wanted:
                row = self._missing(table, cell)
                if row is not None and cell.rowid is not None:
                    found.setdefault((table, cell.rowid), []).append((cell, row))
        for (table, number), (first, *others) in found.items():
            if others:
                continue  # one of them is old, but it is unclear which
            if table in _LARGE:
                self._cells[table][number] = first[0]
            else:
                self._rows[table][number] = first[1]

    def _missing(self, table: str, cell: Cell) -> Row | None:
        """Return the row of a cell, if it is missing in its table and contained in the index."""
        number = cell.rowid
        known = self._cells[table] if table in _LARGE else self._rows[table]
        if number is None or number in known or number not in self._keys[table]:
            return None
        row = self._row(table, cell)
        if row is None:
            return None
        places = layout().indices[INDEX_OF[table]][1]
        return row if tuple(row[place] for place in places) in self._keys[table][number] else None


class _Roots:
    """Roots of the trees of a file: from its first pages, else where new files have them.

    Attributes:
        others: Whether there are unknown tables.
        ours: Whether there are tables of a journal.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        schema = Tree(file, 1, index=False)
        cells = [cell for _, cell in schema.cells]
        if schema.gaps:
            cells += _leaf_cells(file, schema.pages)
        self._said: dict[str, int] = {}
        self.others = self.ours = False
        for cell in cells:
            with suppress(ValueError):
                match file.record(cell):
                    case ("table" | "index" as kind, str(name), str(), int(root), _):
                        self._said.setdefault(name, root)
                        own = name in layout().columns or name.startswith("sqlite_")
                        self.others |= kind == "table" and not own
                        self.ours |= name in layout().columns
                    case _:
                        pass

    def of(self, name: str) -> int | None:
        """Return the root of a table or index; None if unknown."""
        guesses = (self._said.get(name), layout().roots[name])
        return next((one for one in guesses if one is not None and self._fits(name, one)), None)

    def _fits(self, name: str, root: int) -> bool:
        """Whether the first rows below a page belong to a table or index."""
        page = root
        with suppress(ValueError):
            for _ in range(30):
                found = self._file.tree_page(page)
                if found.of_index != layout().is_index(name) or page == 1:
                    return False
                cells = [one for one in found.cells if one is not None]
                below = [one.child for one in cells if one.child is not None]
                if not below and found.after is None:
                    return self._fit(name, cells)
                page = below[0] if below else found.after or 0
        return page != root  # damage below does not rule this page out

    def _fit(self, name: str, cells: Sequence[Cell]) -> bool:
        fitting = 0
        for cell in cells:
            with suppress(ValueError):
                values = self._file.record(cell)
                if name in layout().columns:
                    layout().row(name, cell.rowid, values)
                    fitting += 1
                else:
                    table, places = layout().indices[name]
                    columns = layout().columns[table]
                    fitting += len(values) == len(places) + 1 and all(
                        columns[place].fits(value)
                        for place, value in zip(places, values, strict=False)
                    )
        return 2 * fitting >= len(cells)


def _leaf_cells(file: DatabaseFile, but: set[int]) -> Iterator[Cell]:
    """Yield the cells of all pages that may belong to a table, except some."""
    for number in range(1, file.pages + 1):
        if number in but:
            continue
        with suppress(ValueError):
            page = file.tree_page(number)
            if page.after is None and not page.of_index:
                yield from (one for one in page.cells if one is not None)


def _around(number: int) -> Gap:
    return key_of((number - 1,)), (*key_of((number,)), *LAST)


def _require_known(path: Path, file: DatabaseFile, roots: _Roots) -> None:
    """Refuse a file of another version, as far as that is not damage: it has other tables, too."""
    version, application = file.version()
    if application != JOURNAL.application_id and roots.others and not roots.ours:
        raise CheckpointError(
            f"{path} is a database of another program, not a journal. Nothing was written."
        )
    if application != JOURNAL.application_id or version in (0, JOURNAL.version) or not roots.others:
        return
    known = f"it has journal version {version}, and this one knows {JOURNAL.version}"
    if version > JOURNAL.version:
        raise NewerDatabase(
            f"{path} was made by a newer version of this program: {known}. Nothing was written. "
            "Upgrade the program, and try again."
        )
    raise CheckpointError(
        f"{path} was made by an older version of this program: {known}. Nothing was written. "
        "If a server of this version cannot open it either, restore a backup."
    )
