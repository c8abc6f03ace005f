"""Batches that the journal on disk stores in one transaction, where their rows wait together."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    FileChange,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from tests.checkpoint.conftest import locked
from tests.checkpoint.records import (
    THREAD,
    checkpoint,
    grow,
    loaded,
    step_batch,
    task,
    values,
)

pytestmark = pytest.mark.anyio


async def commit_together(
    path: Path, journal: SqliteCheckpointer, batches: Sequence[Batch]
) -> list[str]:
    """Commit batches in one transaction; return what those that failed say."""
    refusals: list[str] = []

    async def commit(batch: Batch) -> None:
        try:
            await journal.commit(batch)
        except CheckpointError as error:
            refusals.append(str(error))

    await journal.open()
    async with create_task_group() as group:
        with locked(path):
            # Something that is not a commit keeps the writer busy, so commits stay in the queue.
            group.start_soon(journal.delete_thread, "nobody")
            await wait_all_tasks_blocked()
            for batch in batches:
                group.start_soon(commit, batch)
            await wait_all_tasks_blocked()
    return refusals


async def test_steps_of_one_thread_follow_each_other(path: Path, sqlite: SqliteCheckpointer):
    first, second = step_id(None), step_id(step_id(None))
    batches = [
        step_batch(None, "a"),
        step_batch(first, "b", step=1),
        step_batch(None, "other", thread="other"),
        step_batch(second, "c", step=2),
        step_batch(first, "branched", source="fork", salt="branch"),
    ]
    assert await commit_together(path, sqlite, batches) == []
    history = await sqlite.history(THREAD)
    assert [one.id for one in history][1:] == [step_id(second), second, first]
    assert values((await loaded(sqlite, step_id(second))).writes) == ["a", "b", "c"]
    assert values((await loaded(sqlite)).writes) == ["a", "branched"]
    counts = {one.thread_id: one.checkpoints for one in await sqlite.threads()}
    assert counts == {THREAD: 4, "other": 1}


async def test_a_step_sees_the_tasks_that_were_stored_just_before_it(
    path: Path, sqlite: SqliteCheckpointer
):
    step = step_id(None)
    finished = task(step, "call_1", 0, "call")
    own = task(step, "tools", 1, "own")
    batches = [
        Batch(THREAD, writes=[finished]),
        Batch(THREAD, writes=[finished, own], checkpoints=[checkpoint(None)]),
        Batch(THREAD, writes=[finished]),
    ]
    assert await commit_together(path, sqlite, batches) == []
    assert values((await loaded(sqlite)).writes) == ["call", "own"]


async def test_a_write_to_a_step_that_was_finished_just_before_it_is_late(
    path: Path, sqlite: SqliteCheckpointer
):
    late = Batch(THREAD, writes=[task(step_id(None), "call_2", 0, "late")])
    (refusal,) = await commit_together(path, sqlite, [step_batch(None, "a"), late])
    assert "call_2" in refusal
    assert values((await loaded(sqlite)).writes) == ["a"]


async def test_a_task_that_a_batch_brings_twice_is_stored_once(sqlite: SqliteCheckpointer):
    batch = step_batch(None, "a")
    again = task(step_id(None), "model", 0, "again")
    await sqlite.commit(replace(batch, writes=[*batch.writes, again]))
    assert values((await loaded(sqlite)).writes) == ["a"]


async def test_a_changed_file_knows_the_checkpoint_that_was_stored_just_before_it(
    path: Path, sqlite: SqliteCheckpointer
):
    change = FileChange(THREAD, "run_1", "/f", b"before", None)
    batches = [
        step_batch(None, "a"),
        step_batch(None, "sub", ns="task:1"),
        Batch(THREAD, file_changes=[change]),
        replace(step_batch(step_id(None), "b", step=1), file_changes=[change]),
    ]
    assert await commit_together(path, sqlite, batches) == []
    sub = (await loaded(sqlite, ns="task:1")).checkpoint.seq
    head = (await loaded(sqlite)).checkpoint.seq
    changes = await sqlite.file_changes(THREAD, 0)
    assert [one.checkpoint_seq for one in changes] == [head, sub]


async def test_a_task_that_cannot_be_stored_fails_alone(path: Path, sqlite: SqliteCheckpointer):
    batches = [step_batch(None, "a", thread=f"t{number}") for number in range(4)]
    wrong = TaskWrites(step_id(None), "half a \ud83c flag", 0, ())
    batches[2] = replace(batches[2], writes=[wrong])
    large = StoredWrite("files", b"x" * SHARED_FROM)
    batches[3] = replace(batches[3], writes=[TaskWrites(step_id(None), "call_1", 0, (large,))])
    (refusal,) = await commit_together(path, sqlite, batches)
    assert "'t2' cannot be stored" in refusal
    assert {one.thread_id for one in await sqlite.threads()} == {"t0", "t1", "t3"}
    assert (await loaded(sqlite, thread="t3")).writes[0] == large


async def test_numbers_of_deleted_rows_are_not_given_again(path: Path):
    def newest() -> int:
        with closing(sqlite3.connect(path)) as conn:
            return conn.execute("SELECT max(seq) FROM checkpoints").fetchone()[0]

    async with SqliteCheckpointer(path) as journal:
        await grow(journal, *"abc", thread="old")
        before = newest()
        await journal.delete_thread("old")
        await grow(journal, "d", thread="soon")
        soon = newest()
        await journal.delete_thread("soon")
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "e", thread="late")
    assert before < soon < newest()
    assert newest() == 5


async def test_tasks_that_came_long_before_their_step_are_stored_once(
    sqlite: SqliteCheckpointer,
):
    second = step_id(step_id(None))
    await sqlite.commit(step_batch(None, "a"))
    await sqlite.commit(Batch(THREAD, writes=[task(step_id(second), "model", 0, "c")]))
    await sqlite.commit(step_batch(step_id(None), "b", step=1))
    await sqlite.commit(step_batch(second, "c", step=2))
    assert values((await loaded(sqlite)).writes) == ["a", "b", "c"]


async def test_a_step_sees_at_once_what_another_journal_of_the_same_file_did(
    path: Path, sqlite: SqliteCheckpointer
):
    first = step_id(None)
    await sqlite.commit(step_batch(None, "a"))
    async with SqliteCheckpointer(path) as other:
        await other.commit(Batch(THREAD, writes=[task(step_id(first), "model", 0, "b")]))
        await sqlite.commit(step_batch(first, "b", step=1))
        assert values((await loaded(sqlite)).writes) == ["a", "b"]
        await other.commit(step_batch(step_id(first), "c", step=2))
        with pytest.raises(StaleThread):
            await sqlite.commit(step_batch(step_id(first), "d", step=2, salt="late"))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_no_step_follows_the_head_of_a_thread_that_was_deleted(
    path: Path, sqlite: SqliteCheckpointer, elsewhere: bool
):
    await grow(sqlite, "a", "b")
    async with SqliteCheckpointer(path) as other:
        await (other if elsewhere else sqlite).delete_thread(THREAD)
    with pytest.raises(StaleThread):
        await sqlite.commit(step_batch(step_id(step_id(None)), "c", step=2))
    await grow(sqlite, "d")
    assert values((await loaded(sqlite)).writes) == ["d"]


async def test_steps_after_a_refused_one_are_stored(sqlite: SqliteCheckpointer):
    await grow(sqlite, "a", "b")
    wrong = TaskWrites(step_id(step_id(step_id(None))), "half a \ud83c flag", 0, ())
    batch = step_batch(step_id(step_id(None)), "c", step=2)
    with pytest.raises(CheckpointError):
        await sqlite.commit(replace(batch, writes=[wrong]))
    await sqlite.commit(batch)
    assert values((await loaded(sqlite)).writes) == ["a", "b", "c"]


def two_steps(parent: str, step: int, *texts: str) -> Batch:
    """Return one batch with two steps, as a driven call makes it."""
    first = step_batch(parent, texts[0], step=step)
    second = step_batch(step_id(parent), texts[1], step=step + 1)
    return replace(
        first,
        writes=[*first.writes, *second.writes],
        checkpoints=[*first.checkpoints, *second.checkpoints],
    )


def ids(number: int) -> list[str]:
    """Return the ids of the first steps of a thread."""
    found = [step_id(None)]
    while len(found) < number:
        found.append(step_id(found[-1]))
    return found


async def test_steps_that_come_two_at_a_time_follow_each_other(sqlite: SqliteCheckpointer):
    steps = ids(6)
    await grow(sqlite, "a", "b")
    await sqlite.commit(two_steps(steps[1], 2, "c", "d"))
    await sqlite.commit(two_steps(steps[3], 4, "e", "f"))
    assert [one.id for one in await sqlite.history(THREAD)] == steps[::-1]
    for number, place in enumerate(steps, 1):
        assert values((await loaded(sqlite, place)).writes) == [*"abcdef"[:number]]


async def test_of_two_steps_at_a_time_a_task_that_came_before_is_kept(sqlite: SqliteCheckpointer):
    steps = ids(4)
    await grow(sqlite, "a")
    await sqlite.commit(Batch(THREAD, writes=[task(steps[3], "model", 0, "early")]))
    await sqlite.commit(step_batch(steps[0], "b", step=1))
    await sqlite.commit(two_steps(steps[1], 2, "c", "late"))
    assert values((await loaded(sqlite)).writes) == ["a", "b", "c", "early"]


async def test_of_two_steps_at_a_time_the_second_must_follow_the_first(sqlite: SqliteCheckpointer):
    steps = ids(4)
    await grow(sqlite, "a", "b")
    batch = two_steps(steps[1], 2, "c", "d")
    astray = replace(batch.checkpoints[1], parent_id=steps[0])
    with pytest.raises(StaleThread):
        await sqlite.commit(replace(batch, checkpoints=[batch.checkpoints[0], astray]))
    assert values((await loaded(sqlite)).writes) == ["a", "b"]
    await sqlite.commit(batch)
    assert values((await loaded(sqlite)).writes) == ["a", "b", "c", "d"]
