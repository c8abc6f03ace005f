"""Admission: the rules of a journal, which decide whether a batch is stored.

All checkpointers share these rules: which batches are refused, the text of the refusal, and the
order of interrupts. This module stores nothing.

The decision is a pure function of the stored data of the thread, so it can be tested without a
database. Memory, Postgres and SQLite call it with facts that they read in the transaction. Two
journals also decide without it, and the conformance kit checks with generated batches that they
decide in the same way. SQLite stores whole steps after a head that it remembers, without a read.
Redis decides inside its commit script, because nothing else is atomic there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import field

from .._internal.records import record
from ..errors import CheckpointError, KnownRun, StaleThread, Superseded, ThreadBusy
from .base import (
    OPEN,
    Batch,
    Checkpoint,
    Interrupt,
    Run,
    Snapshot,
    TaskWrites,
)

__all__ = [
    "Clock",
    "Facts",
    "StoredRun",
    "admit",
    "admit_runs",
    "check_batch",
    "check_checkpoint",
    "in_step_order",
    "known_run",
    "late_write",
    "missing_ancestor",
    "opened_runs",
    "prefix_range",
    "run_elsewhere",
    "superseded",
    "thread_exists",
    "thread_in_use",
    "unknown_snapshot",
    "unstorable",
]


_RELOAD = "Nothing was stored. Load the thread's head and continue from there."


def check_batch(batch: Batch) -> None:
    """Refuse a batch that mixes threads, or that separates a step from its writes.

    Raises:
        ValueError: A record belongs to another thread, or a checkpoint to another namespace.
    """
    for one in (*batch.checkpoints, *batch.runs, *batch.interrupts, *batch.file_changes):
        if one.thread_id != batch.thread_id:
            raise ValueError(
                f"a batch of thread {batch.thread_id!r} holds a {type(one).__name__} of thread "
                f"{one.thread_id!r}; commit it in a separate batch"
            )
    for checkpoint in batch.checkpoints:
        if checkpoint.ns != batch.ns:
            raise ValueError(
                f"a batch of namespace {batch.ns!r} holds checkpoint {checkpoint.id} of namespace "
                f"{checkpoint.ns!r}; its writes would be lost, so commit it in a separate batch"
            )


def check_checkpoint(
    checkpoint: Checkpoint,
    *,
    exists: bool,
    parent_exists: bool,
    parent_is_head: bool,
    imported: bool = False,
) -> None:
    """Refuse a checkpoint that does not fit the current thread.

    Args:
        checkpoint: The new checkpoint.
        exists: Whether its namespace already has a checkpoint with its id.
        parent_exists: Whether its parent exists; meaningless without a parent.
        parent_is_head: Whether its parent is the head; without a parent, whether there is no head.
        imported: Whether it was made elsewhere, so that its parent need not be the head.

    Raises:
        StaleThread: Somebody else moved the thread.
    """
    if exists:
        raise StaleThread(
            f"checkpoint {checkpoint.id} of {_where(checkpoint)} exists already: another run "
            f"finished this step first. {_RELOAD}"
        )
    if checkpoint.parent_id is not None and not parent_exists:
        raise StaleThread(
            f"checkpoint {checkpoint.id} of {_where(checkpoint)} grew from "
            f"{checkpoint.parent_id}, which is not in the journal: the thread was deleted "
            f"meanwhile, or its parent never stored. {_RELOAD}"
        )
    if checkpoint.source in ("input", "loop") and not (parent_is_head or imported):
        raise StaleThread(
            f"{_where(checkpoint)} has moved on from {checkpoint.parent_id or 'its beginning'}, "
            f"from which checkpoint {checkpoint.id} grew: another run or a rewind was faster. "
            f"{_RELOAD}"
        )


def _where(checkpoint: Checkpoint) -> str:
    ns = f" (namespace {checkpoint.ns!r})" if checkpoint.ns else ""
    return f"thread {checkpoint.thread_id!r}{ns}"


def late_write(thread_id: str, step: str, task_id: str) -> StaleThread:
    """Return the error for a task that writes to a step whose checkpoint is already stored."""
    return StaleThread(
        f"task {task_id} writes to step {step} of thread {thread_id!r}, which another run has "
        f"finished already. {_RELOAD}"
    )


def superseded(run_id: str, attempt: int) -> Superseded:
    """Return the error for a commit of an attempt that is over, or was started elsewhere."""
    return Superseded(
        f"attempt {attempt} of run {run_id} is not executed by this process any more: another one "
        f"took the run over, or ended it. Nothing was stored; see how the run stands."
    )


def thread_in_use(thread_id: str, run_id: str) -> ThreadBusy:
    """Return the error for a run that starts while another one is open."""
    return ThreadBusy(
        f"thread {thread_id!r} is in use by run {run_id}, which has not ended. Nothing was stored; "
        f"wait for that run, answer its questions, or cancel it first.",
        run_id,
    )


def known_run(run_id: str) -> KnownRun:
    """Return the error for a second run with an idempotency key."""
    return KnownRun(
        f"run {run_id} was begun with this idempotency key before. Nothing was stored; look at "
        f"that run, or use another key.",
        run_id,
    )


def run_elsewhere(run_id: str) -> CheckpointError:
    """Return the error for a run, or its events, that belongs to another thread."""
    return CheckpointError(
        f"run {run_id} belongs to another thread. Nothing was stored; use a new id."
    )


def thread_exists(thread_id: str) -> CheckpointError:
    """Return the error for a new thread whose id exists."""
    return CheckpointError(
        f"thread {thread_id!r} exists already; nothing was stored. Choose another id, or delete "
        f"it first."
    )


def missing_ancestor(thread_id: str) -> CheckpointError:
    """Return the error for a checkpoint whose parent does not exist."""
    return CheckpointError(
        f"an ancestor of a checkpoint of thread {thread_id!r} is missing from the journal, so its "
        f"state cannot be rebuilt; nothing was changed. Restore a backup, or delete the thread."
    )


def unknown_snapshot(thread_id: str, snapshot: Snapshot) -> CheckpointError:
    """Return the error for a snapshot of a checkpoint that does not exist."""
    return CheckpointError(
        f"thread {thread_id!r} has no checkpoint {snapshot.checkpoint_id} to store a snapshot of. "
        f"Nothing was stored; commit it with its checkpoint or after it."
    )


def unstorable(batch: Batch, error: Exception) -> CheckpointError:
    """Return the error for a batch with data that no journal can store."""
    return CheckpointError(
        f"a batch of thread {batch.thread_id!r} cannot be stored: {error}. Nothing of it was; fix "
        f"the value and commit again."
    )


def in_step_order(interrupts: Iterable[Interrupt]) -> list[Interrupt]:
    """Sort interrupts by step, in the order of their first questions, then by index."""
    steps: dict[tuple[str, str], list[Interrupt]] = {}
    for interrupt in interrupts:
        steps.setdefault((interrupt.ns, interrupt.step_id), []).append(interrupt)
    return [one for step in steps.values() for one in sorted(step, key=lambda each: each.index)]


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return the bounds of texts with a prefix, in the byte order of UTF-8.

    The first is the smallest such text; the second is the smallest text above all of them.

    Args:
        prefix: Not empty.
    """
    start = prefix.encode("utf-8", "surrogatepass")
    return start, start[:-1] + bytes((start[-1] + 1,))  # UTF-8 has no byte 255


