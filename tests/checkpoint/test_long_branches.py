"""Long threads with many branches: a checkpoint has the writes of its own line and no others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpoint,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from tests.checkpoint.records import THREAD, checkpoint, loaded, step_batch, task, values

pytestmark = pytest.mark.anyio

STEPS = 1_200


class Tree:
    """Checkpoints of one thread, each on the one before or, now and then, on any other."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made: list[Checkpoint] = []
        self.tasks: list[TaskWrites] = []
        self.lines: dict[str, list[str]] = {}
        for number in range(STEPS):
            self._add(number)

    def _add(self, number: int) -> None:
        parent = self.made[-1].id if self.made else None
        if self.made and self.rng.random() < 0.02:
            parent = self.rng.choice(self.made).id
        new = step_id(parent, str(number))
        several = [
            f"{number}.{index} " + "x" * 90 for index in range(self.rng.choice((0, 1, 1, 3)))
        ]
        tasks = [task(new, f"call_{index}", index, one) for index, one in enumerate(several)]
        self.rng.shuffle(tasks)  # calls end in any order
        self.tasks += tasks
        self.made.append(checkpoint(parent, checkpoint_id=new))
        self.lines[new] = [*(self.lines[parent] if parent else []), new]

    def written(self, steps: list[str]) -> list[str]:
        found = [one for one in self.tasks if one.step_id in set(steps)]
        found.sort(key=lambda one: (steps.index(one.step_id), one.index))
        return [text for one in found for text in values(one.writes)]


@pytest.fixture(scope="module", params=[1, 2])
def tree(request: pytest.FixtureRequest) -> Tree:
    return Tree(request.param)


async def test_any_checkpoint_has_the_writes_of_its_line_in_order(path: Path, tree: Tree):
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(Batch(THREAD, "", tree.tasks, tree.made, imported=True))
        for place in [tree.made[-1], *tree.rng.sample(tree.made, 12)]:
            line = tree.lines[place.id]
            assert values((await loaded(journal, place.id)).writes) == tree.written(line)


async def test_only_what_follows_an_ancestor_comes_to_who_has_its_state(path: Path, tree: Tree):
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(Batch(THREAD, "", tree.tasks, tree.made, imported=True))
        for cached in tree.rng.sample(tree.made, 25):
            place = tree.rng.choice(tree.made)
            line = tree.lines[place.id]
            known = line.index(cached.id) + 1 if cached.id in line else 0
            found = await loaded(journal, place.id, cached=cached.id)
            assert found.base == (cached.id if known else None)
            assert values(found.writes) == tree.written(line[known:])


async def test_the_nearest_snapshot_of_the_line_is_taken_and_no_other(path: Path, tree: Tree):
    marked = {one.id for one in tree.rng.sample(tree.made, 20)}
    snapshots = [Snapshot(one, "s", (StoredWrite("messages", b"s"),)) for one in marked]
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(
            Batch(THREAD, "", tree.tasks, tree.made, snapshots=snapshots, imported=True)
        )
        for place in tree.rng.sample(tree.made, 12):
            line = tree.lines[place.id]
            known = max((n + 1 for n, one in enumerate(line) if one in marked), default=0)
            found = await journal.load(THREAD, "", place.id, schema="s")
            assert found is not None
            follow = tree.written(line[known:])
            assert values(found.writes) == (["s", *follow] if known else follow)


async def test_a_fork_far_back_passes_over_all_that_came_after(path: Path):
    line = [checkpoint(None)]
    for _ in range(STEPS):
        line.append(checkpoint(line[-1].id))
    tasks = [task(one.id, "model", 0, str(n)) for n, one in enumerate(line)]
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(Batch(THREAD, "", tasks, line))
        await journal.commit(step_batch(line[40].id, "fork", source="fork", salt="s"))
        expected = [*map(str, range(41)), "fork"]
        assert values((await loaded(journal)).writes) == expected
