"""Writes of steps that are not finished yet, which are all that a resume needs."""

from __future__ import annotations

from ...errors import StaleThread
from ..base import Batch, Checkpointer, StoredWrite, TaskWrites, step_id
from .kit import Laws, equal, refused
from .records import (
    THREAD,
    checkpoint,
    grow,
    loaded,
    task,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("unfinished")


@LAWS.law
async def finished_tasks_of_an_unfinished_step_are_pending(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    step = step_id(first)
    late, early = task(step, "call_2", 1, "y"), task(step, "call_1", 0, "x1", "x2")
    await journal.commit(Batch(THREAD, writes=[late]))
    await journal.commit(Batch(THREAD, writes=[early]))

    found = await loaded(journal)
    equal(values(found.writes), ["a"])
    equal(list(found.pending), [early, late])

    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(first, step=1)]))
    found = await loaded(journal)
    equal(values(found.writes), ["a", "x1", "x2", "y"])
    equal(list(found.pending), [])
    equal(list((await loaded(journal, first)).pending), [])


@LAWS.law
async def a_task_that_wrote_nothing_still_counts_as_finished(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    silent = task(step_id(first), "call_1", 3)
    await journal.commit(Batch(THREAD, writes=[silent]))
    equal(list((await loaded(journal)).pending), [silent])
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(first, step=1)]))
    equal(values((await loaded(journal)).writes), ["a"])


@LAWS.law
async def parallel_tasks_are_folded_in_call_order(journal: Checkpointer) -> None:
    step = step_id(None)
    for index in (2, 10, 0, 1):
        writes = [task(step, f"call_{index}", index, f"{index}a", f"{index}b")]
        await journal.commit(Batch(THREAD, writes=writes))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    expected = ["0a", "0b", "1a", "1b", "2a", "2b", "10a", "10b"]
    equal(values((await loaded(journal)).writes), expected)


@LAWS.law
async def tasks_of_one_index_stay_whole_and_in_order_of_commit(journal: Checkpointer) -> None:
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "z", 0, "z1", "z2")]))
    await journal.commit(Batch(THREAD, writes=[task(step, "a", 0, "a1", "a2")]))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    equal(values((await loaded(journal)).writes), ["z1", "z2", "a1", "a2"])


@LAWS.law
async def a_task_that_is_stored_twice_counts_once(journal: Checkpointer) -> None:
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "call_1", 0, "first")]))
    again = task(step, "call_1", 0, "second", "third")
    await journal.commit(Batch(THREAD, writes=[again, again]))
    await journal.commit(Batch(THREAD, writes=[again], checkpoints=[checkpoint(None)]))
    equal(values((await loaded(journal)).writes), ["first"])
    await journal.commit(Batch(THREAD, writes=[again]))
    equal(values((await loaded(journal)).writes), ["first"])


@LAWS.law
async def a_finished_step_never_changes(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    with refused(StaleThread):
        await journal.commit(Batch(THREAD, writes=[task(first, "late", 9, "b")]))
    equal(values((await loaded(journal)).writes), ["a"])


@LAWS.law
async def namespaces_have_their_own_unfinished_steps(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await grow(journal, "b", ns="task:1")
    main = TaskWrites(step_id(first), "call_1", 0, (StoredWrite("files", b"{}", overwrite=True),))
    sub = task(step_id(first), "call_1", 4, "sub")
    await journal.commit(Batch(THREAD, writes=[main]))
    await journal.commit(Batch(THREAD, "task:1", writes=[sub]))
    equal((await loaded(journal)).pending, [main])
    equal((await loaded(journal, ns="task:1")).pending, [sub])
