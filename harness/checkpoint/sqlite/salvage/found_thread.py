"""Recovered thread: its steps up to the first damage, and their data.

A step is whole if its checkpoint and all of its writes are readable, and every step before it is
whole. Steps that are not whole are left out with all their descendants, so each recovered state is
a real former state of the thread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ...._internal.records import changed, record
from ....errors import CheckpointError
from ...base import (
    UNFINISHED,
    Batch,
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    TaskWrites,
    step_id,
    turn_step_id,
)
from ...codec import decompress, step_key, step_name
from ...record_encryption import is_sealed
from ..connections import DAMAGE
from ..records import checkpoint_of, events_of, interrupt_of, run_of
from .contents import Contents, SealedRecords
from .trees import Row

__all__ = ["FoundThread", "events_in", "threads_in"]

_UNREADABLE = (*DAMAGE, CheckpointError)
_CUT_OFF = (
    "the journal was damaged: the last steps of this run are lost, and what they did is not known"
)


@record
class FoundStep:
    """A whole step.

    Attributes:
        checkpoint: Its checkpoint.
        row: Its row, with the location of its writes.
    """

    checkpoint: Checkpoint
    row: Row


@record
class FoundThread:
    """Undamaged part of a thread.

    Attributes:
        contents: The journal that contains it.
        number: The thread's number there.
        thread_id: Its id.
        steps: Steps of all namespaces, in order of commit.
        pending: The rows of finished tasks of unfinished steps, by namespace.
        runs: Its runs, the oldest first.
        interrupts: Their questions.
        changes: Their file changes, each with the newest checkpoint at that time.
        logs: The rows of their event logs.
        lost: How much is lost, by kind: steps, calls, questions, runs, usage, file changes.
        problem: The problem with the first lost item.
        declared: The least number of checkpoints that the thread should have; None if unknown.
    """

    contents: Contents
    number: int
    thread_id: str
    steps: Sequence[FoundStep]
    pending: Sequence[tuple[str, Row]]
    runs: Sequence[Run]
    interrupts: Sequence[Interrupt]
    changes: Sequence[tuple[int, FileChange]]
    logs: Sequence[Row]
    lost: Mapping[str, int] = field(default_factory=dict[str, int])
    problem: str = ""
    declared: int | None = None

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint of the main agent."""
        mine = [one.checkpoint for one in self.steps if not one.checkpoint.ns]
        return mine[-1] if mine else None

    @property
    def empty(self) -> bool:
        """Whether it has no readable data."""
        return not (self.steps or self.runs or self.changes or self.pending)

    def batches(self) -> Iterator[Batch]:
        """Yield all of it in the order in which it was stored."""
        changes = [*self.changes]
        for step in self.steps:
            made = step.checkpoint
            while changes and changes[0][0] < made.seq:
                yield self._batch(file_changes=[changes.pop(0)[1]])
            tasks = self.contents.step(step.row)
            yield self._batch(ns=made.ns, writes=tasks, checkpoints=[made])
        for _, change in changes:
            yield self._batch(file_changes=[change])
        for ns, row in self.pending:
            yield self._batch(ns=ns, writes=[self.contents.task(row)])
        yield self._batch(runs=self.runs, interrupts=self.interrupts)

    def _batch(self, **parts: Any) -> Batch:
        return Batch(self.thread_id, imported=True, synced=False, **parts)


def threads_in(contents: Contents, sealed: SealedRecords) -> Iterator[FoundThread]:
    """Yield the whole steps of each thread, the least recently changed thread first."""
    by_thread: dict[int, dict[str, list[Row]]] = {}
    for table, column in (("runs", 2), ("interrupts", 1), ("event_logs", 1)):
        for _, row in sorted(contents.tables.rows(table).items()):
            by_thread.setdefault(row[column], {}).setdefault(table, []).append(row)
    known: set[str] = set()

    def changed_at(number: int) -> float:
        return contents.threads[number][3] if number in contents.threads else 0.0

    for number in sorted(contents.names, key=changed_at):
        found = _Search(contents, sealed, number, by_thread.get(number, {}), known).found()
        known.update(run.id for run in found.runs)
        yield found