class Clock:
    """A wall clock that never returns the same time twice, so that lists can be paged by it."""

    def __init__(self) -> None:
        self._last = 0.0

    def now(self) -> float:
        """Return Unix time in seconds, later than any time returned before."""
        self._last = max(time.time(), self._last + 1e-6)
        return self._last


@record
class StoredRun:
    """The fields of a stored run that decide on a batch."""

    attempt: int
    is_open: bool


@record
class Facts:
    """Stored facts about the namespace and the runs of a batch.

    Attributes:
        head: Id of the namespace's newest checkpoint, or None.
        checkpoints: Ids of its checkpoints.
        tasks: Ids of its tasks by step.
        foreign: Runs that the batch stores, or is fenced by, but that belong to other threads.
        foreign_logs: Runs of its events whose events belong to other threads.
        runs: The runs that the batch stores, or is fenced by, by id.
        open_runs: Ids of the thread's open runs.
        keyed: Ids of runs, by idempotency key.
    """

    head: str | None
    checkpoints: Container[str]
    tasks: Mapping[str, Container[str]]
    foreign: Collection[str]
    foreign_logs: Collection[str] = ()
    runs: Mapping[str, StoredRun] = field(default_factory=dict[str, StoredRun])
    open_runs: Collection[str] = ()
    keyed: Mapping[str, str] = field(default_factory=dict[str, str])


