"""Postgres tables: created and migrated on first use, in a schema of their own.

The table `version` holds how many migrations they have had;
those run in one transaction, under a lock that makes processes take turns.
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
        name: What they are called in errors.
        lock: What processes that set them up wait for.
        tables: Their names; `version` is added.
        sequences: Names of sequences.
        indexes: Names of indexes that a migration drops.
        migrations: Statements by version, from 1; a released script never changes.
        error: What is raised when the database cannot be used.
        away: What is raised instead when it cannot be used just now; by default the same.
        newer: What is raised when a newer version made the tables.
        readable_from: The oldest version whose programs may use these tables; by default the last.
        settings: Of the server, for each connection.
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
    """The names of the tables, for SQL.

    Args:
        schema: The schema they are in.
        names: Their names without it.
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
        """Return a statement with the names in place.

        Args:
            text: SQL that holds names of tables in braces, and `next_of_…` for the next number of
                a sequence; never anything that a caller has given.
            **parts: Further parts, by name.
        """
        return SQL(text).format(**self._names, **parts)

    def statement(self, text: str) -> bytes:
        """Return a statement with the names in place, made once; for texts of which few exist."""
        made = self._statements.get(text)
        if made is None:
            made = self._statements[text] = self.sql(text).as_bytes(None)
        return made


async def set_up(conn: AsyncConnection, kind: DatabaseKind, tables: Tables) -> None:
    """Make or migrate the tables, and the schema if it is missing.

    Raises:
        HarnessError: `newer`; the tables were not touched.
        Error: The server refuses.
    """
    ours = len(kind.migrations)
    if (await _version(conn, kind, tables) or 0) >= ours:
        return
    async with conn.transaction():
        await conn.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (kind.lock, tables.schema)
        )
        version = await _version(conn, kind, tables)  # again: another process may be faster
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
    # IF NOT EXISTS would ask for the right to create one also where there is nothing to do.
    found = await conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (tables.schema,))
    if await found.fetchone() is None:
        await conn.execute(SQL("CREATE SCHEMA {}").format(Identifier(tables.schema)))
    await conn.execute(tables.sql("CREATE TABLE {version} (version integer NOT NULL)"))
    await conn.execute(tables.sql("INSERT INTO {version} VALUES (0)"))


async def _version(conn: AsyncConnection, kind: DatabaseKind, tables: Tables) -> int | None:
    """Return the version of the tables; None where there are none."""
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
