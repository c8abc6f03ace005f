"""Run ownership: one process at a time carries a run, and one run at a time is open on a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from anyio import create_task_group

from ..._internal.records import changed
from ...errors import CheckpointError, HarnessError, KnownRun, Superseded, ThreadBusy
from ..base import Batch, Checkpointer, Fence, RunEvent, step_id
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
    step_batch,
    task,
)
from .kit import run as ended_run

__all__ = ["LAWS"]


LAWS = Laws("carriers of runs")

_RACERS = 8

run = partial(ended_run, status="running")


async def _begun(journal: Checkpointer, run_id: str = "run_1", attempt: int = 1) -> None:
    """Start an attempt of a run."""
    begun = run(run_id, attempt=attempt, owner=f"p{attempt}")
    await journal.commit(Batch(THREAD, runs=[begun], fences=[Fence(run_id, attempt, begins=True)]))


@LAWS.law
async def an_attempt_is_begun_once(journal: Checkpointer) -> None:
    await _begun(journal)
    with refused(Superseded):
        await _begun(journal)
    await _begun(journal, attempt=2)
    for late in (1, 2):
        with refused(Superseded):
            await _begun(journal, attempt=late)
    found = await journal.run("run_1")
    equal(found and (found.attempt, found.owner), (2, "p2"))


@LAWS.law
async def of_those_who_take_a_run_over_at_once_one_does(journal: Checkpointer) -> None:
    await _begun(journal)
    won: list[int] = []
    lost: list[int] = []

    async def take_over(number: int) -> None:
        taken = run("run_1", attempt=2, owner=f"p{number}")
        fence = Fence("run_1", 2, begins=True)
        try:
            await journal.commit(Batch(THREAD, runs=[taken], fences=[fence]))
            won.append(number)
        except Superseded:
            lost.append(number)

    await _all_at_once([partial(take_over, number) for number in range(_RACERS)])
    equal((len(won), len(lost)), (1, _RACERS - 1))
    found = await journal.run("run_1")
    equal(found and found.owner, f"p{won[0]}")


@LAWS.law
async def nothing_of_an_attempt_is_stored_once_a_later_one_has_begun(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await _begun(journal)
    await _begun(journal, attempt=2)
    late = Fence("run_1", 1)
    step = step_id(first)
    event = RunEvent("run_1", "custom", (), {"a": 1})
    for batch in (
        step_batch(first, "b", step=1),
        Batch(THREAD, writes=[task(step, "call_1", 0, "c")]),
        Batch(THREAD, "sub", checkpoints=[checkpoint(None, ns="sub")]),
        Batch(THREAD, runs=[run("run_1", status="failed", owner="p1")]),
        Batch(THREAD, interrupts=[interrupt("int_1", step)]),
        Batch(THREAD, events=[event]),
        Batch(THREAD),
    ):
        with refused(Superseded):
            await journal.commit(changed(batch, fences=[late]))
    found = await loaded(journal)
    equal(found.checkpoint.id, first)
    holds(not found.pending and not found.interrupts, "nothing waits for the next step")
    equal(await journal.namespaces(THREAD), [""])
    equal(await journal.events("run_1"), [])
    stored = await journal.run("run_1")
    equal(stored and (stored.attempt, stored.status), (2, "running"))


@LAWS.law
async def the_attempt_that_has_begun_stores_its_steps(journal: Checkpointer) -> None:
    await _begun(journal)
    await _begun(journal, attempt=2)
    fence = Fence("run_1", 2)
    one = step_batch(None, "a")
    await journal.commit(changed(one, fences=[fence]))
    two = step_batch(one.checkpoints[0].id, "b", step=1)
    ended = run("run_1", attempt=2, status="done", answer="b")
    await journal.commit(changed(two, fences=[fence], runs=[ended]))
    equal(await head_id(journal), two.checkpoints[0].id)
    equal(await journal.run("run_1"), ended)


@LAWS.law
async def a_refused_commit_leaves_those_beside_it_alone(journal: Checkpointer) -> None:
    await _begun(journal)
    await _begun(journal, attempt=2)

    async def late() -> None:
        with refused(Superseded):
            await journal.commit(Batch(THREAD, fences=[Fence("run_1", 1)]))

    async def other(number: int) -> None:
        await grow(journal, "a", "b", thread=f"other_{number}")

    await _all_at_once([late, *(partial(other, number) for number in range(_RACERS)), late])
    for number in range(_RACERS):
        holds(await head_id(journal, f"other_{number}") is not None, "the others are stored")


@LAWS.law
async def a_record_is_never_replaced_by_one_of_an_earlier_attempt(journal: Checkpointer) -> None:
    winner = run("run_1", attempt=3, status="done", answer="42")
    await journal.commit(Batch(THREAD, runs=[winner]))
    with refused(Superseded):
        await journal.commit(Batch(THREAD, runs=[run("run_1", attempt=2, status="failed")]))
    equal(await journal.run("run_1"), winner)


@LAWS.law
async def a_fence_of_a_run_that_is_not_stored_lets_its_batch_pass(journal: Checkpointer) -> None:
    batch = step_batch(None, "a")
    await journal.commit(changed(batch, fences=[Fence("run_1", 1)]))
    equal(await head_id(journal), batch.checkpoints[0].id)


@LAWS.law
async def a_fence_of_a_run_of_another_thread_is_refused(journal: Checkpointer) -> None:
    await _begun(journal)
    with refused(CheckpointError):
        await journal.commit(Batch("other", fences=[Fence("run_1", 1)]))


@LAWS.law
async def a_thread_has_one_open_run(journal: Checkpointer) -> None:
    first = run("run_1")
    await journal.commit(Batch(THREAD, runs=[first]))
    for status in ("running", "needs_approval", "done"):
        await _is_busy(journal, Batch(THREAD, runs=[run("run_2", status=status)]), "run_1")
    equal(await journal.run("run_2"), None)
    await journal.commit(Batch(THREAD, runs=[replace(first, status="needs_approval")]))
    await _is_busy(journal, Batch(THREAD, runs=[run("run_2")]), "run_1")
    await journal.commit(Batch("other", runs=[run("run_3", thread="other")]))
    for status in ("paused", "failed", "cancelled", "done"):
        await journal.commit(Batch(THREAD, runs=[replace(first, status=status)]))
        other = run(f"run_{status}", status="done")
        await journal.commit(Batch(THREAD, runs=[other]))


@LAWS.law
async def a_run_does_not_go_on_while_another_one_is_open(journal: Checkpointer) -> None:
    paused, other = run("run_1", status="paused"), run("run_2")
    await journal.commit(Batch(THREAD, runs=[paused]))
    await journal.commit(Batch(THREAD, runs=[other]))
    goes_on = replace(paused, status="running", attempt=2)
    await _is_busy(journal, Batch(THREAD, runs=[goes_on]), "run_2")
    await journal.commit(Batch(THREAD, runs=[replace(other, status="done")]))
    await journal.commit(Batch(THREAD, runs=[goes_on]))


@LAWS.law
async def a_run_may_end_the_open_one_in_the_commit_it_begins_with(journal: Checkpointer) -> None:
    await _begun(journal)
    ended = run("run_1", attempt=2, status="cancelled")
    fences = [Fence("run_2", 1, begins=True), Fence("run_1", 2, begins=True)]
    await journal.commit(Batch(THREAD, runs=[run("run_2"), ended], fences=fences))
    equal(await journal.run("run_1"), ended)
    with refused(Superseded):
        await journal.commit(Batch(THREAD, fences=[Fence("run_1", 1)]))
    with refused(ThreadBusy):
        await journal.commit(Batch(THREAD, runs=[run("run_3"), run("run_4")]))


@LAWS.law
async def an_ended_run_may_be_recorded_again_beside_an_open_one(journal: Checkpointer) -> None:
    ended = run("run_1", status="failed")
    await journal.commit(Batch(THREAD, runs=[ended]))
    await journal.commit(Batch(THREAD, runs=[run("run_2")]))
    told = replace(ended, reason="its client left")
    await journal.commit(Batch(THREAD, runs=[told]))
    equal(await journal.run("run_1"), told)


@LAWS.law
async def a_run_that_was_cancelled_before_it_began_needs_no_thread(journal: Checkpointer) -> None:
    await _begun(journal)
    cancelled = run("run_2", status="cancelled")
    await journal.commit(Batch(THREAD, runs=[cancelled]))
    moves = changed(step_batch(None, "a"), runs=[run("run_3", status="cancelled")])
    await _is_busy(journal, moves, "run_1")


@LAWS.law
async def queued_runs_wait_for_their_thread_and_begin_once(journal: Checkpointer) -> None:
    await _begun(journal)
    for number in (2, 3):
        waiting = run(f"run_{number}", status="queued", idempotency_key=f"k{number}")
        kept = RunEvent(waiting.id, "queued", (), {"goal": "later"})
        fences = [Fence(waiting.id, 1, begins=True)]
        await journal.commit(Batch(THREAD, runs=[waiting], events=[kept], fences=fences))
    found = await journal.find_runs(thread_id=THREAD, status="queued")
    equal([one.id for one in found], ["run_3", "run_2"])
    begins = run("run_2", attempt=2, idempotency_key="k2")
    batch = Batch(THREAD, runs=[begins], fences=[Fence("run_2", 2, begins=True)])
    await _is_busy(journal, batch, "run_1")
    await journal.commit(Batch(THREAD, runs=[run("run_1", status="done")]))
    await journal.commit(batch)
    with refused(Superseded):
        await journal.commit(batch)
    (kept,) = await journal.events("run_3")
    equal(kept.data, {"goal": "later"})


@LAWS.law
async def what_was_made_elsewhere_may_have_several_open_runs(journal: Checkpointer) -> None:
    await journal.commit(Batch(THREAD, runs=[run("run_1"), run("run_2")], imported=True))
    await _is_busy(journal, Batch(THREAD, runs=[run("run_3")]), "run_1")


@LAWS.law
async def of_runs_that_begin_on_a_thread_at_once_one_does(journal: Checkpointer) -> None:
    async def begin(number: int) -> None:
        await journal.commit(Batch(THREAD, runs=[run(f"run_{number}")]))

    refusals = await _all_at_once([partial(begin, number) for number in range(_RACERS)])
    (stored,) = await journal.find_runs(thread_id=THREAD)
    equal(len(refusals), _RACERS - 1)
    for error in refusals:
        equal((type(error), getattr(error, "run_id", None)), (ThreadBusy, stored.id))


@LAWS.law
async def a_deleted_run_keeps_no_thread(journal: Checkpointer) -> None:
    await grow(journal, "a", run_id="run_0")
    await _begun(journal)
    await journal.delete_for_runs(["run_1"])
    await _begun(journal, "run_2")
    await journal.delete_thread(THREAD)
    await _begun(journal, "run_3")


@LAWS.law
async def an_idempotency_key_belongs_to_one_run(journal: Checkpointer) -> None:
    first = run("run_1", status="done", idempotency_key="k")
    await journal.commit(Batch(THREAD, runs=[first]))
    for thread in (THREAD, "other"):
        again = run("run_2", thread=thread, idempotency_key="k")
        try:
            await journal.commit(Batch(thread, runs=[again]))
        except KnownRun as error:
            equal(error.run_id, "run_1")
        else:
            raise AssertionError("a second run with the key was stored")
    equal(await journal.run("run_2"), None)
    await journal.commit(Batch(THREAD, runs=[replace(first, answer="42")]))
    await journal.commit(Batch("other", runs=[run("run_2", thread="other", idempotency_key="l")]))
    await journal.delete_for_runs(["run_1"])
    await journal.commit(Batch(THREAD, runs=[run("run_3", idempotency_key="k")]))


@LAWS.law
async def of_runs_that_begin_with_a_key_at_once_one_does(journal: Checkpointer) -> None:
    async def begin(number: int) -> None:
        thread = f"thread_{number}"
        begun = run(f"run_{number}", thread=thread, idempotency_key="k")
        await journal.commit(Batch(thread, runs=[begun]))

    refusals = await _all_at_once([partial(begin, number) for number in range(_RACERS)])
    (stored,) = await journal.find_runs(idempotency_key="k")
    equal(len(refusals), _RACERS - 1)
    for error in refusals:
        equal((type(error), getattr(error, "run_id", None)), (KnownRun, stored.id))


async def _is_busy(journal: Checkpointer, batch: Batch, run_id: str) -> None:
    """Expect a batch to be refused because of an open run."""
    try:
        await journal.commit(batch)
    except ThreadBusy as error:
        equal(error.run_id, run_id)
    else:
        raise AssertionError(f"{run_id} is open, and another run was stored beside it")


async def _all_at_once(actions: list[Callable[[], Awaitable[None]]]) -> list[HarnessError]:
    """Run actions at the same time; return the errors of refused ones."""
    refusals: list[HarnessError] = []

    async def act(action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except HarnessError as error:
            refusals.append(error)

    async with create_task_group() as group:
        for action in actions:
            group.start_soon(act, action)
    return refusals
