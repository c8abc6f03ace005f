"""What waits is stored in order or said to be lost, whoever hands it over at the same time."""

import anyio
import pytest

from harness.checkpoint.base import Batch, FileChange, step_id
from harness.checkpoint.memory import MemoryCheckpointer
from harness.errors import CheckpointError, StaleThread
from harness.loop.run_journal import AsyncJournal, ExitJournal
from tests.checkpoint.records import THREAD, grow, step_batch

pytestmark = pytest.mark.anyio


class Slow(MemoryCheckpointer):
    """Its commits can be held."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.entered = anyio.Event()

    async def commit(self, batch: Batch) -> None:
        self.entered.set()
        await self.gate.wait()
        await super().commit(batch)


def change(path: str) -> Batch:
    return Batch(THREAD, file_changes=[FileChange(THREAD, "run_1", path, b"before", None)])


async def test_of_two_that_are_stored_together_both_learn_that_the_thread_was_moved():
    store = Slow()
    store.gate.set()
    await grow(store, "mine", "theirs")
    store.gate, store.entered = anyio.Event(), anyio.Event()
    journal = ExitJournal(store, THREAD)
    await journal.step(step_batch(step_id(None), "late"))  # theirs was faster
    told: list[str] = []

    async def commit(path: str) -> None:
        try:
            await journal.commit(change(path))
        except StaleThread:
            told.append(path)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(commit, "/a")
            await store.entered.wait()
            group.start_soon(commit, "/b")
            group.start_soon(commit, "/c")
            await anyio.wait_all_tasks_blocked()
            store.gate.set()
    # /a was handed over with the stale step; the others later, and for themselves.
    assert told == ["/a"]
    assert [one.path for one in await store.file_changes(THREAD, 0)] == ["/c", "/b"]


async def test_a_batch_that_somebody_else_tried_in_vain_is_not_taken_for_stored():
    store = Slow()
    store.gate.set()
    await grow(store, "mine", "theirs")
    journal = ExitJournal(store, THREAD)
    outcomes: dict[str, str] = {}
    inner = anyio.Event()

    async def commit(path: str) -> None:
        try:
            await journal.commit(change(path))
            outcomes[path] = "stored"
        except StaleThread:
            outcomes[path] = "stale"

    async def hold_the_turn() -> None:
        async with journal._turn:  # as a commit on its way does
            inner.set()
            await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(hold_the_turn)
            await inner.wait()
            await journal.step(step_batch(step_id(None), "late"))
            group.start_soon(commit, "/a")
            group.start_soon(commit, "/b")
    assert outcomes == {"/a": "stale", "/b": "stale"}
    assert await store.file_changes(THREAD, 0) == []


async def test_after_an_error_of_the_disk_everything_waits_in_order_for_the_next_try():
    class Full(MemoryCheckpointer):
        full = True

        async def commit(self, batch: Batch) -> None:
            if self.full:
                raise CheckpointError("full")
            await super().commit(batch)

    store = Full()
    journal = ExitJournal(store, THREAD)
    await journal.step(step_batch(None, "a"))
    with pytest.raises(CheckpointError):
        await journal.commit(change("/a"))
    await journal.step(step_batch(step_id(None), "b"))
    store.full = False
    await journal.settle()
    assert [one.step for one in await store.history(THREAD)] == [0, 0]
    assert len(await store.file_changes(THREAD, 0)) == 1


async def test_what_the_background_met_is_raised_by_the_very_next_step():
    store = Slow()
    store.gate.set()
    await grow(store, "mine", "theirs")
    store.gate = anyio.Event()
    journal = AsyncJournal(store, THREAD)
    with anyio.fail_after(5):
        async with journal.carrying():
            await journal.step(step_batch(step_id(None), "late"))
            await anyio.wait_all_tasks_blocked()
            store.gate.set()
            with pytest.raises(StaleThread):
                await journal.step(step_batch(step_id(step_id(None)), "later"))
