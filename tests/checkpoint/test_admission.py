"""The law of admission, without a database, and the journals that must decide as it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint.admission import Facts, admit
from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpoint, Snapshot, Source, step_id
from deep_agent_mcp.harness.checkpoint.conformance.rewriting import Stored, random_batch
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError, StaleThread
from tests.checkpoint.records import THREAD, checkpoint, step_batch, task

FROM_HEAD: tuple[Source, ...] = ("input", "loop")
SOURCES: tuple[Source, ...] = ("input", "loop", "update", "fork")

sources = st.sampled_from(SOURCES)
seeds = st.integers(0, 2**32)
branches = st.integers(1, 5)


def facts(
    *known: str, tasks: dict[str, set[str]] | None = None, foreign: Sequence[str] = ()
) -> Facts:
    """Return the facts of a namespace whose newest checkpoint is the last of these."""
    return Facts(known[-1] if known else None, known, tasks or {}, foreign)


def branch(length: int) -> list[str]:
    """Return the ids of steps that follow each other, from the root."""
    ids = [step_id(None)]
    while len(ids) < length:
        ids.append(step_id(ids[-1]))
    return ids


def history(seed: int, length: int = 30) -> tuple[Random, Stored]:
    """Return what is stored after some generated batches."""
    chance, stored = Random(seed), Stored()
    for _ in range(length):
        attempt(stored, some_batch(chance, stored))
    return chance, stored


def some_batch(chance: Random, stored: Stored) -> Batch:
    return random_batch(chance, stored, ("a", "b"), "")


def attempt(stored: Stored, batch: Batch) -> HarnessError | None:
    try:
        stored.commit(batch)
    except HarnessError as error:
        return error
    return None


@given(length=branches, source=sources, salt=st.sampled_from(["", "fork"]))
def test_a_parent_must_be_known(length: int, source: Source, salt: str):
    known = branch(length)
    for parent in ("ckpt_unknown", step_id(known[-1])):
        with pytest.raises(StaleThread, match="not in the journal"):
            admit(facts(*known), step_batch(parent, "a", source=source, salt=salt))


@given(length=branches, source=st.sampled_from(FROM_HEAD), data=st.data())
def test_a_run_goes_on_from_the_head_alone(length: int, source: Source, data: st.DataObject):
    known = branch(length)
    parent = data.draw(st.sampled_from([None, *known]))
    batch = step_batch(parent, "a", source=source, salt="other")
    if parent == known[-1]:
        assert admit(facts(*known), batch) == batch.writes
    else:
        with pytest.raises(StaleThread, match="moved on"):
            admit(facts(*known), batch)
        assert admit(facts(*known), replace(batch, imported=True)) == batch.writes


@given(length=branches, source=st.sampled_from(["update", "fork"]), data=st.data())
def test_updates_and_forks_grow_from_any_checkpoint(
    length: int, source: Source, data: st.DataObject
):
    known = branch(length)
    parent = data.draw(st.sampled_from([None, *known]))
    batch = step_batch(parent, "a", source=source, salt="other")
    assert admit(facts(*known), batch) == batch.writes


@given(seed=seeds)
def test_a_head_moves_once(seed: int):
    """Of two batches that go on from one head, the second is refused, whichever it is."""
    _, stored = history(seed, 12)
    for (thread, ns), known in [*stored.checkpoints.items()]:
        head = known[-1] if known else None
        one, other = (step_batch(head, "x", thread=thread, ns=ns, salt=salt) for salt in "ab")
        assert attempt(stored, one) is None
        assert isinstance(attempt(stored, other), StaleThread)


@given(seed=seeds, imported=st.booleans())
def test_a_stored_checkpoint_is_refused_when_it_comes_again(seed: int, imported: bool):
    chance, stored = history(seed, 5)
    for _ in range(20):
        batch = replace(some_batch(chance, stored), imported=imported)
        if attempt(stored, batch) is None and batch.checkpoints:
            again = replace(batch, runs=[], fences=[])
            assert isinstance(attempt(stored, again), StaleThread)


@given(seed=seeds)
def test_tasks_that_come_again_are_left_out(seed: int):
    chance, stored = history(seed, 5)
    for _ in range(20):
        batch = some_batch(chance, stored)
        tasks = Batch(batch.thread_id, batch.ns, writes=batch.writes)
        if attempt(stored, tasks) is None:
            assert admit(stored.facts(tasks), tasks) == []


@given(names=st.lists(st.sampled_from("abc"), min_size=1), stored=st.sets(st.sampled_from("abc")))
def test_of_tasks_with_one_id_the_first_wins(names: list[str], stored: set[str]):
    writes = [task("s", name, number, str(number)) for number, name in enumerate(names)]
    new = admit(facts(tasks={"s": stored}), Batch(THREAD, writes=writes))
    assert [one.task_id for one in new] == [
        one for one in dict.fromkeys(names) if one not in stored
    ]
    assert all(one.index == names.index(one.task_id) for one in new)


@given(length=branches, stored=st.sets(st.sampled_from("abc")), name=st.sampled_from("abc"))
def test_a_finished_step_takes_no_new_task(length: int, stored: set[str], name: str):
    known = branch(length)
    batch = Batch(THREAD, writes=[task(known[0], name)])
    where = facts(*known, tasks={known[0]: stored})
    if name in stored:
        assert admit(where, batch) == []
    else:
        with pytest.raises(StaleThread, match="finished already"):
            admit(where, batch)


@given(length=branches, data=st.data())
def test_steps_of_one_batch_are_decided_as_if_each_came_alone(length: int, data: st.DataObject):
    """So the order in a batch matters, and a step may grow from one before it."""
    ids = branch(length)
    order = data.draw(st.permutations(range(length)))
    made = [checkpoint(([None, *ids])[place], checkpoint_id=ids[place]) for place in order]
    together, apart = Stored(), Stored()
    outcomes = [attempt(apart, Batch(THREAD, checkpoints=[one])) for one in made]
    whole = attempt(together, Batch(THREAD, checkpoints=made))
    first = next((one for one in outcomes if one is not None), None)
    assert (type(whole), str(whole)) == (type(first), str(first))


@given(seed=seeds)
def test_a_batch_with_one_id_twice_is_refused(seed: int):
    chance, stored = history(seed, 5)
    batch = some_batch(chance, stored)
    if batch.checkpoints:
        twice: list[Checkpoint] = [*batch.checkpoints, batch.checkpoints[0]]
        with pytest.raises(HarnessError):
            admit(stored.facts(batch), replace(batch, checkpoints=twice))


def test_a_snapshot_is_of_a_checkpoint_that_is_stored_or_comes_with_it():
    for place, known in ((step_id(None), ()), ("ckpt_1", ("ckpt_1",))):
        batch = replace(
            step_batch(known[-1] if known else None), snapshots=[Snapshot(place, "s", ())]
        )
        assert admit(facts(*known), batch) == batch.writes
    with pytest.raises(CheckpointError, match="no checkpoint ckpt_2"):
        admit(facts("ckpt_1"), Batch(THREAD, snapshots=[Snapshot("ckpt_2", "s", ())]))


def test_a_run_of_another_thread_is_refused_and_the_smallest_id_is_named():
    with pytest.raises(CheckpointError, match="run run_1 belongs to another thread"):
        admit(facts(foreign=["run_2", "run_1"]), Batch(THREAD))


@given(seed=seeds)
def test_deciding_changes_nothing(seed: int):
    chance, stored = history(seed)
    batch = some_batch(chance, stored)
    before = repr(stored)

    def decided() -> object:
        try:
            return admit(stored.facts(batch), batch)
        except HarnessError as error:
            return type(error), str(error)

    assert decided() == decided()
    assert repr(stored) == before


def test_generated_batches_meet_every_refusal():
    """Else the law that compares journals would compare less than it says."""
    met: Counter[str] = Counter()
    for seed in range(8):
        chance, stored = Random(seed), Stored()
        for _ in range(25):
            error = attempt(stored, some_batch(chance, stored))
            said = str(error)
            words = ("exists already", "not in the journal", "moved on", "finished already")
            words = (*words, "no checkpoint", "another thread")
            words = (*words, "not executed", "is in use", "idempotency key")
            met[next((one for one in words if error and one in said), "admitted")] += 1
    assert len(met) == 10, met
    assert met["admitted"] > 60, met
