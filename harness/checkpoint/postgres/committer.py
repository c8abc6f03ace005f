"""Postgres committer: combines batches that wait at the same time into one transaction.

A group is a transaction with one batch each of several threads. It takes only free locks: if
another process is changing a thread, its batch is stored in a separate transaction that waits. So
is each batch of a group that the server refuses. Batches of one thread are stored one after the
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio

from ...databases.postgres import AsyncConnection, Error, PostgresDatabase
from ...errors import CheckpointError, HarnessError
from ..admission import run_elsewhere
from ..base import Batch, EventLimits
from ..codec import off_loop, weight_of
from .batches import EncodedBatch
from .commits import Collision, ServerClock, store
from .database import Session
from .stored_facts import lock, lock_free

__all__ = ["Committer"]

_GROUP = 64
"""The most batches in one transaction; the server limits the locks of a connection."""

_GROUPS = 2
"""The most groups at once: one is prepared while the other waits for the disk."""


class _Commit:
    """A batch on its way to the database.

    Attributes:
        entry: The batch as rows.
        wanted: False once the caller is gone; a batch still queued then is dropped.
        apart: Whether it has to be stored separately: its thread was busy, or its group failed.
        settled: Whether the group is done with it.
        stored: Whether it is in the database.
        error: Why it was refused.
    """

    __slots__ = ("apart", "entry", "error", "settled", "stored", "wanted")

    def __init__(self, entry: EncodedBatch) -> None:
        self.entry = entry
        self.wanted = True
        self.apart = False
        self.settled = False
        self.stored = False
        self.error: HarnessError | None = None

    def fail(self, error: CheckpointError) -> None:
        """Mark that its group failed, if it was still part of it."""
        if not self.apart:
            self.error = type(error)(*error.args)
            self.error.__cause__ = error.__cause__


class Committer:
    """The batches of this process on their way to one database.

    Args:
        database: The database.
        limits: How many events to keep.
        clock: Gives the time when threads were changed.
    """

    def __init__(self, database: PostgresDatabase, limits: EventLimits, clock: ServerClock) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._queue: deque[_Commit] = deque()
        self._moving: set[str] = set()
        self._underway = 0
        self._groups = 0
        self._gathering = False
        self._group_done = anyio.Event()
        self._closing = False

    async def commit(self, batch: Batch) -> None:
        """Store a batch that has passed `check_batch`.

        Raises:
            StaleThread: Another process changed the thread; nothing was stored.
            CheckpointError: The batch or the database cannot be written.
        """
        if self._closing:
            raise CheckpointError("the journal is closed; nothing was stored. Open a new one.")
        self._underway += 1
        try:
            await self._store(
                _Commit(await off_loop(weight_of(batch), lambda: EncodedBatch.of(batch)))
            )
        finally:
            self._underway -= 1
            if self._closing:
                self._wake()

    async def close(self) -> None:
        """Refuse further batches, and wait until all pending ones are stored."""
        self._closing = True
        while self._underway:
            await self._advance()

    async def _store(self, commit: _Commit) -> None:
        """Wait until a batch is stored, and store groups meanwhile."""
        self._queue.append(commit)
        try:
            while not commit.settled:
                await self._advance()
            if commit.apart:
                await self._store_apart(commit.entry)
                commit.stored = True
        finally:
            commit.wanted = False
            if commit.apart:
                self._moving.discard(commit.entry.thread_id)
                self._wake()
        if commit.error is not None:
            raise commit.error
        if not commit.stored:
            raise CheckpointError(
                f"a commit to thread {commit.entry.thread_id!r} was given up, and it is not known "
                f"whether it was stored. Load the thread's head and look."
            )

    async def _advance(self) -> None:
        """Store a group of queued batches, or wait until others have stored something."""
        # Batches of one thread wait here, where they need no connection.
        ready = any(commit.entry.thread_id not in self._moving for commit in self._queue)
        if self._gathering or self._groups == _GROUPS or not ready:
            await self._group_done.wait()
            return
        self._gathering = True
        self._groups += 1
        try:
            await self._store_group()
        finally:
            self._groups -= 1
            self._wake()

    async def _store_group(self) -> None:
        group: list[_Commit] = []
        try:
            await self._transact(group)
        finally:
            if not group:
                self._gathering = False
            for commit in group:
                commit.settled = True
                if not (commit.apart and commit.wanted):
                    self._moving.discard(commit.entry.thread_id)

    async def _transact(self, group: list[_Commit]) -> None:
        """Take a group from the queue and store it; the queue waits until there is room."""

        async def work(conn: AsyncConnection) -> None:
            self._gather(group)
            if group:
                await self._store_free(conn, group)

        try:
            await self._database.transact(work)
        except CheckpointError as error:
            if not group:  # it has not begun, and the others have waited just as long
                self._gather(group)
            for commit in group:
                commit.fail(error)
        except Collision:
            for commit in group:
                commit.apart = True
        else:
            for commit in group:
                commit.stored = commit.error is None and not commit.apart

    def _gather(self, group: list[_Commit]) -> None:
        group.extend(self._dequeued())
        self._gathering = False
        if self._queue:
            self._wake()

    def _dequeued(self) -> list[_Commit]:
        """Take batches from the queue, one for each thread that has none under way."""
        group: list[_Commit] = []
        left: list[_Commit] = []
        while self._queue and len(group) < _GROUP:
            commit = self._queue.popleft()
            if commit.entry.thread_id in self._moving:
                left.append(commit)
            elif commit.wanted:
                self._moving.add(commit.entry.thread_id)
                group.append(commit)
        self._queue.extendleft(reversed(left))
        return group

    async def _store_free(self, conn: AsyncConnection, group: Sequence[_Commit]) -> None:
        """Store the batches whose threads no other process is changing."""
        session = Session(conn, self._database.tables)
        try:
            free = await lock_free(session, [commit.entry for commit in group])
            locked = {facts.entry for facts in free.facts}
            for commit in group:
                commit.apart = commit.entry not in locked
            refusals = await store(session, free, self._limits, self._clock)
        except Error as error:
            if conn.closed:
                raise
            raise Collision from error  # each batch has to succeed or fail by itself
        for commit in group:
            commit.error = refusals.get(commit.entry)

    async def _store_apart(self, entry: EncodedBatch) -> None:
        """Store a batch in a separate transaction, which waits for its thread."""

        async def work(conn: AsyncConnection) -> None:
            session = Session(conn, self._database.tables)
            locked = await lock(session, entry)
            refusals = await store(session, locked, self._limits, self._clock)
            if refusals:
                raise refusals[entry]

        for tries_left in (1, 0):
            try:
                await self._database.transact(work)
            except Collision as error:
                if not tries_left:  # a faster process would be visible now
                    raise run_elsewhere(error.run_id) from error
            else:
                return

    def _wake(self) -> None:
        done, self._group_done = self._group_done, anyio.Event()
        done.set()
