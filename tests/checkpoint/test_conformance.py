"""What every checkpointer promises."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from pydantic import JsonValue

from harness.checkpoint.base import Batch, Checkpointer, FileChange, Source, StoredWrite, step_id
from harness.errors import CheckpointError, StaleThread
from tests.checkpoint.records import (
    THREAD,
    checkpoint,
    grow,
    interrupt,
    run,
    step_batch,
    task,
    values,
)

pytestmark = pytest.mark.anyio


async def head_id(journal: Checkpointer, thread: str = THREAD, ns: str = "") -> str | None:
    found = await journal.load(thread, ns)
    return found.checkpoint.id if found else None


async def loaded(
    journal: Checkpointer, checkpoint_id: str | None = None, cached: str | None = None
):
    found = await journal.load(THREAD, "", checkpoint_id, cached=cached)
    assert found is not None
    return found


# Commit and load


async def test_what_was_never_stored_is_not_there(journal: Checkpointer):
    assert await journal.load("nobody") is None
    assert await journal.history("nobody") == []
    assert await journal.threads() == []
    assert await journal.run("run_x") is None
    assert await journal.find_runs() == []
    assert await journal.interrupts("run_x") == []
    assert await journal.file_changes("nobody", 0) == []
    await grow(journal, "a")
    assert await journal.load(THREAD, "", "ckpt_unknown") is None
    assert await journal.load(THREAD, "task:call_1") is None


async def test_a_checkpoint_comes_back_as_it_was_committed(journal: Checkpointer):
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
    assert found.checkpoint.seq > 0
    assert replace(found.checkpoint, seq=0) == stored
    assert found.base is None


async def test_writes_lead_from_the_root_to_the_checkpoint_in_order(journal: Checkpointer):
    ids = await grow(journal, "a", "b", "c")
    assert values((await loaded(journal)).writes) == ["a", "b", "c"]
    assert values((await loaded(journal, ids[1])).writes) == ["a", "b"]
    assert values((await loaded(journal, ids[0])).writes) == ["a"]


async def test_values_come_back_byte_for_byte(journal: Checkpointer):
    stored = (
        StoredWrite("files", b""),
        StoredWrite("files", b"\x00\xff" * 3),
        StoredWrite("messages", b"text that compresses " * 5000, overwrite=True),
        StoredWrite("files", os.urandom(300_000)),
    )
    batch = step_batch(None)
    writes = [replace(batch.writes[0], writes=stored)]
    await journal.commit(replace(batch, writes=writes))
    assert tuple((await loaded(journal)).writes) == stored


async def test_ids_are_data_and_never_part_of_a_query(journal: Checkpointer):
    odd = "x'; DROP TABLE threads; --%_\x00"
    await grow(journal, "a", thread=odd, ns=odd)
    await journal.commit(Batch(odd, runs=[run(odd, thread=odd, idempotency_key=odd)]))
    assert await head_id(journal, odd, odd) == step_id(None)
    assert [each.id for each in await journal.find_runs(thread_id=odd, idempotency_key=odd)] == [
        odd
    ]
    assert await journal.find_runs(thread_id="%") == []


async def test_namespaces_of_a_thread_do_not_mix(journal: Checkpointer):
    await grow(journal, "main")
    await grow(journal, "sub 1", "sub 2", ns="task:call_1@ckpt_1")
    sub = await journal.load(THREAD, "task:call_1@ckpt_1")
    assert sub is not None
    assert sub.checkpoint.ns == "task:call_1@ckpt_1"
    assert values(sub.writes) == ["sub 1", "sub 2"]
    assert values((await loaded(journal)).writes) == ["main"]
    assert len(await journal.history(THREAD)) == 1


async def test_several_steps_of_one_batch_grow_on_each_other(journal: Checkpointer):
    first, second = step_id(None), step_id(step_id(None))
    await journal.commit(
        Batch(
            THREAD,
            writes=[task(first, "input", 0, "a"), task(second, "model", 0, "b")],
            checkpoints=[checkpoint(None, source="input"), checkpoint(first, step=1)],
        )
    )
    found = await loaded(journal)
    assert found.checkpoint.id == second
    assert values(found.writes) == ["a", "b"]


# All or nothing


async def test_a_refused_batch_leaves_nothing_behind(journal: Checkpointer):
    (first,) = await grow(journal, "a")
    step = step_id(first)
    asked = interrupt("int_1", step)
    await journal.commit(Batch(THREAD, runs=[run("run_1", status="running")], interrupts=[asked]))
    before = await journal.threads()

    with pytest.raises(StaleThread):
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

    assert await journal.threads() == before
    found = await loaded(journal)
    assert found.checkpoint.id == first
    assert list(found.pending) == []
    assert [(each.id, each.answered) for each in found.interrupts] == [("int_1", False)]
    assert [each.status for each in await journal.find_runs()] == ["running"]
    assert await journal.file_changes(THREAD, 0) == []


async def test_a_refused_first_batch_makes_no_thread(journal: Checkpointer):
    with pytest.raises(StaleThread):
        await journal.commit(step_batch("ckpt_of_nobody", "a"))
    assert await journal.threads() == []


async def test_a_batch_that_mixes_threads_or_namespaces_is_refused(journal: Checkpointer):
    for batch in (
        Batch(THREAD, checkpoints=[checkpoint(None, thread="other")]),
        Batch(THREAD, checkpoints=[checkpoint(None, ns="task:1")]),
        Batch(THREAD, runs=[run("run_1", thread="other")]),
        Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1", thread="other")]),
        Batch(THREAD, file_changes=[FileChange("other", "run_1", "/f", None, None)]),
    ):
        with pytest.raises(ValueError, match="commit it in a batch of its own"):
            await journal.commit(batch)
    assert await journal.threads() == []


async def test_what_is_not_json_is_refused(journal: Checkpointer):
    asked = replace(interrupt("int_1", "ckpt_1"), payload={"when": object()})  # type: ignore[dict-item]
    with pytest.raises(CheckpointError, match="JSON"):
        await journal.commit(Batch(THREAD, interrupts=[asked]))
    assert await journal.threads() == []


# Somebody else moved the thread


async def test_the_same_step_can_be_finished_only_once(journal: Checkpointer):
    (first,) = await grow(journal, "a")
    await journal.commit(step_batch(first, "mine"))
    with pytest.raises(StaleThread, match="Nothing was stored"):
        await journal.commit(step_batch(first, "theirs"))
    assert values((await loaded(journal)).writes) == ["a", "mine"]


@pytest.mark.parametrize("source", ["input", "loop"])
async def test_a_run_cannot_go_on_from_anything_but_the_head(journal: Checkpointer, source: Source):
    first, _ = await grow(journal, "a", "b")
    with pytest.raises(StaleThread, match="moved on"):
        await journal.commit(step_batch(first, "c", source=source, salt="other"))
    with pytest.raises(StaleThread, match="moved on"):
        await journal.commit(step_batch(None, "c", source=source, salt="other"))


@pytest.mark.parametrize("source", ["update", "fork"])
async def test_updates_and_forks_grow_from_any_checkpoint(journal: Checkpointer, source: Source):
    first, second = await grow(journal, "a", "b")
    await journal.commit(step_batch(first, "c", source=source, salt="other"))
    found = await loaded(journal)
    assert found.checkpoint.parent_id == first
    assert values(found.writes) == ["a", "c"]
    with pytest.raises(StaleThread, match="moved on"):
        await journal.commit(step_batch(second, "d"))


@pytest.mark.parametrize("source", ["input", "loop", "update", "fork"])
async def test_a_parent_must_exist_in_its_namespace(journal: Checkpointer, source: Source):
    (first,) = await grow(journal, "a", ns="task:1")
    with pytest.raises(StaleThread, match="not in the journal"):
        await journal.commit(step_batch(first, "b", source=source))


# Unfinished steps


async def test_finished_tasks_of_an_unfinished_step_are_pending(journal: Checkpointer):
    (first,) = await grow(journal, "a")
    step = step_id(first)
    late, early = task(step, "call_2", 1, "y"), task(step, "call_1", 0, "x1", "x2")
    await journal.commit(Batch(THREAD, writes=[late]))
    await journal.commit(Batch(THREAD, writes=[early]))

    found = await loaded(journal)
    assert values(found.writes) == ["a"]
    assert list(found.pending) == [early, late]

    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(first, step=1)]))
    found = await loaded(journal)
    assert values(found.writes) == ["a", "x1", "x2", "y"]
    assert list(found.pending) == []
    assert list((await loaded(journal, first)).pending) == []


async def test_a_task_that_wrote_nothing_still_counts_as_finished(journal: Checkpointer):
    (first,) = await grow(journal, "a")
    silent = task(step_id(first), "call_1", 3)
    await journal.commit(Batch(THREAD, writes=[silent]))
    assert list((await loaded(journal)).pending) == [silent]
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(first, step=1)]))
    assert values((await loaded(journal)).writes) == ["a"]


async def test_parallel_tasks_are_folded_in_call_order(journal: Checkpointer):
    step = step_id(None)
    for index in (2, 10, 0, 1):
        writes = [task(step, f"call_{index}", index, f"{index}a", f"{index}b")]
        await journal.commit(Batch(THREAD, writes=writes))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    expected = ["0a", "0b", "1a", "1b", "2a", "2b", "10a", "10b"]
    assert values((await loaded(journal)).writes) == expected


async def test_tasks_of_one_index_stay_whole_and_in_order_of_commit(journal: Checkpointer):
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "z", 0, "z1", "z2")]))
    await journal.commit(Batch(THREAD, writes=[task(step, "a", 0, "a1", "a2")]))
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
    assert values((await loaded(journal)).writes) == ["z1", "z2", "a1", "a2"]


async def test_a_task_that_is_stored_twice_counts_once(journal: Checkpointer):
    step = step_id(None)
    await journal.commit(Batch(THREAD, writes=[task(step, "call_1", 0, "first")]))
    again = task(step, "call_1", 0, "second", "third")
    await journal.commit(Batch(THREAD, writes=[again, again]))
    await journal.commit(Batch(THREAD, writes=[again], checkpoints=[checkpoint(None)]))
    assert values((await loaded(journal)).writes) == ["first"]
    await journal.commit(Batch(THREAD, writes=[again]))
    assert values((await loaded(journal)).writes) == ["first"]


async def test_a_finished_step_never_changes(journal: Checkpointer):
    (first,) = await grow(journal, "a")
    with pytest.raises(StaleThread, match="finished already"):
        await journal.commit(Batch(THREAD, writes=[task(first, "late", 9, "b")]))
    assert values((await loaded(journal)).writes) == ["a"]


# Forks


async def test_each_branch_has_its_own_writes(journal: Checkpointer):
    first, _second, third = await grow(journal, "a", "b", "c")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    await journal.commit(step_batch(branch.checkpoints[0].id, "c'"))
    assert values((await loaded(journal)).writes) == ["a", "b'", "c'"]
    assert values((await loaded(journal, third)).writes) == ["a", "b", "c"]


async def test_pending_tasks_of_an_abandoned_branch_do_not_leak(journal: Checkpointer):
    first, second = await grow(journal, "a", "b")
    abandoned = task(step_id(second), "call_1", 0, "abandoned")
    await journal.commit(Batch(THREAD, writes=[abandoned]))
    await journal.commit(step_batch(first, source="fork", salt="branch"))
    assert list((await loaded(journal)).pending) == []
    assert values((await loaded(journal)).writes) == ["a"]
    assert list((await loaded(journal, second)).pending) == [abandoned]


# Cached ancestors


async def test_a_cached_ancestor_shortens_what_comes_back(journal: Checkpointer):
    ids = await grow(journal, "a", "b", "c")
    pending = task(step_id(ids[2]), "call_1", 0, "d")
    await journal.commit(Batch(THREAD, writes=[pending]))
    for cached, expected in zip(ids, (["b", "c"], ["c"], []), strict=True):
        found = await loaded(journal, cached=cached)
        assert found.base == cached
        assert values(found.writes) == expected
        assert list(found.pending) == [pending]


async def test_a_cached_checkpoint_elsewhere_is_ignored(journal: Checkpointer):
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    for cached in (second, "ckpt_unknown"):
        found = await loaded(journal, cached=cached)
        assert found.base is None
        assert values(found.writes) == ["a", "b'"]
    found = await loaded(journal, first, cached=second)
    assert (found.base, values(found.writes)) == (None, ["a"])


# History


async def test_history_pages_from_the_newest(journal: Checkpointer):
    ids = await grow(journal, *"abcde")
    await grow(journal, "x", ns="task:1")
    pages: list[list[str]] = []
    before = None
    while page := await journal.history(THREAD, before=before, limit=2):
        pages.append([each.id for each in page])
        before = page[-1].id
    assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]
    assert await journal.history(THREAD, before="ckpt_unknown") == []
    assert await journal.history(THREAD, limit=0) == []


async def test_history_holds_every_branch_and_the_parents(journal: Checkpointer):
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    page = await journal.history(THREAD)
    fork = branch.checkpoints[0].id
    assert [each.id for each in page] == [fork, second, first]
    assert [each.parent_id for each in page] == [first, first, None]
    assert [each.seq for each in page] == sorted((each.seq for each in page), reverse=True)


# Runs


async def test_a_run_is_replaced_by_id(journal: Checkpointer):
    begun = run(
        "run_1", goal="tidy", owner="p1", idempotency_key="k", created_at=1.0, updated_at=1.0
    )
    await journal.commit(Batch(THREAD, runs=[begun]))
    assert await journal.run("run_1") == begun
    ended = replace(
        begun, status="failed", owner=None, answer="42", reason="limit: tokens", updated_at=2.0
    )
    await journal.commit(Batch(THREAD, runs=[ended]))
    assert await journal.run("run_1") == ended


async def test_runs_are_found_by_every_given_filter_last_begun_first(journal: Checkpointer):
    first = run("run_1", status="done", idempotency_key="k1")
    second = run("run_2", status="running", idempotency_key="k2")
    other = run("run_3", thread="other", status="running")
    await journal.commit(Batch(THREAD, runs=[first, second]))
    await journal.commit(Batch("other", runs=[other]))
    await journal.commit(Batch(THREAD, runs=[first]))  # a change does not make it newer

    async def found(**filters: str | int) -> list[str]:
        return [each.id for each in await journal.find_runs(**filters)]  # type: ignore[arg-type]

    assert await found() == ["run_3", "run_2", "run_1"]
    assert await found(limit=2) == ["run_3", "run_2"]
    assert await found(thread_id=THREAD) == ["run_2", "run_1"]
    assert await found(status="running") == ["run_3", "run_2"]
    assert await found(status="running", thread_id=THREAD) == ["run_2"]
    assert await found(idempotency_key="k1") == ["run_1"]
    assert await found(idempotency_key="k1", status="running") == []
    assert await found(thread_id="nobody") == []


async def test_a_thread_cannot_take_over_the_run_of_another(journal: Checkpointer):
    mine = run("run_1")
    await journal.commit(Batch(THREAD, runs=[mine]))
    with pytest.raises(CheckpointError, match="another thread"):
        await journal.commit(Batch("other", runs=[run("run_1", thread="other")]))
    assert await journal.run("run_1") == mine


# Interrupts


async def test_an_interrupt_waits_beside_its_step_until_the_step_is_finished(
    journal: Checkpointer,
):
    (first,) = await grow(journal, "a")
    asked = [interrupt(f"int_{index}", step_id(first), index=index) for index in (1, 0)]
    elsewhere = interrupt("int_sub", step_id(first), ns="task:1")
    await journal.commit(Batch(THREAD, interrupts=[*asked, elsewhere]))
    assert list((await loaded(journal)).interrupts) == asked[::-1]
    await journal.commit(step_batch(first, "b"))
    assert list((await loaded(journal)).interrupts) == []
    assert list((await loaded(journal, first)).interrupts) == []
    assert len(await journal.interrupts("run_1")) == 3


async def test_interrupts_of_a_run_come_by_step_then_by_index(journal: Checkpointer):
    old, new = "ckpt_z", "ckpt_a"
    for batch in (
        [interrupt("i1", old, index=2)],
        [interrupt("i2", new, index=0), interrupt("i3", old, ns="task:1", index=0)],
        [interrupt("i4", old, index=1), interrupt("i5", old, run_id="run_2")],
    ):
        await journal.commit(Batch(THREAD, interrupts=batch))
    assert [each.id for each in await journal.interrupts("run_1")] == ["i4", "i1", "i2", "i3"]


@pytest.mark.parametrize("first_answer", ["yes", None, {"edit": [1, 2.5, None]}])
async def test_the_first_answer_of_an_interrupt_wins(
    journal: Checkpointer, first_answer: JsonValue
):
    await journal.commit(Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1")]))
    await journal.commit(Batch(THREAD, answers={"int_1": first_answer, "int_unknown": 1}))
    await journal.commit(Batch(THREAD, answers={"int_1": "second"}))
    (answered,) = await journal.interrupts("run_1")
    assert answered == interrupt("int_1", "ckpt_1", answer=first_answer, answered=True)


async def test_a_question_asked_again_keeps_its_answer(journal: Checkpointer):
    await journal.commit(Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1")]))
    await journal.commit(Batch(THREAD, answers={"int_1": "yes"}))
    again = interrupt("int_1", "ckpt_1", run_id="run_after_restart")
    await journal.commit(Batch(THREAD, interrupts=[again]))
    assert await journal.interrupts("run_after_restart") == [
        replace(again, answer="yes", answered=True)
    ]
    assert await journal.interrupts("run_1") == []


async def test_an_interrupt_and_its_answer_may_share_a_batch(journal: Checkpointer):
    asked = interrupt("int_1", "ckpt_1")
    await journal.commit(Batch(THREAD, interrupts=[asked], answers={"int_1": "no"}))
    assert await journal.interrupts("run_1") == [replace(asked, answer="no", answered=True)]


async def test_an_answer_reaches_only_interrupts_of_its_thread(journal: Checkpointer):
    mine, theirs = interrupt("int_1", "c"), interrupt("int_1", "c", thread="other", run_id="run_2")
    await journal.commit(Batch(THREAD, interrupts=[mine]))
    await journal.commit(Batch("other", interrupts=[theirs]))
    await journal.commit(Batch("other", answers={"int_1": "yes"}))
    assert await journal.interrupts("run_1") == [mine]
    assert [each.answer for each in await journal.interrupts("run_2")] == ["yes"]


async def test_what_callers_do_to_a_payload_does_not_reach_the_journal(journal: Checkpointer):
    asked = interrupt("int_1", "ckpt_1")
    await journal.commit(Batch(THREAD, interrupts=[asked]))
    asked.payload.clear()
    (got,) = await journal.interrupts("run_1")
    got.payload.clear()
    (again,) = await journal.interrupts("run_1")
    assert again == interrupt("int_1", "ckpt_1")


# File changes


async def test_file_changes_come_newest_first_and_know_their_checkpoint(journal: Checkpointer):
    async def change(name: str, before: bytes | None, after: str | None = "00ff") -> None:
        await journal.commit(
            Batch(THREAD, file_changes=[FileChange(THREAD, "run_1", name, before, after)])
        )

    await change("/before any checkpoint", None)
    await grow(journal, "a")
    first = (await loaded(journal)).checkpoint.seq
    await change("/after first", b"x" * 1000)
    await grow(journal, "sub", ns="task:1")
    await change("/in a subagent", b"", None)
    await journal.commit(step_batch(step_id(None), "b"))
    second = (await loaded(journal)).checkpoint.seq
    await change("/after second", os.urandom(400))

    everything = await journal.file_changes(THREAD, 0)
    assert [each.path for each in everything] == [
        "/after second",
        "/in a subagent",
        "/after first",
        "/before any checkpoint",
    ]
    assert [each.checkpoint_seq for each in everything[::3]] == [second, 0]
    assert first < everything[1].checkpoint_seq < second
    assert [each.seq for each in everything] == sorted(
        (each.seq for each in everything), reverse=True
    )
    old = everything[2]
    assert old == FileChange(
        THREAD, "run_1", "/after first", b"x" * 1000, "00ff", first, seq=old.seq
    )
    assert (everything[1].before, everything[1].after_digest) == (b"", None)
    assert everything[3].before is None
    assert await journal.file_changes(THREAD, first) == everything[:3]
    assert await journal.file_changes(THREAD, second) == everything[:1]
    assert await journal.file_changes("other", 0) == []


async def test_a_change_stored_with_a_checkpoint_comes_after_it(journal: Checkpointer):
    change = FileChange(THREAD, "run_1", "/f", None, None)
    await journal.commit(replace(step_batch(None, "a"), file_changes=[change]))
    seq = (await loaded(journal)).checkpoint.seq
    assert [each.checkpoint_seq for each in await journal.file_changes(THREAD, seq)] == [seq]


# Threads


async def test_threads_are_listed_last_changed_first_with_their_last_run(journal: Checkpointer):
    await grow(journal, "a", "b", thread="t1")
    await grow(journal, "sub", thread="t1", ns="task:1")
    await grow(journal, "a", thread="t2")
    await journal.commit(Batch("t3", runs=[run("run_3", thread="t3")]))
    await journal.commit(Batch("t1", runs=[run("run_1", thread="t1"), run("run_2", thread="t1")]))
    await journal.commit(Batch("t1", runs=[run("run_1", thread="t1", status="done")]))

    listed = await journal.threads()
    last = [each.last_run.id if each.last_run else None for each in listed]
    assert [each.thread_id for each in listed] == ["t1", "t3", "t2"]
    assert [each.checkpoints for each in listed] == [3, 0, 1]
    assert last == ["run_2", "run_3", None]
    assert listed[0].created_at < listed[2].created_at < listed[0].updated_at
    assert listed[0].last_run == await journal.run("run_2")


async def test_threads_page_without_gaps_or_repeats(journal: Checkpointer):
    names = [f"t{number}" for number in range(25)]
    for name in names:
        await grow(journal, "a", thread=name)
    seen: list[str] = []
    before = None
    while page := await journal.threads(limit=4, before=before):
        seen += [each.thread_id for each in page]
        before = page[-1].updated_at
    assert seen == names[::-1]
    assert await journal.threads(limit=0) == []


async def test_a_deleted_thread_is_gone_with_all_it_had(journal: Checkpointer):
    for thread in (THREAD, "other"):
        (first,) = await grow(journal, "a", thread=thread)
        await grow(journal, "a", thread=thread, ns="task:1")
        await journal.commit(
            Batch(
                thread,
                writes=[task(step_id(first), "call_1", 0, "b")],
                runs=[run(f"run_{thread}", thread=thread, idempotency_key="k")],
                interrupts=[interrupt("int_1", "c", thread=thread, run_id=f"run_{thread}")],
                file_changes=[FileChange(thread, "run_1", "/f", b"", None)],
            )
        )
    newest = (await loaded(journal)).checkpoint.seq

    await journal.delete_thread(THREAD)
    await journal.delete_thread("nobody")

    assert await head_id(journal) is None
    assert await head_id(journal, THREAD, "task:1") is None
    assert await journal.history(THREAD) == []
    assert await journal.run(f"run_{THREAD}") is None
    assert [each.id for each in await journal.find_runs(idempotency_key="k")] == ["run_other"]
    assert await journal.interrupts(f"run_{THREAD}") == []
    assert await journal.file_changes(THREAD, 0) == []
    assert [each.thread_id for each in await journal.threads()] == ["other"]
    kept = await journal.load("other")
    assert kept is not None
    assert (values(kept.writes), len(kept.pending)) == (["a"], 1)
    assert len(await journal.interrupts("run_other")) == 1
    assert len(await journal.file_changes("other", 0)) == 1

    with pytest.raises(StaleThread, match="deleted"):
        await journal.commit(step_batch(step_id(None), "a run that did not notice"))
    await grow(journal, "anew")
    found = await loaded(journal)
    assert values(found.writes) == ["anew"]
    assert list(found.pending) == []
    assert found.checkpoint.seq > newest


# Closing


async def test_a_closed_journal_says_so(journal: Checkpointer):
    await grow(journal, "a")
    await journal.close()
    await journal.close()
    with pytest.raises(CheckpointError, match="closed"):
        await journal.commit(step_batch(None, "b"))
    with pytest.raises(CheckpointError, match="closed"):
        await journal.load(THREAD)
    with pytest.raises(CheckpointError, match="closed"):
        await journal.delete_thread(THREAD)
