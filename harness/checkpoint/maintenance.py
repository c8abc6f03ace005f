"""Maintenance of journals: decides which checkpoints to remove, and limits the size of threads.

A removed checkpoint's writes are part of the states after it, so they move to its only child. If it
has several children, it stays, because each branch needs it. Only the writes of checkpoints without
children are lost, so all remaining states stay complete. All checkpointers share this module, which
stores nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from .._internal.records import changed, record
from .admission import missing_ancestor
from .base import (
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Record,
    Rewrite,
    Run,
    RunEvent,
    StoredWrite,
    TaskWrites,
    step_id,
)

__all__ = [
    "CONTENT",
    "MERGED",
    "Removal",
    "all_threads",
    "check_prune",
    "count_prunable",
    "is_subagents_input",
    "merged",
    "parents_of",
    "prunable",
    "prunable_ids",
    "prune_to_size",
    "removal",
    "rewritten",
    "steps_left",
]


R = TypeVar("R", bound=Record)

MERGED = "#merged"
"""The task for writes that a checkpoint has taken over from removed ancestors."""


@record
class Removal:
    """Plan to remove checkpoints of one namespace.

    Attributes:
        gone: The removed checkpoints.
        parents: The remaining checkpoints, in order, with their nearest remaining ancestor.
        heirs: The checkpoints that take over writes, with the removed ancestors, oldest first.
    """

    gone: set[str] = field(default_factory=set[str])
    parents: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    heirs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def parents_of(
    thread_id: str, rows: Iterable[tuple[int, str, int | None]]
) -> dict[str, str | None]:
    """Return the parents of checkpoints by id.

    Args:
        thread_id: Their thread.
        rows: Seq, id and the parent's seq of each, in order of commit.

    Raises:
        CheckpointError: A parent is missing, or younger than its child.
    """
    ids: dict[int | None, str | None] = {None: None}
    parents: dict[str, str | None] = {}
    for seq, checkpoint_id, parent in rows:
        if parent not in ids:
            raise missing_ancestor(thread_id)
        ids[seq], parents[checkpoint_id] = checkpoint_id, ids[parent]
    return parents


def removal(parents: Mapping[str, str | None], unwanted: Collection[str]) -> Removal:
    """Plan a removal.

    Args:
        parents: Each checkpoint with its parent, in order of commit: parents come first.
        unwanted: The checkpoints to remove.
    """
    branches: dict[str, int] = {}
    stays: set[str] = set()
    for place, parent in reversed(list(parents.items())):
        grown = branches.get(place, 0)
        if place not in unwanted or grown > 1:
            stays.add(place)
        if parent is not None and (place in stays or grown):
            branches[parent] = branches.get(parent, 0) + 1
    plan: Removal = Removal(gone=parents.keys() - stays)
    for place in parents:
        if place in stays:
            ancestor, taken = parents[place], list[str]()
            while ancestor is not None and ancestor not in stays:
                taken.append(ancestor)
                ancestor = parents[ancestor]
            plan.parents[place] = ancestor
            if taken:
                plan.heirs[place] = taken[::-1]
    return plan


def steps_left(stays: Iterable[str], gone: Collection[str]) -> set[str]:
    """Return the steps whose tasks and interrupts stay: finished steps, and the steps after them.

    Args:
        stays: Remaining checkpoints.
        gone: Removed checkpoints.
    """
    places = set(stays)
    return places | {step_id(place) for place in places} - set(gone)


def merged(
    heir: str, taken: Iterable[str], tasks: Mapping[str, Iterable[TaskWrites]]
) -> TaskWrites:
    """Return the task with the writes of removed steps, which come before a step's own.

    Args:
        heir: The step.
        taken: The removed steps, oldest first.
        tasks: The tasks of all these steps, in the order in which they are applied.
    """
    own = [task for task in tasks.get(heir, ()) if task.task_id != MERGED]
    sources = [task for step in taken for task in tasks.get(step, ())]
    sources += [task for task in tasks.get(heir, ()) if task.task_id == MERGED]
    writes = _squeezed(
        [write for task in sources for write in task.writes],
        [write for task in own for write in task.writes],
    )
    before = min((task.index for task in own), default=0) - 1
    return TaskWrites(heir, MERGED, before, tuple(writes))


def _squeezed(writes: Sequence[StoredWrite], following: Iterable[StoredWrite]) -> list[StoredWrite]:
    """Return the writes without those that a later write to their channel overwrites.

    Args:
        writes: The writes.
        following: The writes after them.
    """
    replaced = {write.channel for write in following if write.overwrite}
    kept: list[StoredWrite] = []
    for write in reversed(writes):
        if write.channel not in replaced:
            kept.append(write)
            if write.overwrite:
                replaced.add(write.channel)
    return kept[::-1]


def check_prune(keep_latest: int | None, older_than: float | None) -> None:
    """Refuse a prune without conditions, or that would leave a thread without a head.

    Raises:
        ValueError: It is one.
    """
    if keep_latest is None and older_than is None:
        raise ValueError("prune needs keep_latest or older_than; nothing was removed")
    if keep_latest is not None and keep_latest < 1:
        raise ValueError(
            f"keep_latest is {keep_latest}, but a thread keeps its head at least; nothing was "
            f"removed. Use delete_thread to remove it."
        )


def prunable_ids(
    keep_latest: int | None, older_than: float | None, made: Sequence[Checkpoint]
) -> list[str]:
    """Return the ids of the checkpoints that `prunable` returns."""
    facts = [(one.id, one.created_at, is_subagents_input(one.ns, one.source)) for one in made]
    return prunable(facts, keep_latest, older_than)


def is_subagents_input(ns: str, source: str) -> bool:
    """Whether a checkpoint accepted what a caller gave to a subagent, at first or later."""
    return ns != "" and source != "loop"


def prunable(
    checkpoints: Sequence[tuple[str, float, bool]],
    keep_latest: int | None,
    older_than: float | None,
) -> list[str]:
    """Return the checkpoints of a namespace to which a prune applies.

    The newest input of a subagent stays: what the subagent has written since belongs to its caller,
    which may still be waiting for it.

    Args:
        checkpoints: Each with its time and whether it is a subagent's input, in order of commit.
        keep_latest: How many of the newest to keep, at least the head.
        older_than: Remove only those from before this Unix time.
    """
    inputs = [place for place, _, is_input in checkpoints if is_input]
    return [
        place
        for place, made, _ in checkpoints[: -(keep_latest or 1)]
        if place not in inputs[-1:] and (older_than is None or made < older_than)
    ]


_PAGE = 500


async def prune_to_size(journal: Checkpointer, max_bytes: int, thread_id: str | None = None) -> int:
    """Remove a thread's oldest checkpoints until its values take no more than this many bytes.

    It removes about a quarter of the rest at a time, so it may remove a little more than necessary.
    Remaining states are complete: a thread never becomes smaller than its newest state, with the
    files that its last checkpoint can put back. If that exceeds the limit, nothing else is kept.

    Args:
        journal: The journal.
        max_bytes: The limit for each thread, as counted by `Checkpointer.thread_size`.
        thread_id: The thread; by default all.

    Returns:
        How many checkpoints were removed.

    Raises:
        ValueError: `max_bytes` is negative.
    """
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}, but it must be 0 or more; nothing was removed")
    names = [thread_id] if thread_id is not None else await all_threads(journal)
    removed = 0
    for name in names:
        keep = await _longest(journal, name)
        while keep > 1 and await journal.thread_size(name) > max_bytes:
            keep = keep * 3 // 4
            removed += await journal.prune(name, keep_latest=keep)
    return removed


async def count_prunable(
    journal: Checkpointer, thread_id: str, keep_latest: int | None, older_than: float | None
) -> int:
    """Return how many checkpoints of a thread `Checkpointer.prune` would remove."""
    check_prune(keep_latest, older_than)
    count = 0
    for ns in await journal.namespaces(thread_id):
        made: list[Checkpoint] = []
        before: str | None = None
        while page := await journal.history(thread_id, ns, before=before, limit=_PAGE):
            made += page
            before = page[-1].id
        made.reverse()
        parents = {one.id: one.parent_id for one in made}
        count += len(removal(parents, set(prunable_ids(keep_latest, older_than, made))).gone)
    return count


async def all_threads(journal: Checkpointer) -> list[str]:
    """Return all threads of a journal, last changed first."""
    found: list[str] = []
    before: float | None = None
    while page := await journal.threads(limit=_PAGE, before=before):
        found += [one.thread_id for one in page]
        before = page[-1].updated_at
    return found


async def _longest(journal: Checkpointer, thread_id: str) -> int:
    """Return the number of checkpoints in the largest namespace."""
    most = 0
    for ns in await journal.namespaces(thread_id):
        count, before = 0, None
        while page := await journal.history(thread_id, ns, before=before, limit=_PAGE):
            count, before = count + len(page), page[-1].id
        most = max(most, count)
    return most


CONTENT: Mapping[type[Record], tuple[str, ...]] = {
    StoredWrite: ("value",),
    Checkpoint: ("author", "summary"),
    Run: ("goal", "answer", "reason", "used", "idempotency_key"),
    Interrupt: ("message", "payload", "answer_schema", "answer"),
    FileChange: ("path", "before", "after_digest"),
    RunEvent: ("path", "data"),
}
"""The fields of each record that `Checkpointer.rewrite` may change."""


def rewritten(rewrite: Rewrite, record: R) -> R:
    """Return a record with its content replaced by `rewrite`."""
    new = rewrite(record)
    return changed(record, **{name: getattr(new, name) for name in CONTENT[type(record)]})
