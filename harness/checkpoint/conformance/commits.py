"""Commit laws: a step is stored whole or not at all, and never over another writer's step.

The writes of unfinished steps are covered too; a resume needs nothing else.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint as yield_to_others

from ...errors import CheckpointError, StaleThread
from ..base import Batch, Checkpointer, FileChange, Source, StoredWrite, TaskWrites, step_id
from .kit import (
    THREAD,
    Laws,
    checkpoint,
    equal,
    grow,
    head_id,
    holds,
    interrupt,
    loaded,
    refused,
    run,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS", "UNFINISHED_LAWS"]


LAWS = Laws("commits")

_FROM_HEAD: tuple[Source, ...] = ("input", "loop")
_FROM_ANYWHERE: tuple[Source, ...] = ("update", "fork")


@LAWS.law
async def what_was_never_stored_is_not_there(journal: Checkpointer) -> None:
    equal(await journal.load("nobody"), None)
    equal(await journal.history("nobody"), [])
    equal(await journal.threads(), [])
    equal(await journal.run("run_x"), None)
    equal(await journal.find_runs(), [])
    equal(await journal.interrupts("run_x"), [])
    equal(await journal.file_changes("nobody", 0), [])
    await grow(journal, "a")
    equal(await journal.load(THREAD, "", "ckpt_unknown"), None)
    equal(await journal.load(THREAD, "task:call_1"), None)


@LAWS.law
async def a_checkpoint_comes_back_as_it_was_committed(journal: Checkpointer) -> None:
    first, _ = await grow(journal, "a", "b")
    stored = checkpoint(
        step_id(first),
        step=2,
        source="update",
        run_id="run_1",
        created_at=1234.5,
        summary="wrote “ä” 🎉",
    )
    await journal.commit(Batch(THREAD, checkpoints=[stored]))
    found = await loaded(journal)
    holds(found.checkpoint.seq > 0, "the journal numbers its checkpoints from 1")
    equal(replace(found.checkpoint, seq=0), stored)
    equal(found.base, None)


@LAWS.law
async def writes_lead_from_the_root_to_the_checkpoint_in_order(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b", "c")
    equal(values((await loaded(journal)).writes), ["a", "b", "c"])
    equal(values((await loaded(journal, ids[1])).writes), ["a", "b"])
    equal(values((await loaded(journal, ids[0])).writes), ["a"])


@LAWS.law
async def values_come_back_byte_for_byte(journal: Checkpointer) -> None:
    stored = (
        StoredWrite("files", b""),
        StoredWrite("files", b"\x00\xff" * 3),
        StoredWrite("messages", b"text that compresses " * 5000, overwrite=True),
        StoredWrite("files", os.urandom(300_000)),
    )
    batch = step_batch(None)
    writes = [replace(batch.writes[0], writes=stored)]
    await journal.commit(replace(batch, writes=writes))
    equal(tuple((await loaded(journal)).writes), stored)


@LAWS.law
async def ids_are_data_and_never_part_of_a_query(journal: Checkpointer) -> None:
    odd = "x'; DROP TABLE threads; --%_\x00"
    await grow(journal, "a", thread=odd, ns=odd)
    await journal.commit(Batch(odd, runs=[run(odd, thread=odd, idempotency_key=odd)]))
    equal(await head_id(journal, odd, odd), step_id(None))
    equal([each.id for each in await journal.find_runs(thread_id=odd, idempotency_key=odd)], [odd])
    equal(await journal.find_runs(thread_id="%"), [])


@LAWS.law
async def namespaces_of_a_thread_do_not_mix(journal: Checkpointer) -> None:
    await grow(journal, "main")
    await grow(journal, "sub 1", "sub 2", ns="task:call_1@ckpt_1")
    sub = await loaded(journal, ns="task:call_1@ckpt_1")
    equal(sub.checkpoint.ns, "task:call_1@ckpt_1")
    equal(values(sub.writes), ["sub 1", "sub 2"])
    equal(values((await loaded(journal)).writes), ["main"])
    equal(len(await journal.history(THREAD)), 1)


@LAWS.law
async def several_steps_of_one_batch_grow_on_each_other(journal: Checkpointer) -> None:
    first, second = step_id(None), step_id(step_id(None))
    await journal.commit(
        Batch(
            THREAD,
            writes=[task(first, "input", 0, "a"), task(second, "model", 0, "b")],
            checkpoints=[checkpoint(None, source="input"), checkpoint(first, step=1)],
        )
    )
    found = await loaded(journal)
    equal(found.checkpoint.id, second)
    equal(values(found.writes), ["a", "b"])


@LAWS.law
async def a_refused_batch_leaves_nothing_behind(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    step = step_id(first)
    asked = interrupt("int_1", step)
    await journal.commit(Batch(THREAD, runs=[run("run_1", status="running")], interrupts=[asked]))
    before = await journal.threads()

    with refused(StaleThread):
        await journal.commit(
            Batch(
                THREAD,
                writes=[task(step, "tools", 0, "b")],
                checkpoints=[checkpoint(first, step=1), checkpoint(None)],
                runs=[run("run_1", status="done"), run("run_2")],
                interrupts=[interrupt("int_2", step)],
                answers={"int_1": "yes"},
                file_changes=[FileChange(THREAD, "run_1", "/f", b"", None)],
            )
        )

    equal(await journal.threads(), before)
    found = await loaded(journal)
    equal(found.checkpoint.id, first)
    equal(list(found.pending), [])
    equal([(each.id, each.answered) for each in found.interrupts], [("int_1", False)])
    equal([each.status for each in await journal.find_runs()], ["running"])
    equal(await journal.file_changes(THREAD, 0), [])


@LAWS.law
async def a_refused_first_batch_makes_no_thread(journal: Checkpointer) -> None:
    with refused(StaleThread):
        await journal.commit(step_batch("ckpt_of_nobody", "a"))
    equal(await journal.threads(), [])


@LAWS.law
async def a_batch_that_mixes_threads_or_namespaces_is_refused(journal: Checkpointer) -> None:
    for batch in (
        Batch(THREAD, checkpoints=[checkpoint(None, thread="other")]),
        Batch(THREAD, checkpoints=[checkpoint(None, ns="task:1")]),
        Batch(THREAD, runs=[run("run_1", thread="other")]),
        Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1", thread="other")]),
        Batch(THREAD, file_changes=[FileChange("other", "run_1", "/f", None, None)]),
    ):
        with refused(ValueError):
            await journal.commit(batch)
    equal(await journal.threads(), [])


@LAWS.law
async def what_is_not_json_is_refused(journal: Checkpointer) -> None:
    asked = replace(interrupt("int_1", "ckpt_1"), payload={"when": object()})  # type: ignore[dict-item]
    with refused(CheckpointError):
        await journal.commit(Batch(THREAD, interrupts=[asked]))
    equal(await journal.threads(), [])


@LAWS.law
async def the_same_step_can_be_finished_only_once(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await journal.commit(step_batch(first, "mine"))
    with refused(StaleThread):
        await journal.commit(step_batch(first, "theirs"))
    equal(values((await loaded(journal)).writes), ["a", "mine"])


@LAWS.law
async def a_run_cannot_go_on_from_anything_but_the_head(journal: Checkpointer) -> None:
    first, _ = await grow(journal, "a", "b")
    for source in _FROM_HEAD:
        for parent in (first, None):
            with refused(StaleThread):
                await journal.commit(step_batch(parent, "c", source=source, salt="other"))


@LAWS.law
async def updates_and_forks_grow_from_any_checkpoint(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    for source in _FROM_ANYWHERE:
        await journal.commit(step_batch(first, source, source=source, salt=source))
        found = await loaded(journal)
        equal(found.checkpoint.parent_id, first)
        equal(values(found.writes), ["a", source])
        with refused(StaleThread):
            await journal.commit(step_batch(second, "d"))


@LAWS.law
async def a_parent_must_exist_in_its_namespace(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a", ns="task:1")
    for source in _FROM_HEAD + _FROM_ANYWHERE:
        with refused(StaleThread):
            await journal.commit(step_batch(first, "b", source=source))


@LAWS.law
async def a_closed_journal_says_so(journal: Checkpointer) -> None:
    await grow(journal, "a")
    await journal.close()
    await journal.close()
    with refused(CheckpointError):
        await journal.commit(step_batch(None, "b"))
    with refused(CheckpointError):
        await journal.load(THREAD)
    with refused(CheckpointError):
        await journal.delete_thread(THREAD)


@LAWS.law
async def of_runs_that_finish_one_step_at_the_same_time_one_wins(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    outcomes: dict[str, str] = {}

    async def finish(name: str) -> None:
        try:
            await journal.commit(step_batch(first, name))
            outcomes[name] = "stored"
        except StaleThread:
            outcomes[name] = "stale"

    async with create_task_group() as group:
        for number in range(20):
            group.start_soon(finish, f"run {number}")
    winners = [name for name, outcome in outcomes.items() if outcome == "stored"]
    equal((len(outcomes), len(winners)), (20, 1))
    equal(values((await loaded(journal)).writes), ["a", *winners])


@LAWS.law
async def concurrent_runs_keep_their_threads_apart(journal: Checkpointer) -> None:
    async with create_task_group() as group:
        for number in range(20):
            name = f"t{number}"
            group.start_soon(partial(grow, journal, f"{name} a", f"{name} b", thread=name))
    for number in range(20):
        found = await loaded(journal, thread=f"t{number}")
        equal(values(found.writes), [f"t{number} a", f"t{number} b"])
    equal(len(await journal.threads(limit=100)), 20)


@LAWS.law
async def a_cancelled_commit_is_stored_whole_or_not_at_all(journal: Checkpointer) -> None:
    finished: set[str] = set()

    async def commit(name: str, scope: CancelScope) -> None:
        with scope:
            await journal.commit(step_batch(None, "a", "b", thread=name))
            finished.add(name)

    async with create_task_group() as group:
        for number in range(30):
            scope = CancelScope()
            group.start_soon(commit, f"t{number}", scope)
            if number % 3 == 0:
                await yield_to_others()
                scope.cancel()
    listed = {each.thread_id for each in await journal.threads(limit=100)}
    holds(finished <= listed, "what was acknowledged is stored")
    for name in listed:
        equal(values((await loaded(journal, thread=name)).writes), ["a", "b"])


UNFINISHED_LAWS = Laws("unfinished")


@UNFINISHED_LAWS.law
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


@UNFINISHED_LAWS.law
async def a_task_that_wrote_nothing_still_counts_as_finished(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    silent = task(step_id(first), "call_1", 3)
    await journal.commit(Batch(THREAD, writes=[silent]))
    equal(list((await loaded(journal)).pending), [silent])
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(first, step=1)]))
    equal(values((await loaded(journal)).writes), ["a"])


@UNFINISHED_LAWS.law
async def parallel_tasks_are_folded_in_call_order(journal: Checkpointer) -> None:
    step = step_id(None)
    for index in (2, 10, 0, 1):
        writes = [task(step, f"call_{index}", index, f"{index}a", f"{index}b")]
        await journal.commit(Batch(THREAD, writes=writes))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    expected = ["0a", "0b", "1a", "1b", "2a", "2b", "10a", "10b"]
    equal(values((await loaded(journal)).writes), expected)


@UNFINISHED_LAWS.law
async def tasks_of_one_index_stay_whole_and_in_order_of_commit(journal: Checkpointer) -> None:
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "z", 0, "z1", "z2")]))
    await journal.commit(Batch(THREAD, writes=[task(step, "a", 0, "a1", "a2")]))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    equal(values((await loaded(journal)).writes), ["z1", "z2", "a1", "a2"])


@UNFINISHED_LAWS.law
async def a_task_that_is_stored_twice_counts_once(journal: Checkpointer) -> None:
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "call_1", 0, "first")]))
    again = task(step, "call_1", 0, "second", "third")
    await journal.commit(Batch(THREAD, writes=[again, again]))
    await journal.commit(Batch(THREAD, writes=[again], checkpoints=[checkpoint(None)]))
    equal(values((await loaded(journal)).writes), ["first"])
    await journal.commit(Batch(THREAD, writes=[again]))
    equal(values((await loaded(journal)).writes), ["first"])


@UNFINISHED_LAWS.law
async def a_finished_step_never_changes(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    with refused(StaleThread):
        await journal.commit(Batch(THREAD, writes=[task(first, "late", 9, "b")]))
    equal(values((await loaded(journal)).writes), ["a"])


@UNFINISHED_LAWS.law
async def namespaces_have_their_own_unfinished_steps(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await grow(journal, "b", ns="task:1")
    main = TaskWrites(step_id(first), "call_1", 0, (StoredWrite("files", b"{}", overwrite=True),))
    sub = task(step_id(first), "call_1", 4, "sub")
    await journal.commit(Batch(THREAD, writes=[main]))
    await journal.commit(Batch(THREAD, "task:1", writes=[sub]))
    equal((await loaded(journal)).pending, [main])
    equal((await loaded(journal, ns="task:1")).pending, [sub])