class _Search:
    def __init__(
        self,
        contents: Contents,
        sealed: SealedRecords,
        number: int,
        rows: Mapping[str, Sequence[Row]],
        known_runs: set[str],
    ) -> None:
        self._contents = contents
        self._sealed = sealed
        self._number = number
        self._name = contents.names[number]
        self._rows = rows
        self._known_runs = known_runs
        self._lost: Counter[str] = Counter()
        self._problem = ""

    def found(self) -> FoundThread:
        """Return the whole steps with their data."""
        steps, pending = self._work()
        declared = self._declared(steps)
        changes, runs = self._changes(), self._runs()
        ids = {run.id for run in runs}
        places = {one.checkpoint.id for one in steps}
        interrupts = self._interrupts(ids, places | {step_id(one) for one in places})
        if any(self._lost[kind] for kind in ("steps", "calls", "questions", "usage")):
            runs = [
                self._sealed.failed(run, _CUT_OFF) if run.status in UNFINISHED else run
                for run in runs
            ]
        return FoundThread(
            *(self._contents, self._number, self._name),
            sorted(steps, key=lambda one: one.checkpoint.seq),
            *(pending, runs, interrupts, changes),
            [row for row in self._rows.get("event_logs", ()) if row[2] in ids],
            dict(self._lost),
            self._problem,
            declared,
        )

    def _work(self) -> tuple[list[FoundStep], list[tuple[str, Row]]]:
        """Return the whole steps of all namespaces, and finished tasks of unfinished ones."""
        steps: list[FoundStep] = []
        pending: list[tuple[str, Row]] = []
        for ns, scope in self._contents.scopes.get(self._number, ()):
            good = self._steps(ns, scope)
            steps += good.values()
            pending += [(ns, row) for row in self._pending(scope, good)]
        if steps and not any(one.checkpoint.ns == "" for one in steps):
            self._miss("steps", "the thread's own are lost", len(steps))
            return [], []
        return steps, pending

    def _declared(self, steps: Sequence[FoundStep]) -> int | None:
        """Return how many steps the thread should have; missing ones are lost.

        Its row counts the steps up to one of them; later ones are counted as found.
        """
        contents, number = self._contents, self._number
        if number not in contents.threads:
            return None
        counted, newest = contents.threads[number][4:6]
        declared: int = counted + sum(one.checkpoint.seq > newest for one in steps)
        missing = declared - len(steps) - self._lost["steps"]
        gaps = (("checkpoints", ()), ("scopes", (number,)))
        if missing > 0 and any(contents.tables.may_lack(*one) for one in gaps):
            self._miss("steps", "they are missing", missing)
        return declared

    def _miss(self, kind: str, why: object, count: int = 1) -> None:
        self._lost[kind] += count
        self._problem = self._problem or str(why)

    # --- steps -----------------------------------------------------------------------------

    def _steps(self, ns: str, scope: int) -> dict[int, FoundStep]:
        """Return the whole steps of a namespace by the seq of their checkpoints."""
        contents, good = self._contents, dict[int, FoundStep]()
        rows = contents.checkpoints.get(scope, [])
        gone = contents.lost_steps.get(scope, set())
        if gone:
            self._miss("steps", "a checkpoint is missing or damaged", len(gone))
        parents: dict[str, int] = {}
        for row in rows:
            name = step_name(row[2])
            parents[step_id(name)] = parents[turn_step_id(name, self._name, ns)] = row[0]
        if not ns:
            parents = {**self._parents_of_turns(rows, parents), **parents}
        for row in rows:
            try:
                good[row[0]] = self._step(ns, row, good, parents)
            except _UNREADABLE as error:
                self._miss("steps", error)
        return good

    def _parents_of_turns(self, rows: Sequence[Row], known: Collection[str]) -> Mapping[str, int]:
        """Return the parents of steps whose id depends on their run; see `turn_step_id`."""
        names = {row[0]: step_name(row[2]) for row in rows}
        ends = [row[0] for row in rows if row[7] == "end"]
        found: dict[str, int] = {}
        for row in rows:
            own, parent, run_id = names[row[0]], row[3], row[8]
            if own in known or not run_id:
                continue
            for above in ([parent] if parent in names else []) + ends:  # nearly always the first
                if turn_step_id(names[above], self._name, run_id=run_id) == own:
                    found[own] = above
                    break
        return found

    def _step(
        self,
        ns: str,
        row: Row,
        good: Mapping[int, FoundStep],
        parents: Mapping[str, int],
    ) -> FoundStep:
        seq, _, key, parent, step, source, author, following, run_id, at, weight, summary, *_ = row
        above = None if parent is None else good.get(parent)
        if parent is not None and above is None:
            raise ValueError("the step before it is lost")
        if above is not None and above.checkpoint.step >= step:
            raise ValueError("a checkpoint names a parent that it cannot have")
        if parents.get(step_name(key), parent) != parent:
            raise ValueError("a checkpoint names a parent that it did not grow from")
        parent_id = None if above is None else above.checkpoint.id
        head = (seq, key, parent_id, step, source, author, following, run_id, at, summary, weight)
        made = checkpoint_of(head, self._name, ns)
        self._sealed.open(made)
        self._open(self._contents.step(row))
        return FoundStep(made, row)

    def _open(self, tasks: Sequence[TaskWrites]) -> None:
        for task in tasks:
            for write in task.writes:
                self._sealed.open(write)

    def _pending(self, scope: int, good: Mapping[int, FoundStep]) -> Iterator[Row]:
        """Yield the whole tasks of unfinished steps."""
        contents = self._contents
        finished = {row[2] for row in contents.checkpoints.get(scope, ())}
        finished |= contents.lost_steps.get(scope, set())
        for made in good.values():
            step = step_key(step_id(made.checkpoint.id))
            if step in finished:
                continue
            tasks = contents.pending.get((scope, step), [])
            if contents.tables.may_lack("checkpoints", (scope, step)):
                if tasks:
                    self._miss("calls", "whether their step was finished is not known", len(tasks))
                continue
            if contents.is_torn(scope, step):
                self._miss("calls", "a finished call is missing or damaged")
            for row in tasks:
                try:
                    self._open([contents.task(row)])
                except _UNREADABLE as error:
                    self._miss("calls", error)
                else:
                    yield row

    # --- what belongs to runs --------------------------------------------------------------

    def _runs(self) -> list[Run]:
        found: dict[str, Run] = {}
        for row in self._rows.get("runs", ()):
            try:
                run = run_of((row[1], self._name, *row[3:]))
                self._sealed.open(run)
                run = self._with_usage(run)
                if run.id in found or run.id in self._known_runs:
                    raise ValueError("two runs have one id")
            except _UNREADABLE as error:
                self._miss("runs", error)
            else:
                found[run.id] = run
        return [*found.values()]

    def _with_usage(self, run: Run) -> Run:
        """Return a run, without damaged usage; an encrypted run that opens is intact."""
        if not run.used or is_sealed(run):
            return run
        try:
            if isinstance(json.loads(run.used), dict):
                return run
        except ValueError:
            pass
        self._miss("usage", "what a run has used of its limits is damaged")
        return changed(run, used="")

    def _interrupts(self, runs: set[str], steps: set[str]) -> list[Interrupt]:
        found: dict[str, Interrupt] = {}
        for row in self._rows.get("interrupts", ()):
            if row[4] not in steps or row[5] not in runs:
                continue  # it went with its step or run
            try:
                asked: Any = interrupt_of((row[2], self._name, *row[3:]))
                self._sealed.open(asked)
                shapes = (asked.payload, dict), (asked.answer_schema, dict)
                if asked.id in found or not all(isinstance(*one) for one in shapes):
                    raise ValueError("a question is damaged")
            except _UNREADABLE as error:
                self._miss("questions", error)
            else:
                found[asked.id] = asked
        return [*found.values()]

    def _changes(self) -> list[tuple[int, FileChange]]:
        rows, lost = self._contents.changes_of(self._number)
        if lost:
            self._miss("file changes", "a changed file is missing or damaged", lost)
        found: list[tuple[int, FileChange]] = []
        for _, _, run_id, path, body, blob, digest, newest in rows:
            try:
                before = None if body is None else decompress(body)
                before = before if blob is None else self._contents.shared(blob)
                change = FileChange(self._name, run_id, path, before, digest)
                self._sealed.open(change)
            except _UNREADABLE as error:
                self._miss("file changes", error)
            else:
                found.append((newest, change))
        return found


def events_in(contents: Contents, log: Row, sealed: SealedRecords) -> Iterator[Row]:
    """Yield the readable rows of a log's events."""
    number, _, run_id, _ = log
    for row in contents.tables.events(number):
        try:
            for one in events_of(run_id, row[1], row[3]):
                sealed.open(one)
        except _UNREADABLE:
            continue
        yield row
