"""Run laws: runs, their questions, the files they changed, and their events.

Events are numbered, can be read from any number on, and are bounded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anyio import create_task_group
from pydantic import JsonValue

from ..._internal.records import changed
from ...errors import CheckpointError, StaleThread
from ..base import Batch, Checkpointer, EventLimits, FileChange, RunEvent, step_id
from .kit import (
    THREAD,
    Laws,
    checkpoint,
    equal,
    grow,
    holds,
    interrupt,
    loaded,
    refused,
    run,
    step_batch,
)

__all__ = ["EVENT_LAWS", "LAWS"]


LAWS = Laws("records of runs")


@LAWS.law
async def a_run_is_replaced_by_id(journal: Checkpointer) -> None:
    begun = run(
        "run_1", goal="tidy", owner="p1", idempotency_key="k", created_at=1.0, updated_at=1.0
    )
    await journal.commit(Batch(THREAD, runs=[begun]))
    equal(await journal.run("run_1"), begun)
    ended = replace(
        begun, status="failed", owner=None, answer="42", reason="limit: tokens", updated_at=2.0
    )
    await journal.commit(Batch(THREAD, runs=[ended]))
    equal(await journal.run("run_1"), ended)


@LAWS.law
async def runs_are_found_by_every_given_filter_last_begun_first(journal: Checkpointer) -> None:
    first = run("run_1", status="done", idempotency_key="k1")
    second = run("run_2", status="running", idempotency_key="k2")
    other = run("run_3", thread="other", status="running")
    await journal.commit(Batch(THREAD, runs=[first, second]))
    await journal.commit(Batch("other", runs=[other]))
    await journal.commit(Batch(THREAD, runs=[first]))  # a change does not make it newer

    async def found(**filters: str | int) -> list[str]:
        return [each.id for each in await journal.find_runs(**filters)]  # type: ignore[arg-type]

    equal(await found(), ["run_3", "run_2", "run_1"])
    equal(await found(limit=2), ["run_3", "run_2"])
    equal(await found(thread_id=THREAD), ["run_2", "run_1"])
    equal(await found(status="running"), ["run_3", "run_2"])
    equal(await found(status="running", thread_id=THREAD), ["run_2"])
    equal(await found(idempotency_key="k1"), ["run_1"])
    equal(await found(idempotency_key="k1", status="running"), [])
    equal(await found(thread_id="nobody"), [])


@LAWS.law
async def a_prefix_and_other_filters_must_all_match(journal: Checkpointer) -> None:
    async def found(**filters: str | int) -> list[str]:
        runs = await journal.find_runs(prefix="run_me_", **filters)  # type: ignore[arg-type]
        return [each.id for each in runs]

    for number in range(12):
        owner, thread = ("me", "them")[number % 2], ("one", "two")[number // 2 % 2]
        begun = run(
            f"run_{owner}_{number}",
            thread=thread,
            status=("done", "cancelled", "paused")[number // 4],
            idempotency_key=f"k{number}",
        )
        await journal.commit(Batch(thread, runs=[begun]))
    equal(await found(), [f"run_me_{number}" for number in (10, 8, 6, 4, 2, 0)])
    equal(await found(thread_id="two"), ["run_me_10", "run_me_6", "run_me_2"])
    equal(await found(thread_id="two", limit=2), ["run_me_10", "run_me_6"])
    equal(await found(status="cancelled"), ["run_me_6", "run_me_4"])
    equal(await found(idempotency_key="k6"), ["run_me_6"])
    equal(await found(idempotency_key="k7"), [])
    equal(await found(status="cancelled", thread_id="one"), ["run_me_4"])
    equal(await found(status="paused", idempotency_key="k10", limit=1), ["run_me_10"])
    both = {"status": "cancelled", "thread_id": "two", "idempotency_key": "k6"}
    equal(await found(**both), ["run_me_6"])
    equal(await found(**{**both, "thread_id": "one"}), [])


@LAWS.law
async def a_thread_cannot_take_over_the_run_of_another(journal: Checkpointer) -> None:
    mine = run("run_1")
    await journal.commit(Batch(THREAD, runs=[mine]))
    with refused(CheckpointError):
        await journal.commit(Batch("other", runs=[run("run_1", thread="other")]))
    equal(await journal.run("run_1"), mine)


@LAWS.law
async def an_interrupt_waits_beside_its_step_until_the_step_is_finished(
    journal: Checkpointer,
) -> None:
    (first,) = await grow(journal, "a")
    asked = [interrupt(f"int_{index}", step_id(first), index=index) for index in (1, 0)]
    elsewhere = interrupt("int_sub", step_id(first), ns="task:1")
    await journal.commit(Batch(THREAD, interrupts=[*asked, elsewhere]))
    equal(list((await loaded(journal)).interrupts), asked[::-1])
    await journal.commit(step_batch(first, "b"))
    equal(list((await loaded(journal)).interrupts), [])
    equal(list((await loaded(journal, first)).interrupts), [])
    equal(len(await journal.interrupts("run_1")), 3)


@LAWS.law
async def interrupts_of_a_run_come_by_step_then_by_index(journal: Checkpointer) -> None:
    old, new = "ckpt_z", "ckpt_a"
    for batch in (
        [interrupt("i1", old, index=2)],
        [interrupt("i2", new, index=0), interrupt("i3", old, ns="task:1", index=0)],
        [interrupt("i4", old, index=1), interrupt("i5", old, run_id="run_2")],
    ):
        await journal.commit(Batch(THREAD, interrupts=batch))
    equal([each.id for each in await journal.interrupts("run_1")], ["i4", "i1", "i2", "i3"])


@LAWS.law
async def the_first_answer_of_an_interrupt_wins(journal: Checkpointer) -> None:
    answers: list[JsonValue] = ["yes", None, {"edit": [1, 2.5, None]}]
    for number, first in enumerate(answers):
        asked = interrupt(f"int_{number}", "ckpt_1", run_id=f"run_{number}")
        await journal.commit(Batch(THREAD, interrupts=[asked]))
        await journal.commit(Batch(THREAD, answers={asked.id: first, "int_unknown": 1}))
        await journal.commit(Batch(THREAD, answers={asked.id: "second"}))
        equal(await journal.interrupts(asked.run_id), [replace(asked, answer=first, answered=True)])


@LAWS.law
async def a_question_asked_again_keeps_its_answer(journal: Checkpointer) -> None:
    await journal.commit(Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1")]))
    await journal.commit(Batch(THREAD, answers={"int_1": "yes"}))
    again = interrupt("int_1", "ckpt_1", run_id="run_after_restart")
    await journal.commit(Batch(THREAD, interrupts=[again]))
    equal(
        await journal.interrupts("run_after_restart"), [replace(again, answer="yes", answered=True)]
    )
    equal(await journal.interrupts("run_1"), [])


@LAWS.law
async def an_interrupt_and_its_answer_may_share_a_batch(journal: Checkpointer) -> None:
    asked = interrupt("int_1", "ckpt_1")
    await journal.commit(Batch(THREAD, interrupts=[asked], answers={"int_1": "no"}))
    equal(await journal.interrupts("run_1"), [replace(asked, answer="no", answered=True)])


@LAWS.law
async def an_answer_reaches_only_interrupts_of_its_thread(journal: Checkpointer) -> None:
    mine, theirs = interrupt("int_1", "c"), interrupt("int_1", "c", thread="other", run_id="run_2")
    await journal.commit(Batch(THREAD, interrupts=[mine]))
    await journal.commit(Batch("other", interrupts=[theirs]))
    await journal.commit(Batch("other", answers={"int_1": "yes"}))
    equal(await journal.interrupts("run_1"), [mine])
    equal([each.answer for each in await journal.interrupts("run_2")], ["yes"])


@LAWS.law
async def what_callers_do_to_a_payload_does_not_reach_the_journal(journal: Checkpointer) -> None:
    asked = interrupt("int_1", "ckpt_1")
    await journal.commit(Batch(THREAD, interrupts=[asked]))
    asked.payload.clear()
    (got,) = await journal.interrupts("run_1")
    got.payload.clear()
    (again,) = await journal.interrupts("run_1")
    equal(again, interrupt("int_1", "ckpt_1"))


@LAWS.law
async def file_changes_come_newest_first_and_know_their_checkpoint(journal: Checkpointer) -> None:
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
    equal(
        [each.path for each in everything],
        [
            "/after second",
            "/in a subagent",
            "/after first",
            "/before any checkpoint",
        ],
    )
    equal([each.checkpoint_seq for each in everything[::3]], [second, 0])
    between = everything[1].checkpoint_seq
    holds(first < between < second, "a change knows the newest checkpoint of any namespace")
    equal(
        [each.seq for each in everything], sorted((each.seq for each in everything), reverse=True)
    )
    old = everything[2]
    equal(old, FileChange(THREAD, "run_1", "/after first", b"x" * 1000, "00ff", first, seq=old.seq))
    equal((everything[1].before, everything[1].after_digest), (b"", None))
    equal(everything[3].before, None)
    equal(await journal.file_changes(THREAD, first), everything[:3])
    equal(await journal.file_changes(THREAD, second), everything[:1])
    equal(await journal.file_changes("other", 0), [])


@LAWS.law
async def a_change_stored_with_a_checkpoint_comes_after_it(journal: Checkpointer) -> None:
    change = FileChange(THREAD, "run_1", "/f", None, None)
    await journal.commit(replace(step_batch(None, "a"), file_changes=[change]))
    seq = (await loaded(journal)).checkpoint.seq
    equal([each.checkpoint_seq for each in await journal.file_changes(THREAD, seq)], [seq])


@LAWS.law
async def a_message_for_a_run_is_kept_until_it_is_taken(journal: Checkpointer) -> None:
    steps = await grow(journal, "a", "b", "c")
    await journal.commit(Batch(THREAD, runs=[run("run_1")]))
    message = replace(interrupt("msg_1", "", ns="caller"), kind="message", payload={})
    await journal.commit(Batch(THREAD, interrupts=[message]))
    await journal.prune(THREAD, keep_latest=1)
    equal(list(await journal.interrupts("run_1")), [message])
    taken = replace(step_batch(steps[-1], "d"), answers={"msg_1": step_id(steps[-1])})
    await journal.commit(taken)
    (found,) = await journal.interrupts("run_1")
    equal(found.answer, step_id(steps[-1]))
    equal(list((await loaded(journal)).interrupts), [])


EVENT_LAWS = Laws("events")


def _event(name: str, run_id: str = "run_1", created_at: float | None = None) -> RunEvent:
    path = ("main", "call_1")
    return RunEvent(run_id, "tasks", path, {"event": name}, created_at or time.time())


async def _store(journal: Checkpointer, *events: RunEvent, thread: str = THREAD) -> None:
    await journal.commit(Batch(thread, events=events))


def _names(events: Sequence[RunEvent]) -> list[object]:
    return [one.data["event"] for one in events]


@EVENT_LAWS.law
async def events_come_back_numbered_in_order(journal: Checkpointer) -> None:
    first = changed(_event("a “ä” 🎉\x00"), data={"event": "a", "more": [1.5, None, {"x": True}]})
    second, third = _event("b"), _event("c")
    await journal.commit(changed(step_batch(None, "x"), events=[first, second]))
    await _store(journal, third)
    found = await journal.events("run_1")
    equal([one.seq for one in found], [1, 2, 3])
    equal([changed(one, seq=0) for one in found], [first, second, third])


@EVENT_LAWS.law
async def events_are_read_from_any_place_in_pages(journal: Checkpointer) -> None:
    await _store(journal, *(_event(str(number)) for number in range(1, 8)))
    await _store(journal, _event("8"))
    equal(_names(await journal.events("run_1", after=3, limit=2)), ["4", "5"])
    equal(_names(await journal.events("run_1", after=6)), ["7", "8"])
    equal(await journal.events("run_1", after=8), [])
    equal(await journal.events("run_1", limit=0), [])
    equal(await journal.events("run_unknown"), [])


@EVENT_LAWS.law
async def each_run_has_its_own_numbers(journal: Checkpointer) -> None:
    await _store(journal, _event("a"), _event("x", "run_2"), _event("b"))
    await _store(journal, _event("y", "run_2"))
    equal(_names(await journal.events("run_1")), ["a", "b"])
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_2")],
          [(1, "x"), (2, "y")])  # fmt: skip


@EVENT_LAWS.law
async def concurrent_commits_number_events_without_a_gap(journal: Checkpointer) -> None:
    async with create_task_group() as group:
        for number in range(20):
            group.start_soon(partial(_store, journal, _event(f"{number} a"), _event(f"{number} b")))
    found = await journal.events("run_1")
    equal([one.seq for one in found], list(range(1, 41)))
    equal({*_names(found)}, {f"{number} {half}" for number in range(20) for half in "ab"})


@EVENT_LAWS.law
async def events_of_a_refused_batch_are_not_stored(journal: Checkpointer) -> None:
    await grow(journal, "a")
    with refused(StaleThread):
        await journal.commit(
            Batch(THREAD, checkpoints=[checkpoint(None)], events=[_event("refused")])
        )
    with refused(CheckpointError):
        odd = changed(_event("odd"), data={"event": object()})  # type: ignore[dict-item]
        await _store(journal, odd)
    await _store(journal, _event("kept"))
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_1")], [(1, "kept")])


@EVENT_LAWS.law
async def events_of_a_run_of_another_thread_are_refused(journal: Checkpointer) -> None:
    await _store(journal, _event("mine"))
    with refused(CheckpointError):
        await _store(journal, _event("theirs"), thread="other")
    equal(_names(await journal.events("run_1")), ["mine"])
    equal([one.thread_id for one in await journal.threads()], [THREAD])


@EVENT_LAWS.law
async def only_the_newest_events_of_a_run_stay(journal: Checkpointer) -> None:
    most, at_once = EventLimits().per_run, 100
    for batch in range(most // at_once + 5):
        await _store(journal, *(_event(str(batch * at_once + one)) for one in range(at_once)))
    last = most + 5 * at_once
    await _store(journal, _event("of another run", "run_2"))
    found = await journal.events("run_1", limit=2 * most)
    equal(found[-1].seq, last)
    holds(most <= len(found) <= most + at_once, f"{most} to {most + at_once} stay")
    equal([one.seq for one in found], list(range(last - len(found) + 1, last + 1)))
    equal(_names(await journal.events("run_2")), ["of another run"])


@EVENT_LAWS.law
async def old_events_go_when_others_are_stored_and_numbers_go_on(journal: Checkpointer) -> None:
    long_ago = time.time() - EventLimits().seconds - 3600
    await _store(journal, _event("a", created_at=long_ago), _event("b", created_at=long_ago))
    await _store(journal, _event("x", "run_2", created_at=long_ago))
    await _store(journal, _event("c"))
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_1")], [(3, "c")])
    equal(await journal.events("run_2"), [])
    await _store(journal, _event("y", "run_2"))
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_2")], [(2, "y")])


@EVENT_LAWS.law
async def events_go_with_their_thread_and_their_run(journal: Checkpointer) -> None:
    other = run("run_2", thread="other")
    await journal.commit(Batch(THREAD, runs=[run("run_1")], events=[_event("a")]))
    await journal.commit(Batch("other", runs=[other], events=[_event("b", "run_2")]))
    await grow(journal, "a", thread="other")
    await journal.delete_thread(THREAD)
    equal(await journal.events("run_1"), [])
    equal(_names(await journal.events("run_2")), ["b"])
    await journal.delete_for_runs(["run_2"])
    equal(await journal.events("run_2"), [])


@EVENT_LAWS.law
async def copies_and_pruned_threads_keep_their_own_events(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", "c")
    await _store(journal, _event("a"))
    await journal.copy_thread(THREAD, "copy")
    await journal.prune(keep_latest=1)
    equal(_names(await journal.events("run_1")), ["a"])
    await journal.delete_thread("copy")
    equal(_names(await journal.events("run_1")), ["a"])
