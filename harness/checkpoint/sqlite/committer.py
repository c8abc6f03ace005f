"""SQLite committer: combines batches that wait at the same time into one transaction.

A group is one transaction: it waits for the disk once, and inserts the rows of its steps together
(`InsertBuffer`). If one of its batches is refused, the group starts again with a savepoint for each
batch, so that only the refused one fails. It does not start with savepoints, because they copy
every page that a batch changes, and batches are rarely refused.

After commits that did not wait for the disk, SQLite's log is soon flushed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ...errors import CheckpointError, HarnessError
from ..admission import Clock, unstorable
from ..base import Batch, EventLimits
from . import rows
from .connections import DAMAGE, JournalConnection, failed, transaction
from .insert_buffer import HeadCache, InsertBuffer, StepBegun, keep_numbers
from .page_compaction import Pager

__all__ = ["SYNC_WITHIN", "Committer", "LogSyncer"]


logger = logging.getLogger(__name__)

SYNC_WITHIN = 0.02
"""Seconds from a commit that did not wait for the disk to the sync of the disk."""


class LogSyncer:
    """A thread that syncs the write-ahead log of one database, and sleeps otherwise.

    The log is synced through a separate descriptor. SQLite's locks are on other files, so closing
    the descriptor releases none of them.

    Args:
        database: The database, open in this process until after `close()`.
    """

    def __init__(self, database: Path) -> None:
        self._log = Path(f"{database}-wal")
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal-sync", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Note that a commit did not wait for the disk. Safe from any thread."""
        self._dirty.set()

    def close(self) -> None:
        """End the thread; commits that are not yet synced are left to the database's own close."""
        self._closing.set()
        self._dirty.set()
        self._thread.join()

    def _work(self) -> None:
        descriptor: int | None = None
        try:
            while not self._closing.is_set():  # close() may have come just before the clear()
                self._dirty.wait()
                if self._closing.wait(SYNC_WITHIN):
                    return
                self._dirty.clear()
                if descriptor is None:
                    descriptor = os.open(self._log, os.O_RDWR)
                os.fsync(descriptor)
        except OSError as error:
            logger.error(
                "the journal's log %s cannot be synced (%s). Steps survive this process, but a "
                "power cut may lose the newest; check the disk.",
                self._log,
                error,
            )
        finally:
            if descriptor is not None:
                os.close(descriptor)


T = TypeVar("T")

