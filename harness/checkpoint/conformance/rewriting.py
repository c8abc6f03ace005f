"""Conformance cases of admission, and of replacing what is stored.

Replacing a thread's records is how keys are changed and secrets removed.

A journal must admit each generated batch as `checkpoint.admission` does. The batches come from a
seed, most of them near the head, so each refusal occurs many times. Plain dictionaries track the
stored data and give the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast, get_args

from ..._internal.records import changed
from ...errors import HarnessError
from ..admission import Facts, StoredRun, admit
from ..base import (
    OPEN,
    Batch,
    Checkpoint,
    Checkpointer,
    Fence,
    FileChange,
    Interrupt,
    Record,
    Run,
    RunEvent,
    RunStatus,
    Snapshot,
    Source,
    StoredWrite,
    TaskWrites,
    step_id,
)
from .kit import (
    THREAD,
    Laws,
    checkpoint,
    equal,
    grow,
    interrupt,
    loaded,
    refused,
    run,
    step_batch,
    task,
    values,
)

__all__ = ["ADMISSION_LAWS", "LAWS", "Stored", "random_batch"]


LAWS = Laws("rewriting")

R = TypeVar("R", bound=Record)

_LARGE = b"large " * 20_000


def _louder(record: R, /) -> R:
    """Change everything that a rewrite may change, and try to change everything else."""
    made: Record = record
    match made:
        case StoredWrite():
            made = changed(made, value=made.value.upper(), channel="other", overwrite=True)
        case Checkpoint():
            made = changed(made, summary=made.summary.upper(), author="new", parent_id=None, step=9)
        case Run():
            made = changed(made, goal=made.goal.upper(), idempotency_key="new", status="failed")
        case Interrupt():
            made = changed(made, message=made.message.upper(), answer="new", answered=False)
        case FileChange():
            made = changed(made, path=made.path.upper(), before=b"new", run_id="other")
        case RunEvent():
            made = changed(made, data={"event": "new"}, seq=77, mode="other")
    same: Any = made
    return same


async def _full(journal: Checkpointer, thread: str) -> tuple[str, ...]:
    first, head = await grow(journal, "a", "b", thread=thread)
    large = task(step_id(head), "call_1", 0, "pending")
    large = changed(large, writes=[*large.writes, StoredWrite("files", _LARGE)])
    run_id = f"run_{thread}"
    await journal.commit(
        Batch(
            thread,
            writes=[large],
            runs=[run(run_id, thread=thread, goal="tidy", idempotency_key=f"key {thread}")],
            interrupts=[interrupt(f"int_{thread}", step_id(head), thread=thread, run_id=run_id)],
            answers={f"int_{thread}": "old"},
            file_changes=[FileChange(thread, run_id, "/file", _LARGE, "digest")],
            snapshots=[Snapshot(head, "schema", (StoredWrite("messages", b"ab", True),))],
            events=[RunEvent(run_id, "tasks", ("main",), {"event": "old"})],
        )
    )
    return first, head


@LAWS.law
async def a_rewrite_changes_the_content_of_every_record(journal: Checkpointer) -> None:
    first, head = await _full(journal, THREAD)
    run_id = f"run_{THREAD}"
    old_run, old_history = await journal.run(run_id), await journal.history(THREAD)
    old = await loaded(journal)
    (old_change,) = await journal.file_changes(THREAD, 0)
    (old_event,) = await journal.events(run_id)
    await journal.rewrite(THREAD, _louder)

    equal(values((await loaded(journal, first)).writes), ["A"])
    found = await loaded(journal)
    equal(values(found.writes), ["A", "B"])
    (pending,) = found.pending
    small, large = pending.writes
    equal((pending.task_id, small, large.value), (
        "call_1", StoredWrite("messages", b"PENDING"), _LARGE.upper()
    ))  # fmt: skip
    equal(
        await journal.history(THREAD),
        [changed(one, summary=one.summary.upper(), author="new") for one in old_history],
    )
    (asked,) = found.interrupts
    (was,) = old.interrupts
    equal(asked, changed(was, message=was.message.upper(), answer="new"))
    assert old_run is not None
    equal(await journal.run(run_id), changed(old_run, goal="TIDY", idempotency_key="new"))
    equal([one.id for one in await journal.find_runs(idempotency_key="new")], [run_id])
    equal(await journal.find_runs(idempotency_key=f"key {THREAD}"), [])
    equal(await journal.file_changes(THREAD, 0), [changed(old_change, path="/FILE", before=b"new")])
    equal(await journal.events(run_id), [changed(old_event, data={"event": "new"})])
    found = await journal.load(THREAD, schema="schema")
    assert found is not None
    equal(values(found.writes), ["AB"])
    await journal.commit(step_batch(head, "c"))
    equal(values((await loaded(journal)).writes)[:2], ["A", "B"])


@LAWS.law
async def a_rewrite_leaves_other_threads_alone(journal: Checkpointer) -> None:
    await _full(journal, THREAD)
    await _full(journal, "other")
    before = await loaded(journal, thread="other")
    changes, runs = await journal.file_changes("other", 0), await journal.run("run_other")
    await journal.rewrite(THREAD, _louder)
    await journal.rewrite("nobody", _louder)
    equal(await loaded(journal, thread="other"), before)
    equal(await journal.file_changes("other", 0), changes)
    equal(await journal.run("run_other"), runs)


@LAWS.law
async def a_rewrite_that_fails_changes_nothing(journal: Checkpointer) -> None:
    await _full(journal, THREAD)
    before, changes = await loaded(journal), await journal.file_changes(THREAD, 0)

    def fails(record: R, /) -> R:
        if isinstance(record, RunEvent):
            raise KeyError("no such key")
        return _louder(record)

    with refused(KeyError):
        await journal.rewrite(THREAD, fails)
    equal(await loaded(journal), before)
    equal(await journal.file_changes(THREAD, 0), changes)
    equal((await journal.events(f"run_{THREAD}"))[0].data, {"event": "old"})


@LAWS.law
async def a_rewrite_reaches_every_namespace(journal: Checkpointer) -> None:
    await grow(journal, "main")
    await grow(journal, "sub", ns="task:call_1@ckpt_1")
    await journal.rewrite(THREAD, _louder)
    equal(values((await loaded(journal, ns="task:call_1@ckpt_1")).writes), ["SUB"])
    equal(values((await loaded(journal)).writes), ["MAIN"])


@LAWS.law
async def a_thread_without_steps_is_rewritten_as_others_are(journal: Checkpointer) -> None:
    event = RunEvent("run_1", "tasks", (), {"event": "old"})
    await journal.commit(Batch(THREAD, interrupts=[interrupt("int_1", "later")], events=[event]))
    await journal.rewrite(THREAD, _louder)
    equal([one.data for one in await journal.events("run_1")], [{"event": "new"}])
    equal([one.id for one in await journal.interrupts("run_1")], ["int_1"])
    equal([one.thread_id for one in await journal.threads()], [THREAD])


ADMISSION_LAWS = Laws("admission")

_SEEDS = range(8)
_BATCHES = 25
_RUNS = ("run_a", "run_b", "run_c", "run_d", "run_e")
_STATUSES: tuple[RunStatus, ...] = (
    *("running", "needs_approval", "done", "queued", "cancelled", "paused"),
)


@dataclass(slots=True)
class Stored:
    """Contents of a journal, in plain dictionaries.

    Attributes:
        checkpoints: Ids in order of commit, by thread and namespace.
        tasks: Ids of tasks by step, by thread and namespace.
        runs: The runs by id.
        logs: The thread of each run's events.
    """

    checkpoints: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
    tasks: dict[tuple[str, str], dict[str, set[str]]] = field(
        default_factory=dict[tuple[str, str], dict[str, set[str]]]
    )
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    logs: dict[str, str] = field(default_factory=dict[str, str])

    def facts(self, batch: Batch) -> Facts:
        """Return the facts that decide about a batch."""
        place, thread = (batch.thread_id, batch.ns), batch.thread_id
        known = self.checkpoints.get(place, [])
        named = {*(one.id for one in batch.runs), *(one.run_id for one in batch.fences)}
        runs = {name: self.runs[name] for name in named if name in self.runs}
        return Facts(
            known[-1] if known else None,
            known,
            self.tasks.get(place, {}),
            {name for name, one in runs.items() if one.thread_id != thread},
            {one.run_id for one in batch.events if self.logs.get(one.run_id, thread) != thread},
            {name: StoredRun(one.attempt, one.status in OPEN) for name, one in runs.items()},
            {
                name
                for name, one in self.runs.items()
                if one.thread_id == thread and one.status in OPEN
            },
            {one.idempotency_key: one.id for one in self.runs.values() if one.idempotency_key},
        )

    def commit(self, batch: Batch) -> None:
        """Store a batch if it is admitted.

        Raises:
            HarnessError: It is not.
        """
        new = admit(self.facts(batch), batch)
        place = batch.thread_id, batch.ns
        for one in new:
            self.tasks.setdefault(place, {}).setdefault(one.step_id, set()).add(one.task_id)
        self.checkpoints.setdefault(place, []).extend(one.id for one in batch.checkpoints)
        self.runs |= {one.id: one for one in batch.runs}
        self.logs |= {one.run_id: batch.thread_id for one in batch.events}


def random_batch(chance: Random, stored: Stored, threads: Sequence[str], run_prefix: str) -> Batch:
    """Return a batch close to the stored data, which may be admitted or refused."""
    thread, ns = chance.choice(threads), chance.choice(("", "", "task:1"))
    known = stored.checkpoints.get((thread, ns), [])
    parent = _some_parent(chance, known)
    made: list[Checkpoint] = []
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        made.append(
            checkpoint(
                parent,
                thread=thread,
                ns=ns,
                checkpoint_id=step_id(parent, chance.choice(("", "", "", "fork"))),
                source=cast(Source, chance.choice(("loop", "loop", *get_args(Source)))),
            )
        )
        parent = made[-1].id if chance.random() < 0.8 else _some_parent(chance, known)
    steps = [one.id for one in made] or [step_id(parent)]
    steps += [chance.choice([*known, "step_apart"])] if chance.random() < 0.2 else []
    named = [*steps, *known[-1:], "ckpt_unknown"]
    events = [run_prefix + chance.choice(_RUNS)] if chance.random() < 0.15 else []
    runs = [
        _some_run(chance, stored, thread, run_prefix)
        for _ in range(chance.choice((0, 0, 0, 1, 1, 2)))
    ]
    fence = Fence(run_prefix + chance.choice(_RUNS), chance.randrange(1, 4), chance.random() < 0.3)
    return Batch(
        thread,
        ns,
        writes=[_some_task(chance, steps) for _ in range(chance.choice((0, 1, 1, 2, 3)))],
        checkpoints=made,
        snapshots=[Snapshot(chance.choice(named), "s", ())] if chance.random() < 0.15 else [],
        runs=[*{one.id: one for one in runs}.values()],
        events=[RunEvent(one, "tasks", ("main",), {}) for one in events],
        imported=chance.random() < 0.3,
        fences=[fence] if chance.random() < 0.2 else [],
    )


def _some_run(chance: Random, stored: Stored, thread: str, run_prefix: str) -> Run:
    """Return a run; an earlier or a later attempt of it may be stored."""
    run_id = run_prefix + chance.choice(_RUNS)
    known = stored.runs.get(run_id)
    key = known.idempotency_key if known else chance.choice((None, f"{run_prefix}key"))
    return run(
        run_id,
        thread=thread,
        status=chance.choice(_STATUSES),
        attempt=max(1, (known.attempt if known else 1) + chance.choice((-1, 0, 0, 0, 1))),
        idempotency_key=key,
    )


def _some_parent(chance: Random, known: Sequence[str]) -> str | None:
    head = known[-1] if known else None
    return chance.choice((head, head, head, head, *known[-3:], None, "ckpt_unknown"))


def _some_task(chance: Random, steps: Sequence[str]) -> TaskWrites:
    return task(chance.choice(steps), chance.choice("abc"), chance.randrange(3), "value")


@ADMISSION_LAWS.law
async def generated_batches_are_decided_as_the_law_of_admission_says(journal: Checkpointer) -> None:
    for seed in _SEEDS:
        chance, stored = Random(seed), Stored()
        threads = (f"thread_{seed}_a", f"thread_{seed}_b")
        for number in range(_BATCHES):
            batch = random_batch(chance, stored, threads, f"{seed}_")
            expected, actual = await _refusals(journal, stored, batch)
            equal((seed, number, type(actual)), (seed, number, type(expected)))
        for (thread, ns), known in stored.checkpoints.items():
            found = await journal.history(thread, ns, limit=1_000)
            equal([one.id for one in found], known[::-1])


async def _refusals(
    journal: Checkpointer, stored: Stored, batch: Batch
) -> tuple[HarnessError | None, HarnessError | None]:
    """Return why the law refuses a batch, and why the journal does."""
    expected: HarnessError | None = None
    actual: HarnessError | None = None
    try:
        stored.commit(batch)
    except HarnessError as error:
        expected = error
    try:
        await journal.commit(batch)
    except HarnessError as error:
        actual = error
    return expected, actual
