"""What waits is stored in order or said to be lost, whoever hands it over at the same time."""

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, FileChange, step_id
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from deep_agent_mcp.harness.loop.run.commit_buffer import (
    CommitAtExit,
    CommitBuffer,
    OverlappingCommits,
)
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
    journal = CommitAtExit(store, THREAD)
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
    journal = CommitAtExit(store, THREAD)
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


async def test_after_an_error_of_the_disk_steps_wait_in_order_and_a_refused_commit_does_not():
    class Full(MemoryCheckpointer):
        full = True

        async def commit(self, batch: Batch) -> None:
            if self.full:
                raise CheckpointError("full")
            await super().commit(batch)

    store = Full()
    journal = CommitAtExit(store, THREAD)
    await journal.step(step_batch(None, "a"))
    with pytest.raises(CheckpointError):
        await journal.commit(change("/a"))
    await journal.step(step_batch(step_id(None), "b"))
    store.full = False
    await journal.settle()
    assert [one.step for one in await store.history(THREAD)] == [0, 0]
    assert await store.file_changes(THREAD, 0) == []  # its caller was told that it was not stored


async def test_what_the_background_met_is_raised_by_the_very_next_step():
    store = Slow()
    store.gate.set()
    await grow(store, "mine", "theirs")
    store.gate = anyio.Event()
    journal = OverlappingCommits(store, THREAD)
    with anyio.fail_after(5):
        async with journal.carrying():
            await journal.step(step_batch(step_id(None), "late"))
            await anyio.wait_all_tasks_blocked()
            store.gate.set()
            with pytest.raises(StaleThread):
                await journal.step(step_batch(step_id(step_id(None)), "later"))


class Broken(MemoryCheckpointer):
    """Raises what no checkpointer should, or refuses once."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def commit(self, batch: Batch) -> None:
        await anyio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        await super().commit(batch)


async def test_an_error_of_another_kind_reaches_everybody_whose_batch_it_took():
    journal = CommitAtExit(Broken(RuntimeError("a bug")), THREAD)
    outcomes: dict[str, str] = {}
    inner = anyio.Event()

    async def commit(path: str) -> None:
        try:
            await journal.commit(change(path))
            outcomes[path] = "stored"
        except RuntimeError:
            outcomes[path] = "error"

    async def hold_the_turn() -> None:
        async with journal._turn:
            inner.set()
            await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(hold_the_turn)
            await inner.wait()
            group.start_soon(commit, "/a")
            group.start_soon(commit, "/b")
    assert outcomes == {"/a": "error", "/b": "error"}


async def test_what_the_disk_refused_in_the_background_is_stored_by_the_next_try():
    store = Broken(CheckpointError("busy"))
    journal = OverlappingCommits(store, THREAD)
    with anyio.fail_after(5):
        async with journal.carrying():
            await journal.step(step_batch(None, "a"))
            await anyio.wait_all_tasks_blocked()
            await journal.commit(change("/a"))
    assert len(await store.history(THREAD)) == 1
    assert len(await store.file_changes(THREAD, 0)) == 1


async def test_nothing_overtakes_an_input_that_is_held():
    store = Slow()
    journal = CommitBuffer(store, THREAD)
    journal.hold(step_batch(None, "input"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(journal.commit, change("/a"))
            await store.entered.wait()
            group.start_soon(journal.commit, change("/b"))
            await anyio.wait_all_tasks_blocked()
            assert await store.history(THREAD) == []
            assert await store.file_changes(THREAD, 0) == []
            store.gate.set()
    assert [one.path for one in await store.file_changes(THREAD, 0)] == ["/b", "/a"]


async def test_an_input_that_was_refused_is_stored_with_the_next_batch():
    store = Broken(CheckpointError("full"))
    journal = CommitBuffer(store, THREAD)
    journal.hold(step_batch(None, "input"))
    with pytest.raises(CheckpointError):
        await journal.commit(change("/a"))
    await journal.commit(change("/b"))
    assert len(await store.history(THREAD)) == 1
