"""A store in a Postgres database: for many processes and machines.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.

`harness.store.items` describes the form of `items.namespace`. `items.value` is unchanged JSON text,
so that numbers and the order of keys are preserved, except for two characters: see
`harness.store.postgres_search`. `items.words` contains the words found by `harness.store.texts`; no
text search configuration is used. `vectors.direction` is a plain array, which pgvector, if
installed, reads as a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from ..databases.postgres import AsyncConnection, PostgresDatabase
from ..databases.postgres_tables import DatabaseKind
from .base import NewerStore, Result, StoreError, StoreOptions
from .postgres_queries import Work
from .prepared_operations import Planned, PlannedStore

__all__ = ["PostgresStore"]


class PostgresStore(PlannedStore):
    """A `Store` over tables in a Postgres database.

    It connects at the first use, or with `open()` or `async with` if you want errors early, and
    creates missing tables. A transaction that has begun is completed even if its caller is
    cancelled. `close()` is final; a program that omits it may hang at its end.

    Queries are answered by Postgres' full-text search, or, with `embed`, by pgvector if that
    extension is installed in the database (`CREATE EXTENSION vector`). Without it, the store
    compares the 10,000 newest vectors below the prefix, and logs a warning if there are more.

    Args:
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the tables, up to 63 bytes; created if missing.
        connections: The most connections; more callers wait.
        timeout: The most seconds that a caller waits for a connection, and a batch for the server.
        **options: See `StoreOptions`. Without a `clock`, the server's is used.

    Raises:
        InvalidOperation: An option is not as described.
        ValueError: `connections` or `timeout` is not positive, or `schema` is not a valid name.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "deep_agent_store",
        connections: int = 8,
        timeout: float = 30.0,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        self._own_clock = "clock" in options
        self._pgvector: str | None = None
        self._database = PostgresDatabase(
            _STORE,
            conninfo,
            schema,
            connections=connections,
            timeout=timeout,
            prepare=self._look_for_pgvector,
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Connect, and create or migrate the tables if necessary. Does nothing if it is open.

        Raises:
            NewerStore: A newer version made the tables; they were not touched.
            StoreError: The database cannot be reached, or refuses.
        """
        await self._database.open()

    async def close(self) -> None:
        """Finish all pending work, then close all connections. A second call does nothing."""
        await self._database.close()

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        async def work(conn: AsyncConnection) -> Sequence[Result]:
            now = self._clock() if self._own_clock else None
            tables = self._database.tables
            return await Work(conn, tables, now, self._refresh_on_read, self._pgvector).do(planned)

        return await self._database.transact(work)

    async def _look_for_pgvector(self, conn: AsyncConnection) -> None:
        self._pgvector = await _pgvector_schema(conn)


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

_STORE = DatabaseKind(
    name="store",
    lock=0x44414D53,  # `DAMS`
    tables=("items", "vectors"),
    migrations=(_CREATE,),
    error=StoreError,
    newer=NewerStore,
)


async def _pgvector_schema(conn: AsyncConnection) -> str | None:
    """Return the schema of the extension pgvector, or None if it is not installed."""
    found = await conn.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    row = await found.fetchone()
    return None if row is None else row[0]
