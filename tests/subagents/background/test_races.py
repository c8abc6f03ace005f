"""Background tasks that are cancelled, deleted or rewound past at awkward moments."""

from __future__ import annotations

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from tests.loop.models import call, says
from tests.subagents.background.support import (
    Gate,
    family,
    news,
    results,
    start,
    task_id,
    task_in,
    view,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21])
async def test_a_task_that_ends_and_goes_on_with_a_message_can_be_cancelled_at_every_moment(
    journal: MemoryCheckpointer, steps: int
) -> None:
    first, second = Gate(says("first")), Gate(says("second"))
    async with BackgroundSubAgents(journal) as background:
        turns = {"main": [says("", start("c1")), says("ok")], "digger": [first, second]}
        result = await family(background, turns).ainvoke("go", thread_id="t")
        thread_id = f"t.{task_in(result.state['messages'], 'c1')}"
        await first.reached.wait()
        await background.send(thread_id, "more", "k")
        first.open.set()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(60):
            stopped = await background.cancel(thread_id, "no more")
        assert stopped.status == "cancelled"
        assert not background.is_busy(thread_id)
        assert second.running == 0


class Held(MemoryCheckpointer):
    """Holds the commit with which a run has been accepted, once it is told to."""

    holds = False

    def __init__(self) -> None:
        super().__init__()
        self.held, self.go_on, self.cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    async def commit(self, batch: Batch) -> None:
        statuses = {one.status for one in batch.runs}
        if self.holds and "paused" in statuses:
            self.held.set()
            await self.go_on.wait()
        await super().commit(batch)
        if "cancelled" in statuses:
            self.cancelled.set()


async def test_a_task_that_is_cancelled_as_a_message_continues_it_is_released_by_then() -> None:
    first, journal = Gate(says("first")), Held()
    async with BackgroundSubAgents(journal) as background:
        family(background, {"digger": [first, says("never")]})
        new = NewTask("t", "task-00000001", "digger", "dig", {})
        thread_id = (await background.start(new)).run.thread_id
        await first.reached.wait()
        await background.send(thread_id, "more", "k")
        journal.holds = True
        first.open.set()

        async def cancel() -> None:
            assert (await background.cancel(thread_id, "no more")).status == "cancelled"
            assert not background.is_busy(thread_id)

        with anyio.fail_after(60):
            await journal.held.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(cancel)
                await journal.cancelled.wait()
                journal.go_on.set()


class Hesitant(MemoryCheckpointer):
    """Takes a moment to read a run, and another to store one."""

    def __init__(self, reads: int, writes: int) -> None:
        super().__init__()
        self.reads, self.writes = reads, writes

    async def run(self, run_id: str) -> Run | None:
        found = await super().run(run_id)
        for _ in range(self.reads):
            await anyio.lowlevel.checkpoint()
        return found

    async def commit(self, batch: Batch) -> None:
        for _ in range(self.writes if batch.runs else 0):
            await anyio.lowlevel.checkpoint()
        await super().commit(batch)


@pytest.mark.parametrize("reads", [0, 1, 4])
@pytest.mark.parametrize("writes", [0, 1, 4])
async def test_a_task_that_is_about_to_begin_can_be_cancelled(reads: int, writes: int) -> None:
    for steps in range(8):
        never = Gate(says("dug"))
        async with BackgroundSubAgents(Hesitant(reads, writes)) as background:
            family(background, {"digger": [never]})
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread_id = (await background.start(new)).run.thread_id
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(60):
                stopped = await background.cancel(thread_id, "no longer needed")
            assert stopped.status == "cancelled"
            assert never.running == 0


async def test_a_thread_that_is_rewound_past_the_start_of_a_task_starts_another(
    journal: MemoryCheckpointer,
) -> None:
    async with BackgroundSubAgents(journal) as background:
        turns = {"main": [says("", start("c1")), says("ok")], "digger": [says("dug")]}
        agent = family(background, turns)
        first = await agent.ainvoke("go", thread_id="t")
        forgotten = await view(background, first, "c1")
        history = await agent.get_state_history("t")
        (asked,) = [one for one in history if one.summary == "calls start_task"]
        await agent.fork("t", asked.id)
        second = await agent.ainvoke(None, thread_id="t")
        anew = await view(background, second, "c1")
        assert anew.task_id != forgotten.task_id
        assert [*second.state["background_tasks"]] == [anew.task_id]
        assert (await background.look(forgotten.run.thread_id)).status == "success"
        await background.delete("t")
    assert await journal.threads() == []


async def test_a_task_outlives_the_failure_of_the_run_that_started_it(
    journal: MemoryCheckpointer,
) -> None:
    gate, failures = Gate(says("dug")), [RuntimeError("broken")]

    def answer(request: ChatRequest) -> AIMessage:
        if failures:
            raise failures.pop()
        return says("I see.")

    async with BackgroundSubAgents(journal) as background:
        agent = family(background, {"main": [says("", start("c1")), answer], "digger": [gate]})
        failed = await agent.ainvoke("go", thread_id="t")
        assert failed.run.status == "failed"
        gate.open.set()
        assert (await view(background, failed, "c1")).status == "success"
        told = await agent.ainvoke("and?", thread_id="t")
    assert told.run.answer == "I see."
    assert ": success" in news(told)[0]


async def test_what_calls_of_one_answer_and_a_task_wrote_to_one_file_is_kept_thrice(
    journal: MemoryCheckpointer,
) -> None:
    def dig(text: str) -> AIMessage:
        return says("", call("w", "write_file", path="/a.txt", content=text))

    async def collect(request: ChatRequest) -> AIMessage:
        ids = [task_id(request, one) for one in ("c1", "c2")]
        await background.wait([f"t.{one}" for one in ids], 30)
        checks = [call(f"k{one}", "check_tasks", task_ids=[one]) for one in ids]
        return says("", call("m", "write_file", path="/a.txt", content="MAIN"), *checks)

    async with BackgroundSubAgents(journal) as background:
        main = [says("", start("c1", "ONE"), start("c2", "TWO")), collect, says("ok")]
        digger = [lambda request: dig(request.messages[0].text), says("dug")]
        result = await family(background, {"main": main, "digger": digger}).ainvoke(
            "go", thread_id="t"
        )
    files = {path: one.content for path, one in result.state["files"].items()}
    assert files.pop("/a.txt") == "MAIN"
    assert sorted(files.values()) == ["ONE", "TWO"]
    told = [one.text for key, one in results(result).items() if key.startswith("k")]
    assert all("Conflict: " in one for one in told)
    assert all(any(path in one for one in told) for path in files)
