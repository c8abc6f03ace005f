"""What a removal leaves, planned without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint.base import StoredWrite, TaskWrites
from deep_agent_mcp.harness.checkpoint.maintenance import MERGED, merged, parents_of, removal
from deep_agent_mcp.harness.errors import CheckpointError
from tests.checkpoint.records import task


def written(task: TaskWrites) -> list[str]:
    return [write.value.decode() for write in task.writes]


def test_rows_in_order_of_commit_become_parents_by_id():
    rows = [(3, "a", None), (5, "b", 3), (9, "c", 3)]
    assert parents_of("t", rows) == {"a": None, "b": "a", "c": "a"}


@pytest.mark.parametrize("rows", [[(2, "a", 1)], [(1, "a", 2), (2, "b", None)], [(1, "a", 1)]])
def test_a_parent_that_is_missing_or_younger_is_refused(rows: list[tuple[int, str, int | None]]):
    with pytest.raises(CheckpointError, match="an ancestor"):
        parents_of("t", rows)


@given(st.lists(st.integers(0, 5), max_size=8), st.sets(st.integers(0, 8)))
def test_what_stays_hangs_together_and_each_removed_step_has_at_most_one_heir(
    above: list[int], unwanted: set[int]
):
    parents: dict[str, str | None] = {"0": None}
    for number, back in enumerate(above, start=1):
        parents[str(number)] = str(max(number - 1 - back, 0))
    plan = removal(parents, {str(number) for number in unwanted})
    assert plan.gone <= {str(number) for number in unwanted}
    assert plan.parents.keys() == parents.keys() - plan.gone
    assert all(parent is None or parent in plan.parents for parent in plan.parents.values())
    taken = [one for steps in plan.heirs.values() for one in steps]
    assert len(taken) == len({*taken})
    assert {*taken} <= plan.gone


def test_an_heir_gets_what_removed_steps_wrote_before_all_it_wrote_itself():
    tasks = {
        "a": [task("a", "x", 0, "1"), task("a", "y", 1, "2")],
        "b": [task("b", MERGED, -1, "3")],
        "heir": [task("heir", MERGED, 3, "4"), task("heir", "x", 4, "5")],
    }
    made = merged("heir", ["a", "b"], tasks)
    assert (made.step_id, made.task_id, made.index) == ("heir", MERGED, 3)
    assert written(made) == ["1", "2", "3", "4"]


def test_what_is_overwritten_later_is_not_taken_over():
    tasks = {
        "a": [task("a", "x", 0, "1")],
        "b": [TaskWrites("b", "x", 0, (StoredWrite("files", b"kept"),))],
        "heir": [task("heir", "x", 0, "2", overwrite=True)],
    }
    assert written(merged("heir", ["a", "b"], tasks)) == ["kept"]
