"""The journal in a Postgres database: for many processes and machines.

A process that changes a thread holds its lock, on any machine. Commits that wait at the same time
share transactions; see `harness.checkpoint.postgres.committer`.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ...databases.postgres import (
    AsyncConnection,
    LockNotAvailable,
    PostgresDatabase,
    conninfo_to_dict,
)
from ...errors import CheckpointError
from ..base import Batch, EventLimits, Rewrite
from ..facade import JournalFacade, Query
from ..maintenance import check_prune
from . import changes as postgres_rewrite
from . import maintenance, queries
from .commits import ServerClock
from .committer import Committer
from .database import JOURNAL, VACUUM, Session

if TYPE_CHECKING:
    from ..lease import Holder
    from .lease import PostgresLease

__all__ = ["PostgresCheckpointer"]


T = TypeVar("T")

_PATIENCE = 20
"""How many times longer maintenance may take than a commit."""

_PAUSE = 1.0
"""Seconds for which others can store large values before they have to wait again."""


class _Busy(Exception):
    """Others are storing large values."""


class PostgresCheckpointer(JournalFacade):
    """A `Checkpointer` over tables in a Postgres database; one instance serves one event loop.

    It connects at the first use, or with `open()` or `async with` if you want errors early, and
    creates missing tables. A transaction that has begun is completed even if its caller is
    cancelled. `close()` is final; a program that omits it may hang at its end.

    A batch that is not `synced` survives a crash of this process, and reaches the server's disk
    within three times its `wal_writer_delay` (0.6 s by default).

    Args:
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the tables, up to 63 bytes; created if missing.
        connections: The most connections; more callers wait.
        timeout: The most seconds that a caller waits for a connection, and then for the server.
            Maintenance of a thread (prune, delete, copy, rewrite) and `vacuum` may take 20 times as
            long.
        event_limits: How many events it keeps.

    Raises:
        ValueError: `connections` or `timeout` is not positive, or `schema` is not a valid name.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "deep_agent_journal",
        connections: int = 8,
        timeout: float = 30.0,
        event_limits: EventLimits | None = None,
    ) -> None:
        super().__init__(queries)
        self._database = PostgresDatabase(
            JOURNAL, conninfo, schema, connections=connections, timeout=timeout
        )
        self._clock = ServerClock()
        self._committer = Committer(self._database, event_limits or EventLimits(), self._clock)
        self._conninfo = conninfo
        self._timeout = timeout
        self._patience = timeout * _PATIENCE

    async def open(self) -> None:
        """Connect, and create or migrate the tables if necessary; see `JournalFacade.open`."""
        await self._database.open()

    @property
    def place(self) -> str:
        """The server, the database, and the schema."""
        parts = conninfo_to_dict(self._conninfo)
        names = (parts.get(one) for one in ("host", "port", "dbname"))
        where = "/".join(str(one) for one in names if one)
        return f"{self._database.tables.schema} in Postgres at {where or 'its usual place'}"

    def lease(self, holder: Holder) -> PostgresLease:
        """Return a lease on the tables; see `Claimable`."""
        from .lease import PostgresLease  # only servers claim journals

        return PostgresLease(self._conninfo, holder, schema=self._database.tables.schema)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its data; unknown ids are ignored.

        Raises:
            CheckpointError: The database cannot be written.
        """
        await self._free(await self._maintain(maintenance.delete_thread, thread_id))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        await self._maintain(maintenance.copy_thread, source, target, self._clock)

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints, each thread's in a transaction; see `Checkpointer.prune`."""
        check_prune(keep_latest, older_than)
        names = [thread_id] if thread_id is not None else await self._read(maintenance.all_threads)
        removed, unheld = 0, set[bytes]()
        for name in names:
            count, digests = await self._maintain(maintenance.prune, name, keep_latest, older_than)
            removed += count
            unheld |= digests
        await self._free(unheld)
        return removed

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data, each in a transaction; see the protocol."""
        made = await self._read(maintenance.threads_of_runs, run_ids)
        unheld = set[bytes]()
        for place in made:
            unheld |= await self._maintain(maintenance.delete_run, *place)
        await self._free(unheld)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes of a thread's values in the database."""
        return await self._read(maintenance.thread_size, thread_id)

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`."""
        await self._free(await self._maintain(postgres_rewrite.rewrite, thread_id, rewrite))

    async def vacuum(self) -> None:
        """Make the space of deleted data usable again, without blocking others.

        Raises:
            CheckpointError: The tables belong to another user of the database.
        """
        await self._free(await self._maintain(maintenance.unused_blobs))
        await self._database.work_apart(self._vacuum, seconds=self._patience)

    async def close(self) -> None:
        """Store all pending batches, then close all connections. A second call does nothing."""
        with anyio.CancelScope(shield=True):
            await self._committer.close()
            await self._database.close()

    async def _commit(self, batch: Batch) -> None:
        await self._committer.commit(batch)

    def _session(self, conn: AsyncConnection) -> Session:
        return Session(conn, self._database.tables)

    async def _read(self, query: Query, *question: object) -> Any:
        return await self._database.read(lambda conn: query(self._session(conn), *question))

    async def _maintain(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run a function in a transaction that may take long."""

        async def work(conn: AsyncConnection) -> T:
            session = self._session(conn)
            await session.allow_seconds(self._patience)
            return await function(session, *args)

        return await self._database.transact(work, seconds=self._patience)

    async def _free(self, digests: Collection[bytes]) -> None:
        """Delete large values that are no longer used, after the change that released them.

        Raises:
            CheckpointError: Others kept storing large values, or the database failed.
        """
        if not digests:
            return
        try:
            with anyio.fail_after(self._timeout):
                while not await self._freed(digests):  # noqa: ASYNC110  a server gives no event
                    await anyio.sleep(_PAUSE)
        except (CheckpointError, TimeoutError) as error:
            why = str(error) or "others were storing some all the time"
            raise CheckpointError(
                f"it is done, but large values that nothing holds any more are still there "
                f"({why}). Call vacuum() to delete them."
            ) from error

    async def _freed(self, digests: Collection[bytes]) -> bool:
        async def work(conn: AsyncConnection) -> bool:
            try:
                await maintenance.free_blobs(self._session(conn), digests)
            except LockNotAvailable:
                raise _Busy from None  # through the end of the transaction
            return True

        try:
            return await self._database.transact(work, seconds=self._patience)
        except _Busy:
            return False

    async def _vacuum(self, conn: AsyncConnection) -> None:
        await conn.execute(self._database.tables.sql(VACUUM))
