"""A store in a Postgres database: for many processes and machines.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Self, Unpack

import anyio

try:
    from psycopg import AsyncConnection, Error, IsolationLevel
    from psycopg.pq import TransactionStatus
    from psycopg_pool import AsyncConnectionPool
except ImportError as missing:
    raise ImportError(
        "PostgresStore needs the extra `postgres`: pip install 'deep-agent-mcp[postgres]'"
    ) from missing

from harness.store.base import Result, StoreError, StoreOptions
from harness.store.planned import Planned, PlannedStore
from harness.store.postgres_queries import Work
from harness.store.postgres_schema import Tables, pgvector_schema, set_up

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
        if connections < 1 or timeout <= 0:
            raise ValueError("connections and timeout must be positive")
        if not 1 <= len(schema.encode()) <= 63 or set(schema) & {"%", "\0"}:
            raise ValueError(f"a schema has 1 to 63 bytes, without % and NUL; got {schema!r}")
        self._conninfo = conninfo
        self._tables = Tables(schema)
        self._own_clock = "clock" in options
        self._timeout = timeout
        self._most = connections
        self._turns = anyio.Semaphore(connections)
        self._opening = anyio.Lock()
        self._pool: AsyncConnectionPool | None = None
        self._pgvector: str | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Connect, and create or migrate the tables if need be. Does nothing when it is open.

        Raises:
            NewerStore: A newer version made the tables; they were not touched.
            StoreError: The database cannot be reached, or refuses.
        """
        await self._open()

    async def close(self) -> None:
        """Finish what has begun, then close all connections. A second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                pool, self._pool = self._pool, None
                if pool is not None:
                    for _ in range(self._most):
                        await self._turns.acquire()  # each is held for a bounded time
                    await pool.close(timeout=self._timeout)
                    for _ in range(self._most):
                        self._turns.release()

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        pool = self._pool or await self._open()
        try:
            with anyio.fail_after(self._timeout):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StoreError(
                f"all {self._most} connections of the store were busy for {self._timeout:g} s. "
                "Nothing was done; try again, or allow more connections."
            ) from error
        try:
            return await self._transact(pool, planned)
        finally:
            self._turns.release()

    async def _transact(
        self, pool: AsyncConnectionPool, planned: Sequence[Planned]
    ) -> list[Result]:
        results: list[Result] = []
        outcome = "Nothing was changed; try again"
        now = self._clock() if self._own_clock else None
        try:
            async with self._connection(pool) as conn, conn.transaction():
                work = Work(conn, self._tables, now, self._refresh_on_read, self._pgvector)
                results = await work.do(planned)
                outcome = "It is not known whether the batch was stored; look, then go on"
        except (Error, TimeoutError) as error:
            raise StoreError(_message(error, outcome)) from error
        return results

    @asynccontextmanager
    async def _connection(self, pool: AsyncConnectionPool) -> AsyncGenerator[AsyncConnection]:
        """Borrow a connection for a bounded time in which the caller cannot be cancelled.

        Cancelled half-way, it would have to be thrown away, and nobody would know whether the batch
        was stored.
        """
        with anyio.fail_after(self._timeout, shield=True):
            conn = await pool.getconn()
            try:
                yield conn
            finally:
                with anyio.CancelScope(shield=True):
                    if conn.info.transaction_status != TransactionStatus.IDLE:
                        await conn.close()  # the server did not answer in time
                    await pool.putconn(conn)

    async def _open(self) -> AsyncConnectionPool:
        async with self._opening:
            if self._closed:
                raise StoreError("the store is closed; nothing was done. Open a new one.")
            if self._pool is None:
                try:
                    self._pool = await self._connect()
                except (Error, TimeoutError) as error:
                    outcome = "Check the connection string, the server, and the user's rights"
                    raise StoreError(_message(error, outcome)) from error
            return self._pool

    async def _connect(self) -> AsyncConnectionPool:
        with anyio.fail_after(self._timeout, shield=True):
            # On its own, since a pool does not say why it cannot connect.
            async with await AsyncConnection.connect(self._conninfo, autocommit=True) as conn:
                await set_up(conn, self._tables)
                self._pgvector = await pgvector_schema(conn)
            pool: AsyncConnectionPool = AsyncConnectionPool(
                self._conninfo,
                kwargs={"autocommit": True},  # transactions are begun in so many words
                configure=_configure,
                min_size=1,
                max_size=self._most,
                timeout=self._timeout,
                check=AsyncConnectionPool.check_connection,
                open=False,
            )
            await pool.open()
        return pool


async def _configure(conn: AsyncConnection) -> None:
    # Whatever the database's default is: a put sees what one that it waited for has stored.
    await conn.set_isolation_level(IsolationLevel.READ_COMMITTED)


def _message(error: Exception, outcome: str) -> str:
    what = "it did not answer in time" if isinstance(error, TimeoutError) else str(error).strip()
    return f"the database of the store failed: {what}. {outcome}."
