"""Replacing what a thread's records hold: keys are changed and secrets removed this way."""

from __future__ import annotations

from typing import Any, TypeVar

from ..._internal.records import changed
from ..base import (
    Batch,
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Record,
    Run,
    RunEvent,
    Snapshot,
    StoredWrite,
    step_id,
)
from .kit import Laws, equal, refused
from .records import (
    THREAD,
    grow,
    interrupt,
    loaded,
    run,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("rewriting")

R = TypeVar("R", bound=Record)

_LARGE = b"large " * 20_000


def _louder(record: R, /) -> R:
    """Change everything a rewrite may change, and tries to change what it may not."""
    made: Record = record
    match made:
        case StoredWrite():
            made = changed(made, value=made.value.upper(), channel="other", overwrite=True)
        case Checkpoint():
            made = changed(made, summary=made.summary.upper(), author="new", parent_id=None, step=9)
        case Run():
            made = changed(made, goal=made.goal.upper(), idempotency_key="new", status="failed")
        case Interrupt():
            made = changed(made, message=made.message.upper(), answer="new", answered=False)
        case FileChange():
            made = changed(made, path=made.path.upper(), before=b"new", run_id="other")
        case RunEvent():
            made = changed(made, data={"event": "new"}, seq=77, mode="other")
    same: Any = made
    return same


async def _full(journal: Checkpointer, thread: str) -> tuple[str, ...]:
    first, head = await grow(journal, "a", "b", thread=thread)
    large = task(step_id(head), "call_1", 0, "pending")
    large = changed(large, writes=[*large.writes, StoredWrite("files", _LARGE)])
    run_id = f"run_{thread}"
    await journal.commit(
        Batch(
            thread,
            writes=[large],
            runs=[run(run_id, thread=thread, goal="tidy", idempotency_key=f"key {thread}")],
            interrupts=[interrupt(f"int_{thread}", step_id(head), thread=thread, run_id=run_id)],
            answers={f"int_{thread}": "old"},
            file_changes=[FileChange(thread, run_id, "/file", _LARGE, "digest")],
            snapshots=[Snapshot(head, "schema", (StoredWrite("messages", b"ab", True),))],
            events=[RunEvent(run_id, "tasks", ("main",), {"event": "old"})],
        )
    )
    return first, head


@LAWS.law
async def a_rewrite_changes_the_content_of_every_record(journal: Checkpointer) -> None:
    first, head = await _full(journal, THREAD)
    run_id = f"run_{THREAD}"
    old_run, old_history = await journal.run(run_id), await journal.history(THREAD)
    old = await loaded(journal)
    (old_change,) = await journal.file_changes(THREAD, 0)
    (old_event,) = await journal.events(run_id)
    await journal.rewrite(THREAD, _louder)

    equal(values((await loaded(journal, first)).writes), ["A"])
    found = await loaded(journal)
    equal(values(found.writes), ["A", "B"])
    (pending,) = found.pending
    small, large = pending.writes
    equal((pending.task_id, small, large.value), (
        "call_1", StoredWrite("messages", b"PENDING"), _LARGE.upper()
    ))  # fmt: skip
    equal(
        await journal.history(THREAD),
        [changed(one, summary=one.summary.upper(), author="new") for one in old_history],
    )
    (asked,) = found.interrupts
    (was,) = old.interrupts
    equal(asked, changed(was, message=was.message.upper(), answer="new"))
    assert old_run is not None
    equal(await journal.run(run_id), changed(old_run, goal="TIDY", idempotency_key="new"))
    equal([one.id for one in await journal.find_runs(idempotency_key="new")], [run_id])
    equal(await journal.find_runs(idempotency_key=f"key {THREAD}"), [])
    equal(await journal.file_changes(THREAD, 0), [changed(old_change, path="/FILE", before=b"new")])
    equal(await journal.events(run_id), [changed(old_event, data={"event": "new"})])
    found = await journal.load(THREAD, schema="schema")
    assert found is not None
    equal(values(found.writes), ["AB"])
    await journal.commit(step_batch(head, "c"))
    equal(values((await loaded(journal)).writes)[:2], ["A", "B"])


@LAWS.law
async def a_rewrite_leaves_other_threads_alone(journal: Checkpointer) -> None:
    await _full(journal, THREAD)
    await _full(journal, "other")
    before = await loaded(journal, thread="other")
    changes, runs = await journal.file_changes("other", 0), await journal.run("run_other")
    await journal.rewrite(THREAD, _louder)
    await journal.rewrite("nobody", _louder)
    equal(await loaded(journal, thread="other"), before)
    equal(await journal.file_changes("other", 0), changes)
    equal(await journal.run("run_other"), runs)


@LAWS.law
async def a_rewrite_that_fails_changes_nothing(journal: Checkpointer) -> None:
    await _full(journal, THREAD)
    before, changes = await loaded(journal), await journal.file_changes(THREAD, 0)

    def fails(record: R, /) -> R:
        if isinstance(record, RunEvent):
            raise KeyError("no such key")
        return _louder(record)

    with refused(KeyError):
        await journal.rewrite(THREAD, fails)
    equal(await loaded(journal), before)
    equal(await journal.file_changes(THREAD, 0), changes)
    equal((await journal.events(f"run_{THREAD}"))[0].data, {"event": "old"})


@LAWS.law
async def a_rewrite_reaches_every_namespace(journal: Checkpointer) -> None:
    await grow(journal, "main")
    await grow(journal, "sub", ns="task:call_1@ckpt_1")
    await journal.rewrite(THREAD, _louder)
    equal(values((await loaded(journal, ns="task:call_1@ckpt_1")).writes), ["SUB"])
    equal(values((await loaded(journal)).writes), ["MAIN"])


@LAWS.law
async def a_thread_without_steps_is_rewritten_as_others_are(journal: Checkpointer) -> None:
    event = RunEvent("run_1", "tasks", (), {"event": "old"})
    await journal.commit(Batch(THREAD, interrupts=[interrupt("int_1", "later")], events=[event]))
    await journal.rewrite(THREAD, _louder)
    equal([one.data for one in await journal.events("run_1")], [{"event": "new"}])
    equal([one.id for one in await journal.interrupts("run_1")], ["int_1"])
    equal([one.thread_id for one in await journal.threads()], [THREAD])
