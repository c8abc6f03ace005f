"""The protocol that every checkpointer implements, and the batches it stores.

The journal is append-only: see `harness.checkpoint.records`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from .._internal.records import record
from .records import (
    ENDED,
    OPEN,
    REDACTED,
    UNFINISHED,
    Checkpoint,
    EventLimits,
    FileChange,
    Interrupt,
    InterruptKind,
    Next,
    Record,
    Run,
    RunEvent,
    RunStatus,
    Snapshot,
    Source,
    StoredWrite,
    TaskWrites,
    ThreadInfo,
    ThreadSlice,
    step_id,
    turn_step_id,
)

__all__ = [
    "ENDED",
    "OPEN",
    "REDACTED",
    "UNFINISHED",
    "Batch",
    "Checkpoint",
    "Checkpointer",
    "EventLimits",
    "Fence",
    "FileChange",
    "Interrupt",
    "InterruptKind",
    "Next",
    "Record",
    "Rewrite",
    "Run",
    "RunEvent",
    "RunStatus",
    "Snapshot",
    "Source",
    "StoredWrite",
    "TaskWrites",
    "ThreadInfo",
    "ThreadSlice",
    "step_id",
    "taken_over",
    "turn_step_id",
]

R = TypeVar("R", bound=Record)


class Rewrite(Protocol):
    """Replaces the content of a stored record. It must not block or read the journal."""

    def __call__(self, record: R, /) -> R:
        """Return the record, or one of the same type with other content."""
        ...


class Checkpointer(Protocol):
    """A journal: stores threads, step by step. Safe for concurrent runs in one process."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch in one transaction, within a bounded time.

        It returns only when the batch is stored. The journal limits the time: in memory nothing
        waits; SQLite waits 10 s for the lock of another process, then for the disk; Postgres and
        Redis wait for their `timeout`, once for a connection and once for each answer. Batches
        that are stored together may also have to wait for the group before them.

        If the caller is cancelled, it is unknown whether the batch is stored: it is, or soon will
        be, stored completely or not at all. The same applies after an error whose text says so. To
        find out, commit the step again: a stored step is refused with `StaleThread`.

        Raises:
            Superseded: A later attempt of a run has begun than that of the batch's fence or run
                record; nothing was stored.
            ThreadBusy: A run of the batch starts or continues while another run of its thread
                is open, which the error names; nothing was stored.
            KnownRun: A new run has the idempotency key of another run, which the error names;
                nothing was stored.
            StaleThread: A checkpoint of the batch exists already, its parent is missing or (for
                input and loop) not the head, or a task writes to a finished step; nothing of this
                call was stored.
            ValueError: The batch mixes threads, or a checkpoint is not of the batch's namespace;
                nothing was stored.
            CheckpointError: The journal cannot be written, or a snapshot has no checkpoint;
                nothing was stored, unless the text says that this is unknown.
        """
        ...

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
        schema: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint, by default the head, or None if there is none.

        Args:
            thread_id: The thread.
            ns: The namespace.
            checkpoint_id: A checkpoint other than the head.
            cached: A checkpoint whose state the caller still has. If it is an ancestor, or the
                checkpoint itself, only later writes are returned.
            schema: The schema whose snapshots may replace the writes before them; None for none.

        Raises:
            CheckpointError: The journal cannot be read.
        """
        ...

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first, without loading values."""
        ...

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread with checkpoints, in order of their first one."""
        ...

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first. Starts and ends of runs, and edits, are changes.

        A journal may count the steps of a run as well.

        Args:
            limit: The most threads to return.
            before: An `updated_at` to page from.
            prefix: The literal beginning of their ids. The journal itself skips the others, so a
                page of a few threads among many costs little.
        """
        ...

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        ...

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        idempotency_key: str | None = None,
        prefix: str = "",
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs that match every given filter, newest first.

        Args:
            thread_id: The thread.
            status: Their status.
            idempotency_key: The key they were started with.
            prefix: The literal beginning of their ids; see `threads`.
            limit: The most runs to return.
        """
        ...

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, in all namespaces, oldest step first, then by index."""
        ...

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        ...

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        ...

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with its runs, in all namespaces; unknown ids are ignored."""
        ...

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy the checkpoints of a thread, with their writes, in all namespaces.

        Runs, their interrupts, events and file changes stay with the source: they happened there.

        Raises:
            UnknownThread: There is no source.
            CheckpointError: The target exists, or the journal cannot be written; nothing was
                stored.
        """
        ...

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints, and abandoned branches without later checkpoints.

        Remaining states do not change: their checkpoints take over the writes of removed
        ancestors, and `parent_id` names the nearest remaining ancestor. A checkpoint from which
        several branches start is kept. So are the head of each namespace, the newest input of each
        subagent's, runs, and file changes that a remaining checkpoint can undo.

        Threads are pruned one by one, so that others can write meanwhile. If one fails, those
        before it stay pruned.

        Args:
            thread_id: The thread; by default all.
            keep_latest: How many of the newest checkpoints of each namespace to keep.
            older_than: Remove only checkpoints from before this Unix time.

        Returns:
            How many checkpoints were removed.

        Raises:
            ValueError: Neither is given, or `keep_latest` is less than 1.
        """
        ...

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their checkpoints, interrupts, events and file changes.

        Unknown ids are ignored. States of other runs' checkpoints do not change, as with `prune`.
        An empty thread is deleted. These runs' changes of files can no longer be undone.
        """
        ...

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes of a thread's values in the journal; 0 for unknown ids.

        Values that it shares with other threads are counted in full.
        """
        ...

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records, all or none; unknown ids are ignored.

        It applies to writes (also those of snapshots), checkpoints, runs, interrupts, file changes
        and events. From the result of `rewrite`, the fields in `invariants.CONTENT` are used; ids
        and references stay. If it raises, nothing was changed; an error that is not a
        `HarnessError` may be the cause of a `CheckpointError`.

        Raises:
            CheckpointError: The journal cannot be written; nothing was changed.
        """
        ...

    async def vacuum(self) -> None:
        """Free the space of deleted data; may take long."""
        ...

    async def close(self) -> None:
        """Release files and threads, after storing all pending batches."""
        ...


@record
class Fence:
    """Fence of a batch: the attempt of a run that stores it; older attempts are refused.

    One process begins each attempt, and only that process commits in it. Once a process that took
    over or ended the run has begun a later attempt, commits of the earlier one are refused. So a
    process that hung for a while and wakes up can change nothing.

    Attributes:
        run_id: The run.
        attempt: The number of the attempt; see `Run.attempt`.
        begins: Whether this batch begins the attempt; refused if it has already begun.
    """

    run_id: str
    attempt: int
    begins: bool = False


@record
class Batch:
    """Batch of records that one commit stores, all or none.

    `runs` are inserted or replaced by id. `interrupts` are inserted; a known id keeps its stored
    answer. `answers` maps interrupt ids to answers; the first answer to an interrupt counts.
    `events` are numbered in order, within their run.

    With `synced`, `commit` returns only when a power cut can no longer lose the batch. Otherwise it
    returns when a crash of the process cannot, and the disk follows within milliseconds; use that
    for steps on which nothing outside the journal depends.

    With `imported`, the checkpoints were made elsewhere: their parents must exist, but need not be
    the head, and several of their runs may be open.

    `fences` are the attempts of runs to which the batch belongs; see `Fence`.
    """

    thread_id: str
    ns: str = ""
    writes: Sequence[TaskWrites] = ()
    checkpoints: Sequence[Checkpoint] = ()
    runs: Sequence[Run] = ()
    interrupts: Sequence[Interrupt] = ()
    answers: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    file_changes: Sequence[FileChange] = ()
    snapshots: Sequence[Snapshot] = ()
    events: Sequence[RunEvent] = ()
    synced: bool = True
    imported: bool = False
    fences: Sequence[Fence] = ()


def taken_over(run: Run, **changes: Any) -> Batch:
    """Return the batch that begins a run's next attempt, for a process that takes over or ends it.

    The journal refuses it with `Superseded` if another attempt has begun since `run` was read.

    Args:
        run: The record as it was read.
        **changes: Fields of the record that change.
    """
    if "status" in changes:
        changes = {"updated_at": time.time(), **changes}
    run = replace(run, **changes, attempt=run.attempt + 1)
    return Batch(run.thread_id, runs=[run], fences=[Fence(run.id, run.attempt, begins=True)])