_BATCH_ERRORS = (
    HarnessError,
    StepBegun,
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors caused by one batch; all others come from the database and affect the whole group."""


class _Commit:
    """A batch on its way to the disk, with its waiting caller.

    Attributes:
        batch: The batch.
        loop: The event loop in which the caller waits.
        settled: Done once the writer has handled it. Cancelled if the caller is gone; a batch that
            is still queued is then dropped.
        error: Why it was not stored.
    """

    __slots__ = ("batch", "error", "loop", "settled")

    def __init__(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        self.batch = batch
        self.loop = loop
        self.settled = loop.create_future()
        self.error: Exception | None = None


class Committer:
    """Executes all transactions that change one file.

    Args:
        path: The file.
        clock: Gives the time when a batch was stored.
        event_limits: How many events are kept.
    """

    def __init__(self, path: Path, clock: Clock, event_limits: EventLimits) -> None:
        self._path = path
        self._clock = clock
        self._event_limits = event_limits
        self._queue: deque[_Commit] = deque()
        self._called = False
        self._syncer: LogSyncer | None = None
        self._pager = Pager()
        self._heads = HeadCache()
        self._waits: bool | None = None

    async def commit(self, writer: JournalConnection, batch: Batch) -> None:
        """Store a batch that has passed `check_batch`; see `SqliteCheckpointer.commit`."""
        commit = _Commit(batch, asyncio.get_running_loop())
        self._queue.append(commit)
        if not self._called:
            self._called = True
            try:
                writer.hand_over(self._commit_queued)
            except ValueError as error:  # it was closed meanwhile
                self._called = False
                self._fail(self._dequeue(), error)
        await commit.settled
        if commit.error is not None:
            raise commit.error

    def apart(self, conn: sqlite3.Connection, function: Callable[..., T], *args: object) -> T:
        """Run a function in a separate transaction, in the writer's thread."""
        self._pager.leave()
        self._heads.forget()
        self._wait_for_disk(conn, True)
        with transaction(conn):
            keep_numbers(conn)  # the function may delete the rows that have the last ones
            return function(conn, *args)

    async def finish(self, writer: JournalConnection) -> None:
        """Store all pending batches, as the last action."""
        if self._syncer is not None:
            await anyio.to_thread.run_sync(self._syncer.close)
        await writer.run(self._commit_queued)
        with suppress(CheckpointError):  # it only saves space
            await writer.run(self._fill_pages)

    def _commit_queued(self, conn: sqlite3.Connection) -> None:
        """Commit all queued batches in one transaction, in the writer's thread.

        Batches that are queued meanwhile are the next group.
        """
        self._called = False  # before the queue is read: later batches call again
        group = self._dequeue()
        if not group:
            return
        try:
            self._commit_group(conn, group)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must get it
            self._pager = Pager()
            self._heads.forget()
            self._fail(group, error)
        else:
            _settle(group)

    def _dequeue(self) -> list[_Commit]:
        group: list[_Commit] = []
        while self._queue:
            commit = self._queue.popleft()
            if not commit.settled.cancelled():
                group.append(commit)
        return group

    def _fail(self, group: Sequence[_Commit], error: Exception) -> None:
        """Give the callers of a group the error; refused ones have a better one already."""
        for commit in group:
            if commit.error is None and isinstance(error, DAMAGE):
                commit.error = failed(self._path, "written", error)
                commit.error.__cause__ = error
            commit.error = commit.error or error
        _settle(group)

    def _commit_group(self, conn: sqlite3.Connection, group: Sequence[_Commit]) -> None:
        synced = any(commit.batch.synced for commit in group)
        if not synced and self._syncer is None:  # before the commit, so that it fails with this
            self._syncer = LogSyncer(self._path)
        try:
            self._wait_for_disk(conn, synced)
            conn.execute("BEGIN IMMEDIATE")
            self._pager.begin()
            try:
                self._insert(conn, [commit.batch for commit in group])
            except _BATCH_ERRORS:
                self._store_apart(conn, group)
            self._pager.fill(conn)
            conn.execute("COMMIT")
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        if not synced and self._syncer is not None:
            self._syncer.note()

    def _wait_for_disk(self, conn: sqlite3.Connection, wait: bool) -> None:
        """Set whether the next commit waits for the disk, or leaves that to the syncer."""
        if wait != self._waits:
            conn.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")
            self._waits = wait

    def _store_apart(self, conn: sqlite3.Connection, group: Sequence[_Commit]) -> None:
        """Start again, and store batches one by one; each refused one gets its error."""
        self._pager.undo()
        conn.execute("ROLLBACK")
        conn.execute("BEGIN IMMEDIATE")
        for commit in group:
            commit.error = self._store_or_refuse(conn, commit.batch)

    def _store_or_refuse(self, conn: sqlite3.Connection, batch: Batch) -> Exception | None:
        """Store one batch of a group; return why it was refused."""
        self._heads.forget()  # so that the batch is refused with the right error
        conn.execute("SAVEPOINT batch")
        self._pager.begin()
        try:
            self._insert(conn, [batch])
        except _BATCH_ERRORS as error:
            self._pager.undo()
            self._heads.forget()
            conn.execute("ROLLBACK TO batch")
            conn.execute("RELEASE batch")
            if isinstance(error, HarnessError):
                return error
            refused = unstorable(batch, error)
            refused.__cause__ = error
            return refused
        conn.execute("RELEASE batch")
        return None

    def _insert(self, conn: sqlite3.Connection, batches: Iterable[Batch]) -> None:
        self._heads.refresh(conn)
        waiting = InsertBuffer(conn, self._pager, self._heads)
        for batch in batches:
            rows.store(conn, batch, self._clock.now(), waiting, self._event_limits)
        waiting.insert()

    def _fill_pages(self, conn: sqlite3.Connection) -> None:
        """Put the remaining bodies into pages, because nothing will be added to them."""
        with transaction(conn):
            self._pager.fill(conn, everything=True)


def _settle(group: Sequence[_Commit]) -> None:
    """Wake the callers of a group, all of an event loop at once; safe from any thread."""
    for loop in {commit.loop for commit in group}:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(_wake, loop, group)


def _wake(loop: asyncio.AbstractEventLoop, group: Sequence[_Commit]) -> None:
    for commit in group:
        if commit.loop is loop and not commit.settled.done():
            commit.settled.set_result(None)
