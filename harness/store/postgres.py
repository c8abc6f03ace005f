"""A store in a Postgres database: for many processes and machines.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from ..databases.postgres import AsyncConnection, PostgresDatabase
from .base import Result, StoreOptions
from .prepared_operations import Planned, PlannedStore
from .sql.postgres_queries import Work
from .sql.postgres_schema import STORE, pgvector_schema

__all__ = ["PostgresStore"]


class PostgresStore(PlannedStore):
    """A `Store` over tables in a Postgres database.

    It connects at the first use, or by `open()` or `async with` if its errors are wanted early, and
    makes the tables if they are missing. A transaction that has begun is completed even if its
    caller is cancelled. `close()` is final; a program that leaves it out may hang at its end.

    Queries are answered by Postgres' full-text search, or, with `embed`, by pgvector where that
    extension is installed in the database (`CREATE EXTENSION vector`). Without it, the store
    compares the 10,000 vectors put last below the prefix, and logs a warning when there are more.

    Args:
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the tables, up to 63 bytes; made if missing.
        connections: How many there are at most; more callers wait.
        timeout: Seconds that a caller waits for a connection at most, and a batch for the server.
        **options: See `StoreOptions`. Without a `clock`, the server's is used.

    Raises:
        InvalidOperation: An option is not as described.
        ValueError: `connections` or `timeout` is not positive, or `schema` is no name of one.
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
            STORE,
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
        """Connect, and create or migrate the tables if need be. Does nothing when it is open.

        Raises:
            NewerStore: A newer version made the tables; they were not touched.
            StoreError: The database cannot be reached, or refuses.
        """
        await self._database.open()

    async def close(self) -> None:
        """Finish what has begun, then close all connections. A second call does nothing."""
        await self._database.close()

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        async def work(conn: AsyncConnection) -> Sequence[Result]:
            now = self._clock() if self._own_clock else None
            tables = self._database.tables
            return await Work(conn, tables, now, self._refresh_on_read, self._pgvector).do(planned)

        return await self._database.transact(work)

    async def _look_for_pgvector(self, conn: AsyncConnection) -> None:
        self._pgvector = await pgvector_schema(conn)