def admit(facts: Facts, batch: Batch) -> list[TaskWrites]:
    """Return the new tasks of a batch; of tasks with equal ids, the first counts.

    All other records of an admitted batch are stored as they are.

    Args:
        facts: The stored facts.
        batch: A batch that has passed `check_batch`.

    Raises:
        Superseded, ThreadBusy, KnownRun: As for `admit_runs`.
        StaleThread: A task writes to a finished step, or a checkpoint exists, has no parent in the
            journal, or does not follow the head.
        CheckpointError: A snapshot has no checkpoint, or a run belongs to another thread.
    """
    if facts.foreign:
        raise run_elsewhere(min(facts.foreign))
    admit_runs(facts, batch)
    new = _admit_tasks(facts, batch)
    fresh = _admit_checkpoints(facts, batch)
    for snapshot in batch.snapshots:
        place = snapshot.checkpoint_id
        if place not in fresh and place not in facts.checkpoints:
            raise unknown_snapshot(batch.thread_id, snapshot)
    if facts.foreign_logs:
        raise run_elsewhere(min(facts.foreign_logs))
    return new


def admit_runs(facts: Facts, batch: Batch) -> None:
    """Refuse a batch of an attempt that is over, and a run that may not start or continue.

    Raises:
        Superseded: A later attempt has begun, or this one was started by another process.
        ThreadBusy: Another run of the thread is open.
        KnownRun: A run with the idempotency key is stored.
    """
    for fence in batch.fences:
        stored = facts.runs.get(fence.run_id)
        if stored is not None and stored.attempt >= fence.attempt + (not fence.begins):
            raise superseded(fence.run_id, fence.attempt)
    for run in batch.runs:
        stored = facts.runs.get(run.id)
        if stored is not None and stored.attempt > run.attempt:
            raise superseded(run.id, run.attempt)
    if not batch.imported:
        _admit_openings(facts, batch)
    if any(run.idempotency_key is not None for run in batch.runs):
        _admit_keys(facts, batch)


def _admit_openings(facts: Facts, batch: Batch) -> None:
    ended = {run.id for run in batch.runs if run.status not in OPEN}
    still_open = {run_id for run_id in facts.open_runs if run_id not in ended}
    for run in opened_runs(facts.runs, batch):
        others = still_open - {run.id}
        if others:
            raise thread_in_use(batch.thread_id, min(others))
        if run.status in OPEN:
            still_open.add(run.id)


def _admit_keys(facts: Facts, batch: Batch) -> None:
    keyed = dict(facts.keyed)
    for run in batch.runs:
        if run.idempotency_key is not None and run.id not in facts.runs:
            known = keyed.setdefault(run.idempotency_key, run.id)
            if known != run.id:
                raise known_run(known)


def opened_runs(stored: Mapping[str, StoredRun], batch: Batch) -> list[Run]:
    """Return the runs that a batch starts or continues, given the stored ones.

    A new run that is queued, or was cancelled before its input was accepted, does not start.
    """
    moves = bool(batch.checkpoints or batch.writes)
    return [
        run
        for run in batch.runs
        if (
            moves or run.status not in ("cancelled", "queued")
            if (known := stored.get(run.id)) is None
            else run.status in OPEN and not known.is_open
        )
    ]


def _admit_tasks(facts: Facts, batch: Batch) -> list[TaskWrites]:
    new: dict[tuple[str, str], TaskWrites] = {}
    for task in batch.writes:
        if task.task_id in facts.tasks.get(task.step_id, ()):
            continue
        if task.step_id in facts.checkpoints:
            raise late_write(batch.thread_id, task.step_id, task.task_id)
        new.setdefault((task.step_id, task.task_id), task)
    return [*new.values()]


def _admit_checkpoints(facts: Facts, batch: Batch) -> set[str]:
    """Return the ids of the batch's checkpoints; each may follow the ones before it."""
    fresh: set[str] = set()
    head = facts.head
    for made in batch.checkpoints:
        parent = made.parent_id
        check_checkpoint(
            made,
            exists=made.id in fresh or made.id in facts.checkpoints,
            parent_exists=parent is not None and (parent in fresh or parent in facts.checkpoints),
            parent_is_head=parent == head,
            imported=batch.imported,
        )
        fresh.add(made.id)
        head = made.id
    return fresh
