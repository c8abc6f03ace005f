"""The tables of the Postgres store.

How `items.namespace` is written is said in `harness.store.names`. `items.value` is JSON text as it
was given, so that numbers and the order of keys come back as they were, but for two characters:
see `harness.store.sql.postgres_values`. `items.words` is made of the words that
`harness.store.texts` found; no text search configuration is used. `vectors.direction` is a plain
array, which pgvector reads as a vector where it is installed.
"""

from __future__ import annotations

from ...databases.postgres import AsyncConnection, DatabaseKind
from ..base import NewerStore, StoreError

__all__ = ["STORE", "pgvector_schema"]

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

STORE = DatabaseKind(
    name="store",
    lock=0x44414D53,  # `DAMS`
    tables=("items", "vectors"),
    migrations=(_CREATE,),
    error=StoreError,
    newer=NewerStore,
)


async def pgvector_schema(conn: AsyncConnection) -> str | None:
    """Return the schema in which the extension pgvector is, or None where it is not installed."""
    found = await conn.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    row = await found.fetchone()
    return None if row is None else row[0]
