"""The tables of the Postgres store, and how they are made.

They live in a schema of their own. `version` holds how many migrations they have had; those run in
one transaction, under a lock that makes processes take turns.

How `items.namespace` is written is said in `harness.store.names`. `items.value` is JSON text as it
was given, so that numbers and the order of keys come back as they were, but for two characters:
see `harness.store.postgres_values`. `items.words` is made of the words that `harness.store.texts`
found; no text search configuration is used. `vectors.direction` is a plain array, which pgvector
reads as a vector where it is installed.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Composed, Identifier

from harness.store.base import NewerStore

__all__ = ["Tables", "pgvector_schema", "set_up"]

_CREATE = (
    """CREATE TABLE {items} (
        item bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        value json NOT NULL,
        words tsvector NOT NULL,
        created_at double precision NOT NULL,
        updated_at double precision NOT NULL,
        ttl double precision,
        expires_at double precision,
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX items_by_word ON {items} USING gin (words)",
    "CREATE INDEX items_by_expiry ON {items} (expires_at) WHERE expires_at IS NOT NULL",
    """CREATE TABLE {vectors} (
        item bigint NOT NULL REFERENCES {items} ON DELETE CASCADE,
        direction real[] NOT NULL
    )""",
    "CREATE INDEX vectors_by_item ON {vectors} (item)",
)

_MIGRATIONS = (_CREATE,)
"""Statements in order; a released script never changes. Version n is the state after n scripts."""

_LOCK = 0x44414D53
"""What processes that set a store up wait for: `DAMS`."""


class Tables:
    """The names of the tables, for SQL.

    Args:
        schema: The schema they are in.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._names = {name: Identifier(schema, name) for name in ("items", "vectors", "version")}

    def sql(self, text: Any, **parts: Composable) -> Composed:
        """Return a statement with the names in place.

        Args:
            text: SQL that holds `{items}`, `{vectors}` or `{version}`; never anything that a
                caller of the store has given.
            **parts: Further parts, by name.
        """
        return SQL(text).format(**self._names, **parts)


async def set_up(conn: AsyncConnection, tables: Tables) -> None:
    """Make or migrate the tables, and the schema if it is missing.

    Raises:
        NewerStore: A newer version made them; they were not touched.
        psycopg.Error: The server refuses.
    """
    if await _version(conn, tables) == len(_MIGRATIONS):
        return
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, tables.schema))
        version = await _version(conn, tables)  # again: another process may have been faster
        if version is None:
            await _create_schema(conn, tables)
            version = 0
        for script in _MIGRATIONS[version:]:
            for statement in script:
                await conn.execute(tables.sql(statement))
        await conn.execute(tables.sql("UPDATE {version} SET version = %s"), (len(_MIGRATIONS),))


async def pgvector_schema(conn: AsyncConnection) -> str | None:
    """Return the schema in which the extension pgvector is, or None where it is not installed."""
    found = await conn.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    row = await found.fetchone()
    return None if row is None else row[0]


async def _create_schema(conn: AsyncConnection, tables: Tables) -> None:
    # IF NOT EXISTS would ask for the right to create one also where there is nothing to do.
    found = await conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (tables.schema,))
    if await found.fetchone() is None:
        await conn.execute(SQL("CREATE SCHEMA {}").format(Identifier(tables.schema)))
    await conn.execute(tables.sql("CREATE TABLE {version} (version integer NOT NULL)"))
    await conn.execute(tables.sql("INSERT INTO {version} VALUES (0)"))


async def _version(conn: AsyncConnection, tables: Tables) -> int | None:
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
    version = 0 if row is None else row[0]
    if version > len(_MIGRATIONS):
        raise NewerStore(
            f"the schema {tables.schema!r} has store version {version}, but this program knows "
            f"only up to version {len(_MIGRATIONS)}; it was not touched. Upgrade the program, or "
            "use another schema."
        )
    return version
