"""Brings batches into the SQLite journal, those that wait at the same time together.

A group is one transaction, waits for the disk once, and inserts the rows of its steps together
(`WaitingRows`). When one of its batches is refused, it begins anew with each batch in a savepoint
of its own, so that the refused one fails alone. It does not begin so: savepoints copy every page
that a batch changes, and a batch is hardly ever refused.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from harness.checkpoint.base import Batch, EventLimits
from harness.checkpoint.laws import Clock
from harness.checkpoint.sqlite import rows
from harness.checkpoint.sqlite.connections import JournalConnection, failed
from harness.checkpoint.sqlite.log_syncer import LogSyncer
from harness.checkpoint.sqlite.pages import Pager
from harness.checkpoint.sqlite.schema import transaction
from harness.checkpoint.sqlite.waiting_rows import WaitingRows
from harness.errors import CheckpointError
from harness.lazy_event import LazyEvent

__all__ = ["Committer"]

T = TypeVar("T")

_BATCH_ERRORS = (
    CheckpointError,
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    TypeError,
    OverflowError,
)
"""What one batch can do wrong; anything else is the database's and concerns the whole group."""


class _Commit:
    """A batch on its way to the disk.

    Attributes:
        batch: The batch.
        wanted: False once the caller is gone; a batch still queued then is dropped.
        finished: Whether the writer is done with it.
        stored: Whether it is on disk.
        error: Why it was refused.
    """

    __slots__ = ("batch", "error", "finished", "stored", "wanted")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.wanted = True
        self.finished = False
        self.stored = False
        self.error: Exception | None = None


class Committer:
    """Makes every transaction that changes one file.

    Args:
        path: The file.
        clock: Says when a batch was stored.
        event_limits: How many events are kept.
    """

    def __init__(self, path: Path, clock: Clock, event_limits: EventLimits) -> None:
        self._path = path
        self._clock = clock
        self._event_limits = event_limits
        self._queue: deque[_Commit] = deque()
        self._rounds: dict[int, LazyEvent] = {}
        self._syncer: LogSyncer | None = None
        self._pager = Pager()
        self._waits: bool | None = None

    async def commit(self, writer: JournalConnection, batch: Batch) -> None:
        """Store a batch that `check_batch` has passed; see `SqliteCheckpointer.commit`."""
        commit = _Commit(batch)
        self._queue.append(commit)
        try:
            while not commit.finished:
                await self._round(writer)
        finally:
            commit.wanted = False
        if commit.error is not None:
            raise commit.error
        if not commit.stored:
            raise CheckpointError(
                f"a commit to the journal {self._path} was given up; nothing was stored. Try again."
            )

    def apart(self, conn: sqlite3.Connection, function: Callable[..., T], *args: object) -> T:
        """Run a function in a transaction of its own; runs in the writer's thread."""
        self._pager.leave()
        self._wait_for_disk(conn, True)
        with transaction(conn):
            return function(conn, *args)

    async def finish(self, writer: JournalConnection) -> None:
        """Store what was handed over; the last thing to be done."""
        if self._syncer is not None:
            await anyio.to_thread.run_sync(self._syncer.close)
        await writer.run(self._commit_queued)
        with suppress(CheckpointError):  # it only saves room
            await writer.run(self._fill_pages)

    async def _round(self, writer: JournalConnection) -> None:
        """Have the queue committed, or wait until somebody else has.

        Of all who wait in one event loop, one sends the writer to the queue, and wakes the others
        when it returns; what they queued meanwhile is the next group.
        """
        thread = threading.get_ident()
        others = self._rounds.get(thread)
        if others is not None:
            await others.wait()
            return
        done = self._rounds[thread] = LazyEvent()
        try:
            await writer.run(self._commit_queued)
        finally:
            del self._rounds[thread]
            done.set()

    def _commit_queued(self, conn: sqlite3.Connection) -> None:
        """Commit all queued batches in one transaction; runs in the writer's thread."""
        group = self._dequeue()
        if not group:
            return
        synced = any(commit.batch.synced for commit in group)
        try:
            self._wait_for_disk(conn, synced)
            self._store_together(conn, group)
            self._pager.fill(conn)
            conn.execute("COMMIT")
        except sqlite3.Error as error:
            self._pager = Pager()
            for commit in group:
                commit.error = commit.error or failed(self._path, "written", error)
        else:
            for commit in group:
                commit.stored = commit.error is None
            if not synced:
                self._sync_soon()
        finally:
            for commit in group:
                commit.finished = True
            if conn.in_transaction:
                conn.execute("ROLLBACK")

    def _dequeue(self) -> list[_Commit]:
        group: list[_Commit] = []
        while self._queue:
            commit = self._queue.popleft()
            if commit.wanted:
                group.append(commit)
        return group

    def _wait_for_disk(self, conn: sqlite3.Connection, wait: bool) -> None:
        """Say whether the next commit waits for the disk, or leaves that to the syncer."""
        if wait != self._waits:
            conn.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")
            self._waits = wait

    def _sync_soon(self) -> None:
        if self._syncer is None:
            self._syncer = LogSyncer(self._path)
        self._syncer.note()

    def _store_together(self, conn: sqlite3.Connection, group: Sequence[_Commit]) -> None:
        """Begin a transaction and store the batches of a group; each that is refused knows why."""
        conn.execute("BEGIN IMMEDIATE")
        self._pager.begin()
        try:
            self._insert(conn, [commit.batch for commit in group])
        except _BATCH_ERRORS:
            self._pager.undo()
            conn.execute("ROLLBACK")
            conn.execute("BEGIN IMMEDIATE")
            for commit in group:
                commit.error = self._store_or_refuse(conn, commit.batch)

    def _store_or_refuse(self, conn: sqlite3.Connection, batch: Batch) -> Exception | None:
        """Store one batch of a group; return why it was refused."""
        conn.execute("SAVEPOINT batch")
        self._pager.begin()
        try:
            self._insert(conn, [batch])
        except _BATCH_ERRORS as error:
            self._pager.undo()
            conn.execute("ROLLBACK TO batch")
            conn.execute("RELEASE batch")
            if isinstance(error, CheckpointError):
                return error
            refused = CheckpointError(
                f"a batch of thread {batch.thread_id!r} cannot be stored: {error}. Nothing of it "
                f"was; mend the value and commit again."
            )
            refused.__cause__ = error
            return refused
        conn.execute("RELEASE batch")
        return None

    def _insert(self, conn: sqlite3.Connection, batches: Iterable[Batch]) -> None:
        waiting = WaitingRows(conn, self._pager)
        for batch in batches:
            rows.store(conn, batch, self._clock.now(), waiting, self._event_limits)
        waiting.insert()

    def _fill_pages(self, conn: sqlite3.Connection) -> None:
        """Put what is left into pages, as nobody will add to it."""
        with transaction(conn):
            self._pager.fill(conn, everything=True)
