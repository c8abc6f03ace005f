"""The agenda in a file of the state directory, which all servers of the directory share."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import anyio

from ...harness.databases.sqlite_files import Connection, DatabaseKind
from ...harness.errors import CheckpointError, NewerDatabase
from .tables import CREATE, TABLES, Row, Statement

__all__ = ["SqliteTables"]

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
        path: The file; made at the first use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opening = anyio.Lock()
        self._connection: Connection | None = None

    async def run(self, *statements: Statement) -> list[Row]:
        """See `AgendaTables`."""
        connection = self._connection or await self._connected()
        rows: list[Row] = []
        try:
            with anyio.CancelScope(shield=True):
                rows = await connection.run(partial(_transact, statements))
        except sqlite3.Error as error:
            raise _AGENDA.refusal(self._path, error) from error
        return rows

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
