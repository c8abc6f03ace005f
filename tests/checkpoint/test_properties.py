"""Random histories: what a journal hands out equals the fold of a simple model."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import page_compaction as pages
from deep_agent_mcp.harness.errors import StaleThread
from tests.checkpoint.records import THREAD, checkpoint

State = dict[str, tuple[bytes, ...]]
SCHEMA = "schema"


@dataclass(frozen=True)
class Move:
    """One batch: tasks of the step after some checkpoint, and maybe the step's end."""

    parent: int
    salt: str
    ns: str
    tasks: tuple[tuple[str, int, tuple[StoredWrite, ...]], ...]
    finish: bool
    source: str
    snapshot: bool


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


def snapshot(place: str, state: State) -> Snapshot:
    """Return writes that fold to the state from nothing."""
    writes = [
        StoredWrite(channel, value, overwrite=number == 0)
        for channel, values in state.items()
        for number, value in enumerate(values)
    ]
    return Snapshot(place, SCHEMA, tuple(writes))


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
            snapshot=st.booleans(),
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
        run_id = move.tasks[0][0] if move.tasks else None
        new = checkpoint(parent, ns=move.ns, checkpoint_id=step, source=move.source, run_id=run_id)  # type: ignore[arg-type]
        batch = Batch(
            THREAD,
            move.ns,
            writes=[TaskWrites(step, *task) for task in move.tasks],
            checkpoints=[new] if move.finish else [],
        )
        if model.fits(parent, batch):
            model.commit(parent, batch)
            if move.snapshot and move.finish:
                batch = replace(batch, snapshots=[snapshot(step, model.state(step))])
            await journal.commit(batch)
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
            for schema in (None, SCHEMA, "another"):
                found = await journal.load(THREAD, ns, place, cached=cached, schema=schema)
                assert found is not None
                assert (found.checkpoint.id, found.checkpoint.parent_id) == (place, parent)
                if schema != SCHEMA:
                    assert found.base == (cached if cached in ancestors else None)
                assert found.base is None or found.base in ancestors
                assert fold(model.state(found.base), found.writes) == model.state(place)
                assert list(found.pending) == pending


@given(plan=moves())
def test_any_checkpoint_in_memory_is_the_fold_of_its_branch(plan: list[Move]):
    async def scenario() -> None:
        async with MemoryCheckpointer() as journal:
            for ns, model in (await replay(journal, plan)).items():
                await check(journal, ns, model)

    anyio.run(scenario)


@given(page_bytes=st.sampled_from([1, 100, 1_000_000]), plan=moves())
def test_any_checkpoint_on_disk_is_the_fold_of_its_branch(page_bytes: int, plan: list[Move]):
    async def scenario(path: Path) -> None:
        async with SqliteCheckpointer(path) as journal:
            models = await replay(journal, plan)
            for ns, model in models.items():
                await check(journal, ns, model)
        async with SqliteCheckpointer(path) as journal:
            for ns, model in models.items():
                await check(journal, ns, model)
        without_snapshots(path)
        async with SqliteCheckpointer(path) as journal:
            for ns, model in models.items():
                await check(journal, ns, model)

    with tempfile.TemporaryDirectory() as directory, patch.object(pages, "PAGE_BYTES", page_bytes):
        anyio.run(scenario, Path(directory) / "journal.db")


def without_snapshots(path: Path) -> None:
    conn = sqlite3.connect(path)
    with conn:
        conn.execute("DELETE FROM snapshots")
    conn.close()


@given(plan=moves(), keep=st.integers(1, 4), gone=st.sets(st.sampled_from(["t1", "t2", "t3"])))
def test_no_state_that_stays_is_shortened_by_a_removal(plan: list[Move], keep: int, gone: set[str]):
    async def scenario(path: Path) -> None:
        async with MemoryCheckpointer() as memory, SqliteCheckpointer(path) as disk:
            left: list[object] = []
            for journal in (memory, disk):
                models = await replay(journal, plan)
                await journal.prune(THREAD, keep_latest=keep)
                left.append([await whole(journal, ns, model) for ns, model in models.items()])
                await journal.delete_for_runs(sorted(gone))
                left.append([await whole(journal, ns, model) for ns, model in models.items()])
            assert left[:2] == left[2:]
        conn = sqlite3.connect(path)
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        unused = (
            "SELECT count(*) FROM pages p WHERE NOT EXISTS"
            " (SELECT 1 FROM checkpoints c WHERE coalesce(c.page, c.seq) = p.page)"
        )
        assert conn.execute(unused).fetchone() == (0,)
        conn.close()

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(scenario, Path(directory) / "journal.db")


async def whole(journal: Checkpointer, ns: str, model: Model) -> list[object]:
    """Check that every state that is left is what it was; return what is left."""
    page = await journal.history(THREAD, ns)
    left = [one.id for one in page]
    found: list[object] = [left]
    for one in page:
        ancestors = model.ancestors(one.id)
        nearest = next((each for each in ancestors[1:] if each in left), None)
        assert one.parent_id == nearest
        for schema in (None, SCHEMA):
            for cached in (None, *left):
                read = await journal.load(THREAD, ns, one.id, cached=cached, schema=schema)
                assert read is not None
                assert fold(model.state(read.base), read.writes) == model.state(one.id)
                following = step_id(one.id)
                pending = [] if following in model.parents else model.ordered(following)
                assert list(read.pending) == pending
        found.append(list(read.writes))
    return found
