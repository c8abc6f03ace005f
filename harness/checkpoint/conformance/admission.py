"""Admission of generated batches: a journal decides each as `checkpoint.admission` does.

The batches come from a seed, most of them near the head, so each refusal is met many times. What
is stored is followed in plain dictionaries, from which the facts are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast, get_args

from ...errors import CheckpointError
from ..admission import Facts, admit
from ..base import Batch, Checkpoint, Checkpointer, RunEvent, Snapshot, Source, TaskWrites, step_id
from .kit import Laws, equal
from .records import checkpoint, run, task

__all__ = ["LAWS", "Stored", "random_batch"]

LAWS = Laws("admission")

_SEEDS = range(8)
_BATCHES = 25
_RUNS = ("run_a", "run_b", "run_c")


@dataclass(slots=True)
class Stored:
    """What a journal has stored, in plain dictionaries.

    Attributes:
        checkpoints: Ids in order of commit, by thread and namespace.
        tasks: Ids of tasks by step, by thread and namespace.
        runs: The thread of each run.
        logs: The thread of each run's events.
    """

    checkpoints: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
    tasks: dict[tuple[str, str], dict[str, set[str]]] = field(
        default_factory=dict[tuple[str, str], dict[str, set[str]]]
    )
    runs: dict[str, str] = field(default_factory=dict[str, str])
    logs: dict[str, str] = field(default_factory=dict[str, str])

    def facts(self, batch: Batch) -> Facts:
        """Return what decides on a batch."""
        place, thread = (batch.thread_id, batch.ns), batch.thread_id
        known = self.checkpoints.get(place, [])
        foreign = {one.id for one in batch.runs if self.runs.get(one.id, thread) != thread}
        for event in batch.events:
            if self.logs.get(event.run_id, thread) != thread:
                foreign.add(event.run_id)
        return Facts(known[-1] if known else None, known, self.tasks.get(place, {}), foreign)

    def commit(self, batch: Batch) -> None:
        """Store a batch if it is admitted.

        Raises:
            CheckpointError: It is not.
        """
        new = admit(self.facts(batch), batch)
        place = batch.thread_id, batch.ns
        for one in new:
            self.tasks.setdefault(place, {}).setdefault(one.step_id, set()).add(one.task_id)
        self.checkpoints.setdefault(place, []).extend(one.id for one in batch.checkpoints)
        self.runs |= {one.id: batch.thread_id for one in batch.runs}
        self.logs |= {one.run_id: batch.thread_id for one in batch.events}


def random_batch(chance: Random, stored: Stored, threads: Sequence[str], run_prefix: str) -> Batch:
    """Return a batch near what is stored, which may be admitted or not."""
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
    runs, events = (
        [run_prefix + chance.choice(_RUNS)] if chance.random() < 0.15 else [] for _ in range(2)
    )
    return Batch(
        thread,
        ns,
        writes=[_some_task(chance, steps) for _ in range(chance.choice((0, 1, 1, 2, 3)))],
        checkpoints=made,
        snapshots=[Snapshot(chance.choice(named), "s", ())] if chance.random() < 0.15 else [],
        runs=[run(one, thread=thread) for one in runs],
        events=[RunEvent(one, "tasks", ("main",), {}) for one in events],
        imported=chance.random() < 0.3,
    )


def _some_parent(chance: Random, known: Sequence[str]) -> str | None:
    head = known[-1] if known else None
    return chance.choice((head, head, head, head, *known[-3:], None, "ckpt_unknown"))


def _some_task(chance: Random, steps: Sequence[str]) -> TaskWrites:
    return task(chance.choice(steps), chance.choice("abc"), chance.randrange(3), "value")


@LAWS.law
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
) -> tuple[CheckpointError | None, CheckpointError | None]:
    """Return why the law refuses a batch, and why the journal does."""
    expected: CheckpointError | None = None
    actual: CheckpointError | None = None
    try:
        stored.commit(batch)
    except CheckpointError as error:
        expected = error
    try:
        await journal.commit(batch)
    except CheckpointError as error:
        actual = error
    return expected, actual
