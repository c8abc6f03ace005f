"""Random histories: what a journal hands out equals the fold of a simple model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checkpoint.base import Batch, Checkpointer, StoredWrite, TaskWrites, step_id
from harness.checkpoint.memory import MemoryCheckpointer
from harness.checkpoint.sqlite import SqliteCheckpointer
from harness.errors import StaleThread
from tests.checkpoint.records import THREAD, checkpoint

State = dict[str, tuple[bytes, ...]]


@dataclass(frozen=True)
class Move:
    """One batch: tasks of the step after some checkpoint, and maybe the step's end."""

    parent: int
    salt: str
    ns: str
    tasks: tuple[tuple[str, int, tuple[StoredWrite, ...]], ...]
    finish: bool
    source: str


@dataclass
class Model:
    """One namespace as plain dicts."""

    parents: dict[str, str | None] = field(default_factory=dict[str, str | None])
    tasks: dict[str, list[TaskWrites]] = field(default_factory=dict[str, list[TaskWrites]])

    def fits(self, parent: str | None, batch: Batch) -> bool:
        for new in batch.checkpoints:
            if new.id in self.parents:
                return False
            if new.source == "loop" and parent != next(reversed(self.parents), None):
                return False
        known = {(step, task.task_id) for step in self.tasks for task in self.tasks[step]}
        return all(
            task.step_id not in self.parents or (task.step_id, task.task_id) in known
            for task in batch.writes
        )

    def commit(self, parent: str | None, batch: Batch) -> None:
        for task in batch.writes:
            tasks = self.tasks.setdefault(task.step_id, [])
            if task.task_id not in [each.task_id for each in tasks]:
                tasks.append(task)
        for new in batch.checkpoints:
            self.parents[new.id] = parent

    def ordered(self, step: str) -> list[TaskWrites]:
        return sorted(self.tasks.get(step, []), key=lambda task: task.index)

    def state(self, place: str | None) -> State:
        if place is None:
            return {}
        writes = [write for task in self.ordered(place) for write in task.writes]
        return fold(self.state(self.parents[place]), writes)

    def ancestors(self, place: str | None) -> list[str]:
        return [] if place is None else [place, *self.ancestors(self.parents[place])]


def fold(state: State, writes: Sequence[StoredWrite]) -> State:
    state = dict(state)
    for write in writes:
        before = () if write.overwrite else state.get(write.channel, ())
        state[write.channel] = (*before, write.value)
    return state


def moves() -> st.SearchStrategy[list[Move]]:
    value = st.binary(max_size=4) | st.just(b"long " * 200)
    write = st.builds(StoredWrite, st.sampled_from(["a", "b"]), value, st.booleans())
    writes = st.lists(write, max_size=3).map(tuple)
    task = st.tuples(st.sampled_from(["t1", "t2", "t3"]), st.integers(0, 3), writes)
    return st.lists(
        st.builds(
            Move,
            parent=st.integers(0, 6),
            salt=st.sampled_from(["", "", "fork"]),
            ns=st.sampled_from(["", "", "task:1"]),
            tasks=st.lists(task, max_size=3).map(tuple),
            finish=st.booleans() | st.just(True),
            source=st.sampled_from(["loop", "update"]),
        ),
        min_size=1,
        max_size=12,
    )


async def replay(journal: Checkpointer, plan: list[Move]) -> dict[str, Model]:
    """Commit the moves to the journal and to the model; both must refuse the same ones."""
    models = {"": Model(), "task:1": Model()}
    for move in plan:
        model = models[move.ns]
        # Counted from the head backwards, so that most moves go on and some branch off.
        places: list[str | None] = [*reversed(model.parents), None]
        parent = places[min(move.parent, len(places) - 1)]
        step = step_id(parent, move.salt)
        new = checkpoint(parent, ns=move.ns, checkpoint_id=step, source=move.source)  # type: ignore[arg-type]
        batch = Batch(
            THREAD,
            move.ns,
            writes=[TaskWrites(step, *task) for task in move.tasks],
            checkpoints=[new] if move.finish else [],
        )
        if model.fits(parent, batch):
            await journal.commit(batch)
            model.commit(parent, batch)
        else:
            with pytest.raises(StaleThread):
                await journal.commit(batch)
    return models


async def check(journal: Checkpointer, ns: str, model: Model) -> None:
    head = await journal.load(THREAD, ns)
    assert (head.checkpoint.id if head else None) == next(reversed(model.parents), None)
    history = await journal.history(THREAD, ns)
    assert [each.id for each in history] == list(reversed(model.parents))
    for place, parent in model.parents.items():
        ancestors = model.ancestors(place)
        following = step_id(place)
        pending = [] if following in model.parents else model.ordered(following)
        for cached in (None, "ckpt_unknown", *model.parents):
            found = await journal.load(THREAD, ns, place, cached=cached)
            assert found is not None
            assert (found.checkpoint.id, found.checkpoint.parent_id) == (place, parent)
            assert found.base == (cached if cached in ancestors else None)
            assert fold(model.state(found.base), found.writes) == model.state(place)
            assert list(found.pending) == pending


@settings(max_examples=60, deadline=None)
@given(plan=moves())
def test_any_checkpoint_in_memory_is_the_fold_of_its_branch(plan: list[Move]):
    async def scenario() -> None:
        async with MemoryCheckpointer() as journal:
            for ns, model in (await replay(journal, plan)).items():
                await check(journal, ns, model)

    anyio.run(scenario)


@settings(max_examples=40, deadline=None)
@given(plan=moves())
def test_any_checkpoint_on_disk_is_the_fold_of_its_branch(plan: list[Move]):
    async def scenario(path: Path) -> None:
        async with SqliteCheckpointer(path) as journal:
            models = await replay(journal, plan)
        async with SqliteCheckpointer(path) as journal:
            for ns, model in models.items():
                await check(journal, ns, model)

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(scenario, Path(directory) / "journal.db")
