"""The journal in a Postgres database: for many processes and machines.

Who changes a thread holds its lock, wherever it runs. Commits that wait at the same time share
transactions; how is said in `harness.checkpoint.postgres.committer`.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import anyio

from ...databases.postgres import AsyncConnection, LockNotAvailable, PostgresDatabase
from ...errors import CheckpointError
from ..base import (
    Batch,
    Checkpoint,
    EventLimits,
    FileChange,
    Interrupt,
    Rewrite,
    Run,
    RunEvent,
    RunStatus,
    ThreadInfo,
    ThreadSlice,
)
from ..invariants import check_batch
from ..maintenance import check_prune
from . import maintenance as upkeep
from . import queries
from . import rewrite as postgres_rewrite
from .commits import ServerClock
from .committer import Committer
from .schema import JOURNAL, VACUUM
from .session import Session

__all__ = ["PostgresCheckpointer"]

T = TypeVar("T")

_PATIENCE = 20
"""How many times longer upkeep may take than a commit."""


_PAUSE = 1.0
"""Seconds in which others store large values, before they are to wait again."""


class _Busy(Exception):
    """Others are storing large values."""


class PostgresCheckpointer:
    """A `Checkpointer` over tables in a Postgres database; one instance serves one event loop.

    It connects at the first use, or by `open()` or `async with` if its errors are wanted early, and
    makes the tables if they are missing. A transaction that has begun is completed even if its
    caller is cancelled. `close()` is final; a program that leaves it out may hang at its end.

    A batch that is not `synced` survives the death of this process, and reaches the server's disk
    within three times its `wal_writer_delay` (0.6 s by default).

    Args:
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the tables, up to 63 bytes; made if missing.
        connections: How many there are at most; more callers wait.
        timeout: Seconds that a caller waits for a connection at most, and then for the server.
            Upkeep of a thread (prune, delete, copy, rewrite) and `vacuum` may take 20 times that.
        event_limits: How many events it keeps.

    Raises:
        ValueError: `connections` or `timeout` is not positive, or `schema` is no name of one.
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
        self._database = PostgresDatabase(
            JOURNAL, conninfo, schema, connections=connections, timeout=timeout
        )
        self._clock = ServerClock()
        self._committer = Committer(self._database, event_limits or EventLimits(), self._clock)
        self._timeout = timeout
        self._patience = timeout * _PATIENCE

    async def __aenter__(self) -> PostgresCheckpointer:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and create or migrate the tables if need be. Does nothing when it is open.

        Raises:
            NewerDatabase: A newer version made the tables; they were not touched.
            CheckpointError: The database cannot be reached, or refuses.
        """
        await self._database.open()

    async def commit(self, batch: Batch) -> None:
        """Store a batch, all of it or nothing; see `Checkpointer.commit`.

        A caller that is cancelled while the batch waits withdraws it; once its transaction has
        begun, it completes.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
            CheckpointError: The batch or the database cannot be written; nothing was stored, unless
                the text says that this is not known.
            ValueError: The batch mixes threads or namespaces; nothing was stored.
        """
        check_batch(batch)
        await self._committer.commit(batch)

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
        schema: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint with the writes that lead to it; see `Checkpointer.load`.

        Raises:
            CheckpointError: The database cannot be read.
        """
        return await self._read(
            lambda session: queries.load(session, thread_id, ns, checkpoint_id, cached, schema)
        )

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first; nothing when `before` is unknown."""
        return await self._read(
            lambda session: queries.history(session, thread_id, ns, before, limit)
        )

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread that have checkpoints, in order of their first."""
        return await self._read(lambda session: queries.namespaces(session, thread_id))

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads by the beginning of their ids, last changed first; reads no value."""
        return await self._read(lambda session: queries.threads(session, limit, before, prefix))

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        return await self._read(lambda session: queries.run(session, run_id))

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        idempotency_key: str | None = None,
        prefix: str = "",
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs that match every given filter, last begun first."""
        return await self._read(
            lambda session: queries.find_runs(
                session, thread_id, status, idempotency_key, prefix, limit
            )
        )

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, oldest step first, then by index."""
        return await self._read(lambda session: queries.interrupts(session, run_id))

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        return await self._read(lambda session: queries.file_changes(session, thread_id, since_seq))

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        return await self._read(lambda session: queries.events(session, run_id, after, limit))

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that belongs to it; unknown ids do nothing.

        Raises:
            CheckpointError: The database cannot be written.
        """
        await self._free(
            await self._keep_up(lambda session: upkeep.delete_thread(session, thread_id))
        )

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        await self._keep_up(
            lambda session: upkeep.copy_thread(session, source, target, self._clock)
        )

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints, each thread's in a transaction; see `Checkpointer.prune`."""
        check_prune(keep_latest, older_than)
        names = [thread_id] if thread_id is not None else await self._read(upkeep.all_threads)
        removed, unheld = 0, set[bytes]()
        for name in names:
            count, digests = await self._keep_up(
                lambda session, name=name: upkeep.prune(session, name, keep_latest, older_than)
            )
            removed += count
            unheld |= {*digests}
        await self._free(unheld)
        return removed

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all they made, each in a transaction; see the protocol."""
        made = await self._read(lambda session: upkeep.threads_of_runs(session, run_ids))
        unheld = set[bytes]()
        for place in made:
            unheld |= {
                *await self._keep_up(
                    lambda session, place=place: upkeep.delete_run(session, *place)
                )
            }
        await self._free(unheld)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes that a thread's values take in the database."""
        return await self._read(lambda session: upkeep.thread_size(session, thread_id))

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`."""
        await self._free(
            await self._keep_up(
                lambda session: postgres_rewrite.rewrite(session, thread_id, rewrite)
            )
        )

    async def vacuum(self) -> None:
        """Make the room of what was deleted usable again; nobody has to wait for it.

        Raises:
            CheckpointError: The tables belong to another user of the database.
        """
        await self._free(await self._keep_up(upkeep.unused_blobs))
        await self._database.work_apart(self._vacuum, seconds=self._patience)

    async def close(self) -> None:
        """Finish what was handed over, then close all connections. A second call does nothing."""
        with anyio.CancelScope(shield=True):
            await self._committer.close()
            await self._database.close()

    def _session(self, conn: AsyncConnection) -> Session:
        return Session(conn, self._database.tables)

    async def _read(self, query: Callable[[Session], Awaitable[T]]) -> T:
        return await self._database.read(lambda conn: query(self._session(conn)))

    async def _keep_up(self, function: Callable[[Session], Awaitable[T]]) -> T:
        """Run a function in a transaction that may take long."""

        async def work(conn: AsyncConnection) -> T:
            session = self._session(conn)
            await session.allow_seconds(self._patience)
            return await function(session)

        return await self._database.transact(work, seconds=self._patience)

    async def _free(self, digests: Collection[bytes]) -> None:
        """Delete large values that nothing holds now, after what let go of them is stored.

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
                await upkeep.free_blobs(self._session(conn), digests)
            except LockNotAvailable:
                raise _Busy from None  # through the end of the transaction
            return True

        try:
            return await self._database.transact(work, seconds=self._patience)
        except _Busy:
            return False

    async def _vacuum(self, conn: AsyncConnection) -> None:
        await conn.execute(self._database.tables.sql(VACUUM))
