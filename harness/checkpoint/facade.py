"""Journal facade: the reading methods of a `Checkpointer`, on top of the queries of a database.

SQLite, Postgres and Redis differ in how they send queries and turn answers into records, but not in
the queries they need. This module has the common part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from .admission import check_batch
from .base import (
    Batch,
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    RunEvent,
    RunStatus,
    ThreadInfo,
    ThreadSlice,
)

__all__ = ["JournalFacade", "Query"]

Query = Callable[..., Any]
"""A function that returns records, or an awaitable of them. A journal's `_read` and its queries
agree on arguments before those of the query, such as a connection."""


class _Queries(Protocol):
    """The queries of a journal, in a module or an object. Arguments are passed by position."""

    load: Query
    history: Query
    namespaces: Query
    threads: Query
    run: Query
    find_runs: Query
    interrupts: Query
    file_changes: Query
    events: Query


class JournalFacade(ABC):
    """Base of journals over a database; see `Checkpointer` for what each method does.

    It connects at the first use, or with `open()` or `async with` if you want errors early.
    `close()` is final. Every method raises `CheckpointError` when the database cannot be read or
    written.

    Args:
        queries: The queries.
    """

    def __init__(self, queries: _Queries) -> None:
        self._queries = queries

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create missing tables. Does nothing if it is open.

        Raises:
            NewerDatabase: A newer version wrote the journal; it was not touched.
            CheckpointError: The database cannot be opened, or is not suitable.
        """

    @abstractmethod
    async def close(self) -> None:
        """Store all pending batches, then close the database. A second call does nothing."""

    @abstractmethod
    async def _commit(self, batch: Batch) -> None:
        """Store a batch that has passed `check_batch`."""

    @abstractmethod
    async def _read(self, query: Query, *question: object) -> Any:
        """Return the answer of a query."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch, all or nothing; see `Checkpointer.commit`.

        If the caller is cancelled while the batch waits, the batch is withdrawn; once its
        transaction has begun, or it is sent, it completes.

        Raises:
            StaleThread: Another process changed the thread; nothing was stored.
            CheckpointError: The batch or the database cannot be written; nothing was stored, unless
                the text says that this is unknown.
            ValueError: The batch mixes threads or namespaces; nothing was stored.
        """
        check_batch(batch)
        await self._commit(batch)

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
        schema: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint with the writes that lead to it; see `Checkpointer.load`."""
        return await self._read(self._queries.load, thread_id, ns, checkpoint_id, cached, schema)

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first; nothing when `before` is unknown."""
        return await self._read(self._queries.history, thread_id, ns, before, limit)

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread that have checkpoints, in order of their first."""
        return await self._read(self._queries.namespaces, thread_id)

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads by the beginning of their ids, last changed first; reads no value."""
        return await self._read(self._queries.threads, limit, before, prefix)

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        return await self._read(self._queries.run, run_id)

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
        question = thread_id, status, idempotency_key, prefix, limit
        return await self._read(self._queries.find_runs, *question)

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, oldest step first, then by index."""
        return await self._read(self._queries.interrupts, run_id)

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        return await self._read(self._queries.file_changes, thread_id, since_seq)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        return await self._read(self._queries.events, run_id, after, limit)
