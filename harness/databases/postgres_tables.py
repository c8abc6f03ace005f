"""Postgres tables in their own schema, created and migrated on first use.

The table `version` stores the number of applied migrations. They run in one transaction, under a
lock, so only one process migrates at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from ..errors import HarnessError
from . import Version

__all__ = ["DatabaseKind", "Tables", "set_up"]


@dataclass(frozen=True)
class DatabaseKind:
    """Common properties of all tables of one kind.

    Attributes:
        name: Name in error messages.
        lock: Key of the advisory lock for setting up the tables.
        tables: Names of the tables; `version` is added.
        sequences: Names of sequences.
        indexes: Names of indexes that a migration drops.
        migrations: Statements by version, from 1; a released script never changes.
        error: Raised when the database cannot be used.
        away: Raised instead when it is temporarily unavailable; by default the same as `error`.
        newer: Raised when a newer version created the tables.
        readable_from: The oldest version whose programs may use these tables; by default the
            newest.
        settings: Server settings for each connection.
    """

    name: str
    lock: int
    tables: Sequence[str]
    migrations: Sequence[Sequence[str]]
    error: type[HarnessError]
    newer: type[HarnessError]
    away: type[HarnessError] | None = None
    sequences: Sequence[str] = ()
    indexes: Sequence[str] = ()
    readable_from: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


class Tables:
    """Names of the tables, for use in SQL.

    Args:
        schema: Schema of the tables.
        names: Names without the schema.
        sequences: Names of sequences.
    """

    def __init__(self, schema: str, names: Sequence[str], sequences: Sequence[str] = ()) -> None:
        self.schema = schema
        self._names: dict[str, Composable] = {
            name: Identifier(schema, name) for name in (*names, *sequences, "version")
        }
        for name in sequences:
            quoted = Literal(self._names[name].as_string(None))
            self._names[f"next_of_{name}"] = SQL("nextval({})").format(quoted)
        self._statements: dict[str, bytes] = {}

    def sql(self, text: Any, **parts: Composable) -> Composed:
        """Return a statement with the table names filled in.

        Args:
            text: SQL with table names in braces, and `next_of_…` for the next number of a
                sequence. It must never contain a caller's input.
            **parts: Other parts to fill in, by name.
        """
        return SQL(text).format(**self._names, **parts)

    def statement(self, text: str) -> bytes:
        """Return a statement with the table names filled in; cached, so only for fixed texts."""
        made = self._statements.get(text)
        if made is None:
            made = self._statements[text] = self.sql(text).as_bytes(None)
        return made


async def set_up(conn: AsyncConnection, kind: DatabaseKind, tables: Tables) -> None:
    """Create or migrate the tables, and the schema if it is missing.

    Raises:
        HarnessError: `newer`; the tables are unchanged.
        Error: The server refused.
    """
    ours = len(kind.migrations)
    if (await _version(conn, kind, tables) or 0) >= ours:
        return
    async with conn.transaction():
        await conn.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (kind.lock, tables.schema)
        )
        version = await _version(conn, kind, tables)  # again: another process may have been faster
        if version is None:
            await _create_schema(conn, tables)
            version = 0
        for script in kind.migrations[version:]:
            for statement in script:
                await conn.execute(tables.sql(statement))
        if version < ours:
            made = Version.of(ours, kind.readable_from).stored()
            await conn.execute(tables.sql("UPDATE {version} SET version = %s"), (made,))


async def _create_schema(conn: AsyncConnection, tables: Tables) -> None:
    # IF NOT EXISTS would require the right to create schemas even if the schema exists.
    found = await conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (tables.schema,))
    if await found.fetchone() is None:
        await conn.execute(SQL("CREATE SCHEMA {}").format(Identifier(tables.schema)))
    await conn.execute(tables.sql("CREATE TABLE {version} (version integer NOT NULL)"))
    await conn.execute(tables.sql("INSERT INTO {version} VALUES (0)"))


async def _version(conn: AsyncConnection, kind: DatabaseKind, tables: Tables) -> int | None:
    """Return the version of the tables; None if there are no tables."""
    found = await conn.execute(
        "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'version'",
        (tables.schema,),
    )
    if await found.fetchone() is None:
        return None
    found = await conn.execute(tables.sql("SELECT version FROM {version}"))
    row = await found.fetchone()
    version = Version.parse(0 if row is None else row[0])
    if not version.admits(len(kind.migrations)):
        raise kind.newer(
            f"the schema {tables.schema!r} has {kind.name} version {version.number}, but "
            f"this program knows only up to version {len(kind.migrations)}; it was not touched. "
            "Upgrade the program, or use another schema."
        )
    return version.number
