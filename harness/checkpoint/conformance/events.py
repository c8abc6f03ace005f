"""Events of runs: numbered, readable from any place, bounded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from anyio import create_task_group

from ..._internal.records import changed
from ...errors import CheckpointError, StaleThread
from ..base import Batch, Checkpointer, EventLimits, RunEvent
from .kit import Laws, equal, holds, refused
from .records import THREAD, checkpoint, grow, run, step_batch

__all__ = ["LAWS"]

LAWS = Laws("events")


def _event(name: str, run_id: str = "run_1", created_at: float | None = None) -> RunEvent:
    path = ("main", "call_1")
    return RunEvent(run_id, "tasks", path, {"event": name}, created_at or time.time())


async def _store(journal: Checkpointer, *events: RunEvent, thread: str = THREAD) -> None:
    await journal.commit(Batch(thread, events=events))


def _names(events: Sequence[RunEvent]) -> list[object]:
    return [one.data["event"] for one in events]


@LAWS.law
async def events_come_back_numbered_in_order(journal: Checkpointer) -> None:
    first = changed(_event("a “ä” 🎉\x00"), data={"event": "a", "more": [1.5, None, {"x": True}]})
    second, third = _event("b"), _event("c")
    await journal.commit(changed(step_batch(None, "x"), events=[first, second]))
    await _store(journal, third)
    found = await journal.events("run_1")
    equal([one.seq for one in found], [1, 2, 3])
    equal([changed(one, seq=0) for one in found], [first, second, third])


@LAWS.law
async def events_are_read_from_any_place_in_pages(journal: Checkpointer) -> None:
    await _store(journal, *(_event(str(number)) for number in range(1, 8)))
    await _store(journal, _event("8"))
    equal(_names(await journal.events("run_1", after=3, limit=2)), ["4", "5"])
    equal(_names(await journal.events("run_1", after=6)), ["7", "8"])
    equal(await journal.events("run_1", after=8), [])
    equal(await journal.events("run_1", limit=0), [])
    equal(await journal.events("run_unknown"), [])


@LAWS.law
async def each_run_has_its_own_numbers(journal: Checkpointer) -> None:
    await _store(journal, _event("a"), _event("x", "run_2"), _event("b"))
    await _store(journal, _event("y", "run_2"))
    equal(_names(await journal.events("run_1")), ["a", "b"])
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_2")],
          [(1, "x"), (2, "y")])  # fmt: skip


@LAWS.law
async def concurrent_commits_number_events_without_a_gap(journal: Checkpointer) -> None:
    async with create_task_group() as group:
        for number in range(20):
            group.start_soon(partial(_store, journal, _event(f"{number} a"), _event(f"{number} b")))
    found = await journal.events("run_1")
    equal([one.seq for one in found], list(range(1, 41)))
    equal({*_names(found)}, {f"{number} {half}" for number in range(20) for half in "ab"})


@LAWS.law
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


@LAWS.law
async def events_of_a_run_of_another_thread_are_refused(journal: Checkpointer) -> None:
    await _store(journal, _event("mine"))
    with refused(CheckpointError):
        await _store(journal, _event("theirs"), thread="other")
    equal(_names(await journal.events("run_1")), ["mine"])
    equal([one.thread_id for one in await journal.threads()], [THREAD])


@LAWS.law
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


@LAWS.law
async def old_events_go_when_others_are_stored_and_numbers_go_on(journal: Checkpointer) -> None:
    long_ago = time.time() - EventLimits().seconds - 3600
    await _store(journal, _event("a", created_at=long_ago), _event("b", created_at=long_ago))
    await _store(journal, _event("x", "run_2", created_at=long_ago))
    await _store(journal, _event("c"))
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_1")], [(3, "c")])
    equal(await journal.events("run_2"), [])
    await _store(journal, _event("y", "run_2"))
    equal([(one.seq, one.data["event"]) for one in await journal.events("run_2")], [(2, "y")])


@LAWS.law
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


@LAWS.law
async def copies_and_pruned_threads_keep_their_own_events(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", "c")
    await _store(journal, _event("a"))
    await journal.copy_thread(THREAD, "copy")
    await journal.prune(keep_latest=1)
    equal(_names(await journal.events("run_1")), ["a"])
    await journal.delete_thread("copy")
    equal(_names(await journal.events("run_1")), ["a"])
