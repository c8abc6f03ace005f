"""The protocol every checkpointer implements, and the records it stores.

The journal is append-only: see `harness.checkpoint.records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from .._internal.records import record
from .records import (
    OPEN,
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
    "OPEN",
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
    """Says what a stored record becomes. Must neither block nor ask the journal."""

    def __call__(self, record: R, /) -> R:
        """Return the record, or one of the same type with another content."""
        ...


class Checkpointer(Protocol):
    """A journal: stores threads, step by step. Safe for concurrent runs in one process."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch in one transaction, within a bounded time.

        It returns only when the batch is stored. What bounds the time is the journal's: in memory
        nothing waits; SQLite waits 10 s for the lock of another process, then for the disk;
        Postgres and Redis wait for their `timeout`, once for a connection and once for each
        answer. Batches that wait together may have to wait for the group before them too.

        A caller that is cancelled does not learn what became of the batch: it is, or soon will be,
        stored whole or not at all. So it is after an error whose text says that this is not known.
        Committing a step again settles it: one that was stored is refused with `StaleThread`.

        Raises:
            Superseded: A later attempt of a run has begun than that of the batch's fence or run
                record; nothing was stored.
            ThreadBusy: A run of the batch begins or goes on while another one of its thread is
                open, which the error names; nothing was stored.
            KnownRun: A run that begins has the idempotency key of another one, which the error
                names; nothing was stored.
            StaleThread: A checkpoint of the batch exists already, its parent is missing or (for
                input and loop) not the head, or a task writes to a finished step; nothing of this
                call was stored.
            ValueError: The batch mixes threads, or a checkpoint is not of the batch's namespace;
                nothing was stored.
            CheckpointError: The journal cannot be written, or a snapshot is of no checkpoint;
                nothing was stored, unless the text says that this is not known.
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
            cached: A checkpoint whose state the caller still has. If it is an ancestor (or the
                checkpoint itself) only later writes come back.
            schema: Which snapshots may stand for the writes before them; None for none.

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
        """Return the namespaces of a thread that have checkpoints, in order of their first."""
        ...

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first: when a run of theirs began or ended, or an edit.

        Whether the steps of a run count as well is the journal's choice.

        Args:
            limit: How many at most.
            before: An `updated_at` to page from.
            prefix: What their ids begin with, taken literally. The journal itself passes over the
                others, so a page of a few threads among many costs little.
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
            status: What they are at.
            idempotency_key: What they were begun with.
            prefix: What their ids begin with, taken literally; see `threads`.
            limit: How many at most.
        """
        ...

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, of every namespace, oldest step first, then by index."""
        ...

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        ...

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        ...

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with its runs, in every namespace; unknown ids do nothing."""
        ...

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy the checkpoints of a thread, with their writes, in every namespace.

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
        """Remove old checkpoints, and abandoned branches that no other checkpoint grew from.

        Every state that stays is what it was: its checkpoint takes over the writes of removed
        ancestors, and `parent_id` names the nearest ancestor that stays. A checkpoint that
        several branches grew from stays. So do the head of each namespace, runs, and file
        changes that a checkpoint which stays can undo.

        Of all threads each is pruned by itself, so that others can write meanwhile: when one
        fails, those before it stay pruned.

        Args:
            thread_id: The thread; by default all.
            keep_latest: How many of the newest checkpoints of each namespace stay.
            older_than: Only checkpoints from before this Unix time go.

        Returns:
            How many checkpoints were removed.

        Raises:
            ValueError: Neither is given, or `keep_latest` is less than 1.
        """
        ...

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their checkpoints, interrupts, events and file changes.

        Unknown ids do nothing. States of checkpoints that other runs made stay whole, as with
        `prune`. A thread of which nothing is left is deleted. What these runs did to files cannot
        be undone any more.
        """
        ...

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes that a thread's values take in the journal; 0 for unknown ids.

        Values that other threads hold too are counted in full.
        """
        ...

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records, all of it or nothing; unknown ids do nothing.

        It concerns writes (those of snapshots too), checkpoints, runs, interrupts, file changes
        and events. Of what `rewrite` returns, the fields that `invariants.CONTENT` names are taken;
        what tells records apart and joins them stays. When it raises, nothing was changed; what is
        not a `HarnessError` may come as the cause of a `CheckpointError`.

        Raises:
            CheckpointError: The journal cannot be written; nothing was changed.
        """
        ...

    async def vacuum(self) -> None:
        """Give back the room of what was deleted; may take long."""
        ...

    async def close(self) -> None:
        """Release files and threads; finishes what was handed over."""
        ...


@record
class Fence:
    """Fence of a batch: the attempt of a run that may store it; older attempts are refused.

    One process begins each attempt, and only it commits under it. Once a later attempt has begun,
    by whoever took the run over or ended it, the commits of the earlier one are refused. So a
    process that stood still for a while and wakes up changes nothing any more.

    Attributes:
        run_id: The run.
        attempt: Which attempt of it; see `Run.attempt`.
        begins: Whether this batch begins the attempt; refused when it has begun already.
    """

    run_id: str
    attempt: int
    begins: bool = False


@record
class Batch:
    """Batch of records that one commit stores: all of it, or nothing.

    `runs` are inserted or replaced by id. `interrupts` are inserted; an id that is known keeps its
    stored answer. `answers` maps interrupt ids to answers; the first answer of an interrupt wins.
    `events` are numbered in order, each in its run.

    `synced` says that `commit` returns only when a power cut cannot lose the batch any more.
    Otherwise it returns when the death of the process cannot, and the disk follows within
    milliseconds; for steps that nothing outside of the journal depends on.

    `imported` says that the checkpoints were made elsewhere: their parents must exist, but need
    not be the head, and several of their runs may be open.

    `fences` are the attempts of runs that the batch is part of; see `Fence`.
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
    """Return the batch by which a run's next attempt begins, for whoever takes it over or ends it.

    The journal refuses it with `Superseded` when another attempt has begun since `run` was read.

    Args:
        run: The record as it was read.
        **changes: Fields of the record that change.
    """
    run = replace(run, **changes, attempt=run.attempt + 1)
    return Batch(run.thread_id, runs=[run], fences=[Fence(run.id, run.attempt, begins=True)])
