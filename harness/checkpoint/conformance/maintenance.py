"""Removals and sizes; remaining data is complete after a removal."""

from __future__ import annotations

import os
from dataclasses import replace

from ...errors import StaleThread
from ..base import (
    Batch,
    Checkpointer,
    FileChange,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from ..maintenance import count_prunable
from .kit import (
    SUB,
    THREAD,
    Laws,
    branched,
    checkpoint,
    equal,
    grow,
    holds,
    interrupt,
    loaded,
    refused,
    run,
    states_of,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS"]


LAWS = Laws("upkeep")

# Pruning


@LAWS.law
async def a_pruned_thread_keeps_its_newest_states_whole(journal: Checkpointer) -> None:
    ids = await grow(journal, *"abcdef")
    before = await states_of(journal)
    equal(await journal.prune(THREAD, keep_latest=2), 4)
    equal(await states_of(journal), {place: before[place] for place in ids[:3:-1]})
    page = await journal.history(THREAD)
    equal([(one.id, one.parent_id) for one in page], [(ids[5], ids[4]), (ids[4], None)])
    for gone in ids[:4]:
        equal(await journal.load(THREAD, "", gone), None)
    equal(values((await loaded(journal, cached=ids[4])).writes), ["f"])
    equal(values((await loaded(journal, cached=ids[1])).writes), [*"abcdef"])
    await journal.commit(step_batch(ids[5], "g"))
    equal(values((await loaded(journal)).writes), [*"abcdefg"])
    equal([one.checkpoints for one in await journal.threads()], [3])


@LAWS.law
async def a_prune_keeps_the_newest_input_of_a_subagent(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "old input", ns=SUB, source="input")
    old = await grow(journal, "a", "b", ns=SUB, parent=first)
    second = step_batch(old[1], "new input", ns=SUB, source="fork", salt="call_2")
    await journal.commit(second)
    origin = second.checkpoints[0].id
    new = await grow(journal, "c", "d", "e", ns=SUB, parent=origin)
    await grow(journal, "main 1", "main 2", source="input")
    equal(await count_prunable(journal, THREAD, 1, None), 6)
    equal(await journal.prune(THREAD, keep_latest=1), 6)
    page = await journal.history(THREAD, SUB)
    equal([(one.id, one.parent_id) for one in page], [(new[2], origin), (origin, None)])
    found = await loaded(journal, ns=SUB, cached=origin)
    equal((found.base, values(found.writes)), (origin, ["c", "d", "e"]))
    equal(len(await journal.history(THREAD)), 1)


@LAWS.law
async def a_thread_may_be_pruned_again_and_again(journal: Checkpointer) -> None:
    parent: str | None = None
    for number in range(12):
        await journal.commit(step_batch(parent, str(number), step=number))
        parent = step_id(parent)
        await journal.prune(THREAD, keep_latest=1 + number % 3)
        found = await loaded(journal)
        equal(values(found.writes), [str(each) for each in range(number + 1)])


@LAWS.law
async def an_abandoned_branch_goes_and_takes_nothing_along(journal: Checkpointer) -> None:
    old, new = await branched(journal)
    abandoned = task(step_id(old[3]), "call_1", 0, "abandoned")
    await journal.commit(Batch(THREAD, writes=[abandoned]))
    before = await states_of(journal)
    equal(await journal.prune(THREAD, keep_latest=1), 5)
    equal(await states_of(journal), {new[1]: before[new[1]]})
    equal(values((await loaded(journal)).writes), ["a", "b", "c'", "d'"])


@LAWS.law
async def a_checkpoint_that_several_branches_need_stays(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    before = await states_of(journal)
    equal(await journal.prune(THREAD, keep_latest=2), 0)
    equal(await states_of(journal), before)
    await journal.commit(step_batch(branch.checkpoints[0].id, "c'"))
    before = await states_of(journal)
    equal(await journal.prune(THREAD, keep_latest=1), 3)
    equal(len(await states_of(journal)), 1)
    equal(await journal.load(THREAD, "", second), None)


@LAWS.law
async def what_was_overwritten_need_not_stay(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    large = TaskWrites(
        step_id(first), "model", 0, (StoredWrite("files", os.urandom(100_000), overwrite=True),)
    )
    small = StoredWrite("files", b"{}", overwrite=True)
    second, third = step_id(first), step_id(step_id(first))
    await journal.commit(Batch(THREAD, writes=[large], checkpoints=[checkpoint(first)]))
    await journal.commit(
        Batch(
            THREAD,
            writes=[TaskWrites(third, "model", 0, (small,))],
            checkpoints=[checkpoint(second)],
        )
    )
    size = await journal.thread_size(THREAD)
    await journal.prune(THREAD, keep_latest=1)
    after = await loaded(journal)
    equal([one.value for one in after.writes if one.channel == "files"], [b"{}"])
    equal([one.value for one in after.writes if one.channel == "messages"], [b"a"])
    holds(await journal.thread_size(THREAD) < size - 90_000, "the room is given back")


@LAWS.law
async def pruning_keeps_pending_tasks_questions_and_snapshots(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b", "c")
    step = step_id(ids[2])
    pending, asked = task(step, "call_1", 0, "d"), interrupt("int_1", step)
    old = interrupt("int_0", ids[1], run_id="run_1")
    snapshot = Snapshot(ids[2], "s", (StoredWrite("messages", b"abc", overwrite=True),))
    batch = Batch(THREAD, writes=[pending], interrupts=[asked, old], snapshots=[snapshot])
    await journal.commit(replace(batch, runs=[run("run_1")]))
    await journal.prune(THREAD, keep_latest=1)
    found = await loaded(journal)
    equal(found.pending, [pending])
    equal(found.interrupts, [asked])
    equal([one.id for one in await journal.interrupts("run_1")], ["int_1"])
    equal([one.id for one in await journal.find_runs()], ["run_1"])
    with_snapshot = await journal.load(THREAD, schema="s")
    equal(values(with_snapshot.writes if with_snapshot else ()), ["abc"])


@LAWS.law
async def each_namespace_keeps_its_own_newest(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", "c")
    await grow(journal, "x", "y", ns=SUB)
    await grow(journal, "1", "2", thread="other")
    equal(await journal.prune(THREAD, keep_latest=1), 3)
    equal(values((await loaded(journal)).writes), ["a", "b", "c"])
    equal(values((await loaded(journal, ns=SUB)).writes), ["x", "y"])
    equal(len(await journal.history("other")), 2)
    equal(await journal.prune(keep_latest=1), 1)
    equal(values((await loaded(journal, thread="other")).writes), ["1", "2"])


@LAWS.law
async def older_than_spares_what_is_new_and_the_head(journal: Checkpointer) -> None:
    parent = None
    for number in range(6):
        made = checkpoint(parent, step=number, created_at=1_000.0 + number)
        await journal.commit(Batch(THREAD, checkpoints=[made]))
        parent = made.id
    equal(await journal.prune(older_than=1_002.0), 2)
    equal(await journal.prune(older_than=1_004.0, keep_latest=3), 1)
    equal([one.step for one in await journal.history(THREAD)], [5, 4, 3])
    equal(await journal.prune(older_than=9_999.0), 2)
    equal([one.step for one in await journal.history(THREAD)], [5])


@LAWS.law
async def pruning_keeps_the_file_changes_that_can_be_undone(journal: Checkpointer) -> None:
    parent = None
    seqs: list[int] = []
    for name in "abc":
        await journal.commit(step_batch(parent, name))
        parent = step_id(parent)
        change = FileChange(THREAD, "run_1", f"/{name}", name.encode(), None)
        await journal.commit(Batch(THREAD, file_changes=[change]))
        seqs.append((await loaded(journal)).checkpoint.seq)
    await journal.prune(THREAD, keep_latest=2)
    equal([one.path for one in await journal.file_changes(THREAD, 0)], ["/c", "/b"])
    equal([one.path for one in await journal.file_changes(THREAD, seqs[1])], ["/c", "/b"])


@LAWS.law
async def a_prune_that_says_nothing_or_leaves_no_head_is_refused(journal: Checkpointer) -> None:
    await grow(journal, "a")
    with refused(ValueError):
        await journal.prune(THREAD)
    with refused(ValueError):
        await journal.prune(THREAD, keep_latest=0)
    equal(await journal.prune("nobody", keep_latest=1), 0)
    equal(len(await journal.history(THREAD)), 1)


# Deleting runs


async def _two_runs(journal: Checkpointer) -> list[str]:
    """Let two runs take turns, each with its own namespace, question and file."""
    parent: str | None = None
    ids: list[str] = []
    for number, run_id in enumerate(["run_1", "run_1", "run_2", "run_1", "run_2"]):
        await journal.commit(step_batch(parent, f"{number}", step=number, run_id=run_id))
        parent = step_id(parent)
        ids.append(parent)
    for run_id in ("run_1", "run_2"):
        await grow(journal, run_id, ns=f"task:{run_id}", run_id=run_id)
        batch = Batch(
            THREAD,
            runs=[run(run_id)],
            interrupts=[interrupt(f"int_{run_id}", "elsewhere", run_id=run_id)],
            file_changes=[FileChange(THREAD, run_id, f"/{run_id}", b"x", None)],
        )
        await journal.commit(batch)
    return ids


@LAWS.law
async def deleting_a_run_leaves_the_states_of_others_whole(journal: Checkpointer) -> None:
    ids = await _two_runs(journal)
    before = await states_of(journal)
    await journal.delete_for_runs(["run_1"])
    equal(await states_of(journal), {place: before[place] for place in (ids[4], ids[2])})
    equal([one.parent_id for one in await journal.history(THREAD)], [ids[2], None])
    equal(await journal.history(THREAD, "task:run_1"), [])
    equal(len(await journal.history(THREAD, "task:run_2")), 1)
    equal([one.id for one in await journal.find_runs()], ["run_2"])
    equal(await journal.run("run_1"), None)
    equal(await journal.interrupts("run_1"), [])
    equal([one.path for one in await journal.file_changes(THREAD, 0)], ["/run_2"])


@LAWS.law
async def deleting_the_newest_run_puts_the_thread_back(journal: Checkpointer) -> None:
    ids = await _two_runs(journal)
    pending = task(step_id(ids[4]), "call_1", 0, "never finished")
    await journal.commit(Batch(THREAD, writes=[pending]))
    await journal.delete_for_runs(["run_2"])
    found = await loaded(journal)
    equal((found.checkpoint.id, values(found.writes)), (ids[3], ["0", "1", "2", "3"]))
    equal(found.pending, [])
    with refused(StaleThread):
        await journal.commit(step_batch(ids[4], "a run that did not notice", run_id="run_2"))
    await journal.commit(step_batch(ids[3], "anew"))
    equal(values((await loaded(journal)).writes), ["0", "1", "2", "3", "anew"])


@LAWS.law
async def deleting_all_runs_deletes_the_thread(journal: Checkpointer) -> None:
    await _two_runs(journal)
    await grow(journal, "other", thread="other", run_id="run_3")
    await journal.delete_for_runs(["run_1", "run_2", "run_unknown"])
    equal([one.thread_id for one in await journal.threads()], ["other"])
    equal(await journal.load(THREAD), None)
    await journal.delete_for_runs([])
    equal(values((await loaded(journal, thread="other")).writes), ["other"])


@LAWS.law
async def a_thread_of_which_nothing_is_left_takes_questions_and_events_along(
    journal: Checkpointer,
) -> None:
    await grow(journal, "a", run_id="run_1")
    event = RunEvent("run_2", "tasks", (), {"event": "x"})
    asked = interrupt("int_2", "elsewhere", run_id="run_2")
    await journal.commit(Batch(THREAD, interrupts=[asked], events=[event]))
    await journal.delete_for_runs(["run_1"])
    equal(await journal.threads(), [])
    equal(await journal.interrupts("run_2"), [])
    equal(await journal.events("run_2"), [])
    await journal.commit(Batch("other", events=[event]))
    equal([one.seq for one in await journal.events("run_2")], [1])


@LAWS.law
async def a_run_without_a_record_is_deleted_too(journal: Checkpointer) -> None:
    event = RunEvent("run_2", "tasks", (), {"event": "x"})
    asked = interrupt("int_3", "elsewhere", run_id="run_3")
    await grow(journal, "a", run_id="run_1")
    await journal.commit(Batch(THREAD, interrupts=[asked], events=[event]))
    await journal.commit(Batch("other", events=[replace(event, run_id="run_4")]))
    await journal.delete_for_runs(["run_2", "run_4"])
    equal(await journal.events("run_2"), [])
    equal([one.thread_id for one in await journal.threads()], [THREAD])
    equal([one.id for one in await journal.interrupts("run_3")], ["int_3"])
    await journal.delete_for_runs(["run_3"])
    equal(await journal.interrupts("run_3"), [])
    equal(values((await loaded(journal)).writes), ["a"])
    await journal.commit(Batch("other", events=[event]))
    equal([one.seq for one in await journal.events("run_2")], [1])


# Sizes


@LAWS.law
async def a_thread_knows_its_size(journal: Checkpointer) -> None:
    equal(await journal.thread_size("nobody"), 0)
    (first,) = await grow(journal, "a")
    small = await journal.thread_size(THREAD)
    write = StoredWrite("files", os.urandom(50_000))
    await journal.commit(Batch(THREAD, writes=[TaskWrites(step_id(first), "c", 0, (write,))]))
    change = FileChange(THREAD, "run_1", "/f", os.urandom(30_000), None)
    await journal.commit(Batch(THREAD, file_changes=[change]))
    large = await journal.thread_size(THREAD)
    holds(0 < small < 1_000, "a small thread is small")
    holds(80_000 <= large < 85_000, "values and files count")


@LAWS.law
async def a_vacuum_changes_nothing_but_the_room(journal: Checkpointer) -> None:
    _, new = await branched(journal)
    await grow(journal, "a", thread="other")
    await journal.delete_thread("other")
    before = await states_of(journal)
    await journal.vacuum()
    equal(await states_of(journal), before)
    await journal.commit(step_batch(new[1], "after"))
    await journal.vacuum()
    equal(values((await loaded(journal)).writes), ["a", "b", "c'", "d'", "after"])
