"""Journal facade: the reading methods of a `Checkpointer`, over the queries of a database.

SQLite, Postgres and Redis differ in how a question reaches the database and in how its answer
becomes records, not in what can be asked. What can be asked stands here, once.
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
"""A function that returns records, or an awaitable of them. Which arguments come before those of
the question, such as a connection, is between a journal's `_read` and its queries."""


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

    It connects at the first use, or by `open()` or `async with` if its errors are wanted early.
    `close()` is final. Every method raises `CheckpointError` when the database cannot be read or
    written.

    Args:
        queries: What is read.
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
        """Connect, and make what is missing. Does nothing when it is open.

        Raises:
            NewerDatabase: A newer version wrote the journal; it was not touched.
            CheckpointError: The database cannot be opened, or is not one that will do.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what was handed over, then let go of the database. A second call does nothing."""

    @abstractmethod
    async def _commit(self, batch: Batch) -> None:
        """Store a batch that `check_batch` has passed."""

    @abstractmethod
    async def _read(self, query: Query, *question: object) -> Any:
        """Return what a query answers."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch, all of it or nothing; see `Checkpointer.commit`.

        A caller that is cancelled while the batch waits withdraws it; once its transaction has
        begun, or it is sent, it completes.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
            CheckpointError: The batch or the database cannot be written; nothing was stored, unless
                the text says that this is not known.
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
