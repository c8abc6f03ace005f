"""Storage of the in-memory journal: threads and their namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pydantic import JsonValue

from .._internal.records import changed
from .base import (
    OPEN,
    Checkpoint,
    EventLimits,
    FileChange,
    Interrupt,
    Rewrite,
    Run,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
)
from .maintenance import MERGED, Removal, merged, removal, rewritten, steps_left

__all__ = ["Namespace", "Thread"]


@dataclass(slots=True)
class Namespace:
    """Checkpoints in order of commit, and tasks by step in order of commit."""

    checkpoints: dict[str, Checkpoint] = field(default_factory=dict[str, Checkpoint])
    steps: dict[str, dict[str, TaskWrites]] = field(
        default_factory=dict[str, dict[str, TaskWrites]]
    )
    snapshots: dict[tuple[str, str], Snapshot] = field(
        default_factory=dict[tuple[str, str], Snapshot]
    )

    def head(self) -> Checkpoint | None:
        """Return the newest checkpoint."""
        return next(reversed(self.checkpoints.values()), None)

    def tasks(self, step: str) -> list[TaskWrites]:
        """Return the tasks of a step, in the order in which they are applied."""
        return sorted(self.steps.get(step, {}).values(), key=lambda task: task.index)

    def head_id(self) -> str | None:
        """Return the id of the newest checkpoint."""
        head = self.head()
        return head.id if head else None

    def writes_since(
        self, checkpoint: Checkpoint, cached: str | None, schema: str | None
    ) -> tuple[str | None, list[StoredWrite]]:
        """Return the base of `Checkpointer.load`, and the writes after it, oldest first."""
        steps: list[str] = []
        writes: list[StoredWrite] = []
        place: str | None = checkpoint.id
        while place is not None and place != cached:
            snapshot = self.snapshots.get((place, schema)) if schema is not None else None
            if snapshot is not None:
                place, writes = None, [*snapshot.writes]
                break
            steps.append(place)
            place = self.checkpoints[place].parent_id
        for step in reversed(steps):
            for task in self.tasks(step):
                writes += task.writes
        return place, writes

    def remove(self, unwanted: Collection[str]) -> Removal:
        """Remove checkpoints, and data that belongs only to them; return those removed."""
        plan = removal({one.id: one.parent_id for one in self.checkpoints.values()}, unwanted)
        if not plan.gone:
            return plan
        for heir, taken in plan.heirs.items():
            tasks = {step: self.tasks(step) for step in (*taken, heir)}
            self.steps.setdefault(heir, {})[MERGED] = merged(heir, taken, tasks)
        self.checkpoints = {
            place: changed(self.checkpoints[place], parent_id=parent)
            for place, parent in plan.parents.items()
        }
        left = steps_left(plan.parents, plan.gone)
        self.steps = {step: tasks for step, tasks in self.steps.items() if step in left}
        self.snapshots = {
            key: one for key, one in self.snapshots.items() if key[0] in self.checkpoints
        }
        return plan

    def size(self) -> int:
        """Return the bytes of all values."""
        tasks = [task.writes for step in self.steps.values() for task in step.values()]
        snapshots = [snapshot.writes for snapshot in self.snapshots.values()]
        return sum(len(write.value) for writes in [*tasks, *snapshots] for write in writes)

    def rewrite(self, rewrite: Rewrite) -> Namespace:
        """Return a namespace with other content."""

        def writes(old: Iterable[StoredWrite]) -> tuple[StoredWrite, ...]:
            return tuple(rewritten(rewrite, one) for one in old)

        return Namespace(
            {place: rewritten(rewrite, one) for place, one in self.checkpoints.items()},
            {
                step: {
                    name: changed(task, writes=writes(task.writes)) for name, task in tasks.items()
                }
                for step, tasks in self.steps.items()
            },
            {key: changed(one, writes=writes(one.writes)) for key, one in self.snapshots.items()},
        )

    def copy(self) -> Namespace:
        """Return an independent copy of the namespace."""
        steps = {step: dict(tasks) for step, tasks in self.steps.items()}
        return Namespace(dict(self.checkpoints), steps, dict(self.snapshots))


@dataclass(slots=True)
class EventLog:
    """The newest events of a run."""

    newest: int = 0
    events: list[RunEvent] = field(default_factory=list[RunEvent])

    def add(self, event: RunEvent, limits: EventLimits) -> None:
        """Number and store an event."""
        self.newest += 1
        self.events.append(changed(event, seq=self.newest))
        del self.events[: -limits.per_run]

    def forget(self, before: float) -> None:
        """Drop the events from before a time."""
        if self.events and self.events[0].created_at < before:
            self.events = [one for one in self.events if one.created_at >= before]


@dataclass(slots=True)
class Thread:
    """All data of one thread."""

    created_at: float
    updated_at: float
    newest: int = 0
    namespaces: dict[str, Namespace] = field(default_factory=dict[str, Namespace])
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    open_runs: set[str] = field(default_factory=set[str])
    interrupts: dict[str, Interrupt] = field(default_factory=dict[str, Interrupt])
    file_changes: list[FileChange] = field(default_factory=list[FileChange])
    events: dict[str, EventLog] = field(default_factory=dict[str, EventLog])

    def put_run(self, run: Run) -> None:
        """Insert or replace a run."""
        self.runs[run.id] = run
        if run.status in OPEN:
            self.open_runs.add(run.id)
        else:
            self.open_runs.discard(run.id)

    def ask(self, interrupts: Iterable[Interrupt]) -> None:
        """Add questions; a known question keeps its answer."""
        for new in interrupts:
            known = self.interrupts.get(new.id)
            if known is not None and known.answered:
                new = replace(new, answer=known.answer, answered=True)
            self.interrupts[new.id] = new

    def answer(self, answers: Mapping[str, JsonValue]) -> None:
        """Store answers to questions that have none."""
        for asked, answer in answers.items():
            known = self.interrupts.get(asked)
            if known is not None and not known.answered:
                self.interrupts[asked] = replace(known, answer=answer, answered=True)

    def remove(self, unwanted: Callable[[Sequence[Checkpoint]], Iterable[str]]) -> int:
        """Remove checkpoints of each namespace, and return how many were removed.

        Args:
            unwanted: Returns the checkpoints of a namespace to remove.
        """
        count = 0
        for ns, namespace in self.namespaces.items():
            plan = namespace.remove({*unwanted([*namespace.checkpoints.values()])})
            if plan.gone:
                count += len(plan.gone)
                left = steps_left(plan.parents, plan.gone)
                self.interrupts = {
                    key: one
                    for key, one in self.interrupts.items()
                    if one.ns != ns or one.step_id in left
                }
        self.namespaces = {
            ns: one for ns, one in self.namespaces.items() if one.checkpoints or one.steps
        }
        seqs = [each.seq for one in self.namespaces.values() for each in one.checkpoints.values()]
        self.newest = max(seqs, default=0)
        return count

    def forget_changes(self) -> None:
        """Drop the file changes that no checkpoint is old enough to undo."""
        main = self.namespaces.get("", Namespace()).checkpoints.values()
        oldest = min((one.seq for one in main), default=0)
        self.file_changes = [one for one in self.file_changes if one.checkpoint_seq >= oldest]

    def forget_run(self, run_id: str) -> None:
        """Remove a run and all its data."""
        self.remove(lambda made: [one.id for one in made if one.run_id == run_id])
        self.runs.pop(run_id, None)
        self.open_runs.discard(run_id)
        self.events.pop(run_id, None)
        self.interrupts = {key: one for key, one in self.interrupts.items() if one.run_id != run_id}
        self.file_changes = [one for one in self.file_changes if one.run_id != run_id]

    @property
    def is_empty(self) -> bool:
        """Whether only questions and events of unrecorded runs are left."""
        return not (self.namespaces or self.runs or self.file_changes)

    def knows_run(self, run_id: str) -> bool:
        """Whether a run is recorded, or has events, questions or checkpoints."""
        if run_id in self.runs or run_id in self.events:
            return True
        made = (each for one in self.namespaces.values() for each in one.checkpoints.values())
        asked = self.interrupts.values()
        return any(one.run_id == run_id for one in chain(asked, made))

    def rewrite(self, rewrite: Rewrite) -> Thread:
        """Return a thread with other content."""
        return replace(
            self,
            namespaces={ns: one.rewrite(rewrite) for ns, one in self.namespaces.items()},
            runs={key: rewritten(rewrite, one) for key, one in self.runs.items()},
            interrupts={key: rewritten(rewrite, one) for key, one in self.interrupts.items()},
            file_changes=[rewritten(rewrite, one) for one in self.file_changes],
            events={
                key: EventLog(one.newest, [rewritten(rewrite, each) for each in one.events])
                for key, one in self.events.items()
            },
        )

    def size(self) -> int:
        """Return the bytes of all values."""
        files = sum(len(one.before or b"") for one in self.file_changes)
        return files + sum(one.size() for one in self.namespaces.values())
