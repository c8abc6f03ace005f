"""The journal on disk: one SQLite file, shared by any number of runs and processes.

Commits that wait for the disk at the same time share one transaction (group commit); a refused
batch fails alone. Once `commit` has returned, the batch survives the process, and a `synced` one
the machine too, if its disk keeps what it confirms; one that is not synced gets
there within milliseconds (`SYNC_WITHIN`).

Each operation costs one hop to a connection's thread.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ...errors import CheckpointError
from ..admission import Clock
from ..base import Batch, EventLimits, Rewrite
from ..facade import JournalFacade, Query
from ..maintenance import check_prune
from . import changes, maintenance, queries
from .committer import Committer
from .connections import JournalConnection, connect

if TYPE_CHECKING:
    from ..lease import FileLease, Holder

__all__ = ["SqliteCheckpointer"]


T = TypeVar("T")

_WORK_SECONDS = 0.25
_REST_SECONDS = 0.11
"""Seconds for which maintenance continues with the next transaction before it lets other processes
use the file. There is no queue for its lock: waiting processes check every 0.1 s if it is free."""


class SqliteCheckpointer(JournalFacade):
    """A `Checkpointer` over one SQLite file.

    The file is opened at the first use, or with `open()` or `async with` if you want errors early.
    Only the user can access it and the directories that are created for it. `close()` is final.

    Args:
        path: The file; created if missing.
        event_limits: How many events it keeps.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, event_limits: EventLimits | None = None
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("SqliteCheckpointer needs a file; use MemoryCheckpointer instead")
        super().__init__(queries)
        self.path = Path(path).absolute()
        self._connections: tuple[JournalConnection, JournalConnection] | None = None
        self._opening = anyio.Lock()
        self._closed = False
        self._clock = Clock()
        self._committer = Committer(self.path, self._clock, event_limits or EventLimits())

    async def open(self) -> None:
        """Open the file, and create or migrate it if necessary. Does nothing if it is open.

        Raises:
            NewerDatabase: A newer version wrote the file; it was not touched.
            CheckpointError: The file cannot be opened or is not a journal.
        """
        await self._open()

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def lease(self, holder: Holder) -> FileLease:
        """Return a lease on the file; see `Claimable`."""
        from ..lease import FileLease  # only servers claim journals

        return FileLease(self.path, holder)

    async def _commit(self, batch: Batch) -> None:
        writer, _ = self._connections or await self._open()
        await self._committer.commit(writer, batch)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its data; unknown ids are ignored.

        Raises:
            CheckpointError: The file cannot be written; nothing was deleted.
        """
        await self._maintain(maintenance.delete_thread, thread_id)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        now = self._clock.now()
        await self._maintain(maintenance.copy_thread, source, target, now)

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
        return sum(
            await self._remove(
                partial(maintenance.prune, keep_latest=keep_latest, older_than=older_than), names
            )
        )

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data, each in a transaction; see the protocol."""
        await self._remove(maintenance.delete_run, run_ids)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes of a thread's values in the file."""
        return await self._read(maintenance.thread_size, thread_id)

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`.

        `rewrite` runs in another thread.
        """
        await self._maintain(changes.rewrite_thread, thread_id, rewrite)

    async def vacuum(self) -> None:
        """Free the space of deleted data. Needs the same space again while it works.

        Raises:
            CheckpointError: The disk is too full, or another process uses the journal.
        """
        await self._maintain(maintenance.collect)
        writer, _ = await self._open()
        await writer.run(_vacuum)

    async def close(self) -> None:
        """Store all pending batches, then close the file. A second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                connections, self._connections = self._connections, None
                if connections is not None:
                    writer, reader = connections
                    await reader.finish()
                    await self._committer.finish(writer)
                    await writer.finish()  # last, so that it folds the log into the file

    async def _open(self) -> tuple[JournalConnection, JournalConnection]:
        async with self._opening:
            if self._closed:
                raise CheckpointError(
                    f"the journal {self.path} is closed; nothing was done. Open a new one."
                )
            if self._connections is None:
                self._connections = await connect(self.path)
            return self._connections

    async def _read(self, query: Query, *question: object) -> Any:
        _, reader = self._connections or await self._open()
        return await reader.run(lambda conn: query(conn, *question))

    async def _maintain(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a transaction of its own."""
        writer, _ = self._connections or await self._open()
        return await writer.run(lambda conn: self._committer.apart(conn, function, *args))

    async def _remove(
        self, function: Callable[[sqlite3.Connection, str], T], names: Sequence[str]
    ) -> list[T]:
        """Run a function for each name in a separate transaction, and let others write in between.

        Large values that are no longer used are freed at the end.
        """
        results: list[T] = []
        began = time.monotonic()
        for name in names:
            if time.monotonic() - began > _WORK_SECONDS:
                await anyio.sleep(_REST_SECONDS)
                began = time.monotonic()
            results.append(await self._maintain(function, name))
        await self._maintain(changes.free_blobs)
        return results


def _vacuum(conn: sqlite3.Connection) -> None:
    conn.execute("VACUUM")
    busy, *_ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise CheckpointError(
            "the journal's log still holds what was removed, because another process is reading "
            "it; all else was done. Vacuum again when that is at rest."
        )
