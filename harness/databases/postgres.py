"""Postgres connections: connection pool, transactions and errors.

It requires the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from ..errors import HarnessError
from . import reason_of

__all__ = [
    "AsyncConnection",
    "Error",
    "LockNotAvailable",
    "Pipeline",
    "PostgresDatabase",
    "UniqueViolation",
    "conninfo_to_dict",
]

try:
    from psycopg import (
        AsyncConnection,
        Error,
        InterfaceError,
        IsolationLevel,
        OperationalError,
        Pipeline,
    )
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import LockNotAvailable, UniqueViolation
    from psycopg.pq import TransactionStatus
    from psycopg_pool import AsyncConnectionPool
except ImportError as missing:
    raise ImportError(
        "Postgres needs the extra `postgres`: pip install 'deep-agent-mcp[postgres]'"
    ) from missing

from .postgres_tables import DatabaseKind, Tables, set_up  # needs psycopg

T = TypeVar("T")

_IDLE_MILLISECONDS = 10_000
"""How long a transaction may be idle before the server ends it. An idle transaction holds locks
that other processes need to take over its runs."""

_LATER = 5.0
"""Seconds that the server's timeout is longer than ours, so that the caller sees our error."""


class PostgresDatabase:
    """The tables of one kind in a schema, and a connection pool for them; for one event loop.

    It connects on first use or in `open()`. A transaction that has started is completed even if its
    caller is cancelled. `close()` is final.

    The server ends statements that take longer than a caller waits, and transactions of machines
    that have disappeared. So no lock is held longer than its owner lives.

    Args:
        kind: The kind of tables.
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the tables, up to 63 bytes; created if missing.
        connections: Maximum number of connections; other callers wait.
        timeout: Maximum seconds to wait for a connection, and then for the server.
        prepare: Called with a connection after the tables are set up, before the first use.

    Raises:
        ValueError: `connections` or `timeout` is not positive, or `schema` is not a valid name.
    """

    def __init__(
        self,
        kind: DatabaseKind,
        conninfo: str,
        schema: str,
        *,
        connections: int,
        timeout: float,
        prepare: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        if connections < 1 or timeout <= 0:
            raise ValueError("connections and timeout must be positive")
        if not 1 <= len(schema.encode()) <= 63 or set(schema) & {"%", "\0"}:
            raise ValueError(f"a schema has 1 to 63 bytes, without % and NUL; got {schema!r}")
        self.tables = Tables(schema, (*kind.tables, *kind.indexes), kind.sequences)
        self._kind = kind
        self._conninfo = conninfo
        self._timeout = timeout
        self._most = connections
        self._prepare = prepare
        self._turns = anyio.Semaphore(connections)
        self._opening = anyio.Lock()
        self._pool: AsyncConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect, and create or migrate the tables if needed; a second call does nothing.

        Raises:
            HarnessError: `newer`: a newer version created the tables; they are unchanged. `error`:
                the database cannot be reached or refused.
        """
        await self._open()

    async def close(self) -> None:
        """Wait for work in progress, then close all connections; a second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                pool, self._pool = self._pool, None
                if pool is not None:
                    for _ in range(self._most):
                        await self._turns.acquire()  # waits for each caller; their time is limited
                    await pool.close(timeout=self._timeout)
                    for _ in range(self._most):
                        self._turns.release()

    async def transact(
        self, work: Callable[[AsyncConnection], Awaitable[T]], *, seconds: float | None = None
    ) -> T:
        """Run `work` in one transaction, READ COMMITTED unless its first statement changes that.

        Args:
            work: Called with a connection inside the transaction; an exception rolls it back.
            seconds: Maximum duration; by default `timeout`.

        Raises:
            HarnessError: `error`; the text says whether anything was changed.
        """
        outcome = "Nothing was changed; try again"
        async with self._turn():
            try:
                async with self._borrowed(seconds or self._timeout) as conn, conn.transaction():
                    result = await work(conn)
                    outcome = "It is not known whether the batch was stored; check, then continue"
            except (Error, TimeoutError) as error:
                raise self._failed(error, outcome) from error
            return result

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` that only reads. If it needs several statements, it starts a transaction.

        Raises:
            HarnessError: `error`.
        """
        async with self._turn():
            try:
                async with self._borrowed(self._timeout) as conn:
                    return await work(conn)
            except (Error, TimeoutError) as error:
                raise self._failed(error, "Nothing was changed; try again") from error

    async def work_apart(
        self, work: Callable[[AsyncConnection], Awaitable[None]], *, seconds: float
    ) -> None:
        """Run `work` on a separate connection, outside a transaction and without server timeouts.

        Raises:
            HarnessError: `error`.
        """
        await self._open()
        try:
            with anyio.fail_after(seconds, shield=True):
                async with await self._connected() as conn:
                    await work(conn)
        except (Error, TimeoutError) as error:
            raise self._failed(error, "It may be done in part; do it again") from error

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        if self._pool is None or self._loop is not asyncio.get_running_loop():
            await self._open()
        try:
            with anyio.fail_after(self._timeout):
                await self._turns.acquire()
        except TimeoutError as error:
            raise (self._kind.away or self._kind.error)(
                f"all {self._most} connections of the {self._kind.name} were busy for "
                f"{self._timeout:g} s. Nothing was done; try again, or allow more connections."
            ) from error
        try:
            yield
        finally:
            self._turns.release()

    @asynccontextmanager
    async def _borrowed(self, seconds: float) -> AsyncGenerator[AsyncConnection]:
        """Borrow a connection for a limited time in which the caller cannot be cancelled.

        After a cancellation the connection could not be used again, and it would be unknown whether
        the changes were stored.
        """
        pool = self._pool or await self._open()
        with anyio.fail_after(seconds, shield=True):
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
            name = self._kind.name
            if self._closed:
                raise self._kind.error(f"the {name} is closed; nothing was done. Open a new one.")
            if self._pool is None:
                try:
                    self._pool = await self._connect()
                except (Error, TimeoutError) as error:
                    outcome = "Check the connection string, the server, and the user's rights"
                    raise self._failed(error, outcome) from error
                self._loop = asyncio.get_running_loop()
            if self._loop is not asyncio.get_running_loop():
                raise self._kind.error(
                    f"the {name} was opened in another event loop; nothing was done. Open one in "
                    "each loop."
                )
            return self._pool

    async def _connect(self) -> AsyncConnectionPool:
        with anyio.fail_after(self._timeout, shield=True):
            # A separate connection, because a pool does not report why it cannot connect.
            async with await self._connected() as conn:
                await set_up(conn, self._kind, self.tables)
                if self._prepare is not None:
                    await self._prepare(conn)
            pool: AsyncConnectionPool = AsyncConnectionPool(
                self._conninfo,
                kwargs={"autocommit": True},  # transactions are started explicitly
                configure=self._configure,
                min_size=1,
                max_size=self._most,
                timeout=self._timeout,
                check=_require_life,
                open=False,
            )
            await pool.open()
        return pool

    async def _connected(self) -> AsyncConnection:
        conn = await AsyncConnection.connect(self._conninfo, autocommit=True)
        await _see_what_others_stored(conn)
        return conn

    async def _configure(self, conn: AsyncConnection) -> None:
        await _see_what_others_stored(conn)
        limit = round((self._timeout + _LATER) * 1000)
        limits = {
            "statement_timeout": str(limit),
            "idle_in_transaction_session_timeout": str(min(limit, _IDLE_MILLISECONDS)),
        }
        for name, value in {**limits, **self._kind.settings}.items():
            await conn.execute("SELECT set_config(%s, %s, false)", (name, value))

    def _failed(self, error: Exception, outcome: str) -> HarnessError:
        silent = isinstance(error, TimeoutError)
        what = "it did not answer in time" if silent else reason_of(error)
        away = silent or isinstance(error, OperationalError | InterfaceError)
        made = self._kind.away if away and self._kind.away is not None else self._kind.error
        return made(f"the database of the {self._kind.name} failed: {what}. {outcome}.")


async def _require_life(conn: AsyncConnection) -> None:
    """Check an idle connection, but only if data has arrived on it.

    If the connection or the server ends, the socket becomes readable. A silent connection needs no
    round trip.

    Raises:
        Error: The connection is dead.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(conn.fileno(), selectors.EVENT_READ)
        has_arrived = bool(selector.select(0))
    if has_arrived:
        await AsyncConnectionPool.check_connection(conn)


async def _see_what_others_stored(conn: AsyncConnection) -> None:
    """Set READ COMMITTED, so that whoever waited for a lock sees what its holder committed."""
    await conn.set_isolation_level(IsolationLevel.READ_COMMITTED)
