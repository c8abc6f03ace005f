"""Tables of the agenda: in the journal's Postgres database, else in a file of the state directory.

Statements are the same for both: `{schedules}` is replaced by a table, `:name` by a value, and
`{now}` by the time of the database, which all servers share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import anyio

from ...harness.databases.sqlite_files import Connection, DatabaseKind
from ...harness.errors import CheckpointError, NewerDatabase

__all__ = ["CREATE", "TABLES", "AgendaTables", "Row", "SqliteTables", "Statement"]

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]

Statement: TypeAlias = tuple[str, Mapping[str, object]]
"""SQL, and the values for its names."""

TABLES: Final = ("schedules", "watched", "deliveries")

CREATE: Final = (
    # `body` contains the goal and the principal. `run_at` is a time in addition to cron's.
    """CREATE TABLE {schedules} (
        id text PRIMARY KEY,
        owner text NOT NULL,
        name text NOT NULL,
        status text NOT NULL,
        next_at {real},
        run_at {real},
        claimed_until {real} NOT NULL,
        last_at {real},
        last_run text NOT NULL,
        last_error text NOT NULL,
        body {blob} NOT NULL,
        UNIQUE (owner, name)
    )""",
    # Runs whose pause or end is sent to webhooks; `told` is what was sent last.
    """CREATE TABLE {watched} (
        run_id text PRIMARY KEY,
        told text NOT NULL,
        looked_at {real} NOT NULL
    )""",
    """CREATE TABLE {deliveries} (
        id text NOT NULL,
        url text NOT NULL,
        body text NOT NULL,
        attempts integer NOT NULL,
        next_at {real} NOT NULL,
        claimed_until {real} NOT NULL,
        last_error text NOT NULL,
        PRIMARY KEY (id, url)
    )""",
)


class AgendaTables(Protocol):
    """The tables, which are created at the first use."""

    async def run(self, *statements: Statement) -> list[Row]:
        """Run statements in one transaction, and return the rows of the last one.

        Raises:
            HarnessError: The database cannot be used. Usually nothing was changed; if the
                connection broke during the commit, that is unknown.
        """
        ...

    async def vacuum(self) -> None:
        """Erase what replaced and deleted rows have left in a file.

        Raises:
            HarnessError: The database cannot be used, or another process reads it.
        """
        ...

    async def close(self) -> None:
        """Close the database."""
        ...


_NOW = "((julianday('now') - 2440587.5) * 86400.0)"


def _sql(text: str) -> str:
    for name in TABLES:
        text = text.replace(f"{{{name}}}", name)
    return text.replace("{now}", _NOW).replace("{real}", "real").replace("{blob}", "blob")


_AGENDA = DatabaseKind(
    "agenda", 0x44414D41, [_sql(one) for one in CREATE], CheckpointError, NewerDatabase
)


class SqliteTables:
    """`AgendaTables` in one file.

    Args:
        path: The file; created at the first use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opening = anyio.Lock()
        self._connection: Connection | None = None

    async def run(self, *statements: Statement) -> list[Row]:
        """See `AgendaTables`."""
        return await self._do(partial(_transact, statements))

    async def vacuum(self) -> None:
        """See `AgendaTables`."""
        if await self._do(_vacuum):
            raise CheckpointError(
                f"the schedules are changed, but the log of {self._path} still has what was "
                "removed, because another process is reading it. Repeat the command when that has "
                "ended: it was not finished."
            )

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection or await self._connected()
        try:
            with anyio.CancelScope(shield=True):
                return await connection.run(work)
        except sqlite3.Error as error:
            raise _AGENDA.refusal(self._path, error) from error
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """See `AgendaTables`."""
        with anyio.CancelScope(shield=True):
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.finish()

    async def _connected(self) -> Connection:
        async with self._opening:
            if self._connection is None:
                connection = Connection(partial(_AGENDA.open_writer, self._path))
                with anyio.CancelScope(shield=True):  # half-way, it would leave a file open
                    await connection.start()
                self._connection = connection
            return self._connection


def _vacuum(conn: sqlite3.Connection) -> bool:
    """Return whether another process kept the log from being emptied."""
    conn.execute("VACUUM")
    busy, *_ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy)


def _transact(statements: tuple[Statement, ...], conn: sqlite3.Connection) -> list[Row]:
    conn.execute("BEGIN IMMEDIATE")
    try:
        rows: list[Row] = []
        for text, values in statements:
            rows = conn.execute(_sql(text), dict(values)).fetchall()
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
    return rows
