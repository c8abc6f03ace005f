"""Admission: decides whether a batch may be stored, from what is stored of its thread.

The decision is a pure function, so it can be tested without a database. Memory, Postgres and
SQLite call it with the facts they have looked up in the transaction. Two journals also decide
without it, and the conformance kit checks that they decide generated batches alike: SQLite stores
whole steps after a head that it remembers without looking anything up, and Redis decides inside
its commit script, because nothing else is atomic there.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from .._internal.records import record
from . import invariants
from .base import Batch, TaskWrites

__all__ = ["Facts", "admit"]


@record
class Facts:
    """What is stored of a batch's namespace, as far as the batch names it.

    Attributes:
        head: Id of the namespace's newest checkpoint, or None.
        checkpoints: Ids of its checkpoints.
        tasks: Ids of its tasks by step.
        foreign: Runs of the batch that belong to other threads, or whose events do.
    """

    head: str | None
    checkpoints: Container[str]
    tasks: Mapping[str, Container[str]]
    foreign: Collection[str]


def admit(facts: Facts, batch: Batch) -> list[TaskWrites]:
    """Return the tasks of a batch that are new; of equal ids the first wins.

    Everything else of an admitted batch is stored as it is.

    Args:
        facts: What is stored.
        batch: A batch that `check_batch` has passed.

    Raises:
        StaleThread: A task writes to a finished step, or a checkpoint exists, has no parent in the
            journal, or does not grow from the head.
        CheckpointError: A snapshot is of no checkpoint, or a run belongs to another thread.
    """
    new = _admit_tasks(facts, batch)
    fresh = _admit_checkpoints(facts, batch)
    for snapshot in batch.snapshots:
        place = snapshot.checkpoint_id
        if place not in fresh and place not in facts.checkpoints:
            raise invariants.unknown_snapshot(batch.thread_id, snapshot)
    if facts.foreign:
        raise invariants.run_elsewhere(min(facts.foreign))
    return new


def _admit_tasks(facts: Facts, batch: Batch) -> list[TaskWrites]:
    new: dict[tuple[str, str], TaskWrites] = {}
    for task in batch.writes:
        if task.task_id in facts.tasks.get(task.step_id, ()):
            continue
        if task.step_id in facts.checkpoints:
            raise invariants.late_write(batch.thread_id, task.step_id, task.task_id)
        new.setdefault((task.step_id, task.task_id), task)
    return [*new.values()]


def _admit_checkpoints(facts: Facts, batch: Batch) -> set[str]:
    """Return the ids of the batch's checkpoints, each of which may grow from those before it."""
    fresh: set[str] = set()
    head = facts.head
    for made in batch.checkpoints:
        parent = made.parent_id
        invariants.check_checkpoint(
            made,
            exists=made.id in fresh or made.id in facts.checkpoints,
            parent_exists=parent is not None and (parent in fresh or parent in facts.checkpoints),
            parent_is_head=parent == head,
            imported=batch.imported,
        )
        fresh.add(made.id)
        head = made.id
    return fresh
