"""The moment in which a task stops: what is said of it, and what comes in then, is not lost."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.subagents.background.support import (
    Gate,
    check,
    family,
    news,
    results,
    start,
    task_in,
    view,
)

pytestmark = pytest.mark.anyio


class Slow(AgentMiddleware):
    """Takes its time to clear up after a run that is done."""

    def __init__(self) -> None:
        self.clearing, self.cleared = anyio.Event(), anyio.Event()

    async def run_stopped(self, run: Run) -> None:
        if run.status == "done":
            self.clearing.set()
            await self.cleared.wait()


async def test_a_task_that_has_ended_is_told_of_while_it_is_cleared_up_after(
    journal: MemoryCheckpointer,
) -> None:
    slow = Slow()
    digger = SubAgent("digger", "Digs.", "You dig.", middleware=[slow])
    main = [says("", start("c1")), says("Begun."), says("Good.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("dug")]}, subagents=[digger])
            first = await agent.ainvoke("go", thread_id="t")
            await slow.clearing.wait()
            second = await agent.ainvoke("news?", thread_id="t")
            thread = f"t.{task_in(first.state['messages'], 'c1')}"
            (during,) = await background.wait([thread], 0)
            assert background.is_busy(thread)
            slow.cleared.set()
            await background.wait([thread], 20)
            assert not background.is_busy(thread)
    assert [": success" in one for one in news(second)] == [True]
    assert during.status == "success"


async def test_a_task_that_ended_before_it_read_a_message_is_not_told_to_be_done(
    journal: MemoryCheckpointer,
) -> None:
    slow, second = Slow(), Gate(says("deeper"))
    digger = SubAgent("digger", "Digs.", "You dig.", middleware=[slow])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("dug"), second]}, subagents=[digger])
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread = (await background.start(new)).run.thread_id
            await slow.clearing.wait()
            sent = await background.send(thread, "Deeper!", "k")
            assert sent.status == "running"
            slow.cleared.set()
            second.open.set()
            (seen,) = await background.wait([thread], 20)
    assert (seen.status, seen.run.answer) == ("success", "deeper")


@pytest.mark.parametrize(
    ("turns", "status", "said"),
    [
        (("Half ", "a vein."), "success", "Half a vein."),
        (("a ", "a ", "a ", "a "), "error", "cut off 4 times (max_tokens)"),
        (("", ""), "error", "answer was empty"),
        (("", "Gold."), "success", "Gold."),
    ],
)
async def test_a_task_whose_answer_is_cut_off_or_empty_goes_on_or_is_no_success(
    turns: tuple[str, ...], status: str, said: str, journal: MemoryCheckpointer
) -> None:
    cut = [replace(says(one), stop_reason="max_tokens" if one else None) for one in turns]
    if status == "success":
        cut[-1] = says(turns[-1])
    main = [
        says("", start("c1")),
        says("Waiting."),
        lambda request: check(request, "c1"),
        says("Good."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": cut})
            first = await agent.ainvoke("go", thread_id="t")
            assert (await view(background, first, "c1")).status == status
            second = await agent.ainvoke("and?", thread_id="t")
    assert f": {status}" in news(second)[0]
    told = results(second)["check"].text
    assert said in told
    cut_off = "What it said until then:\na a a a \n\n[The answer was cut off here.]"
    assert (cut_off in told) == ("max_tokens" in said)


async def test_cancelling_what_is_just_done_leaves_it_done(journal: MemoryCheckpointer) -> None:
    slow = Slow()
    digger = SubAgent("digger", "Digs.", "You dig.", middleware=[slow])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("gold")]}, subagents=[digger])
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread = (await background.start(new)).run.thread_id
            await slow.clearing.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(background.cancel, thread, "no longer needed")
                await anyio.wait_all_tasks_blocked()
                slow.cleared.set()
            seen = await background.look(thread)
            assert not background.is_busy(thread)
    assert (seen.status, seen.run.answer) == ("success", "gold")


class Held(MemoryCheckpointer):
    """A journal that holds back those who list the runs of a thread while `hold` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self.held, self.go_on = anyio.Event(), anyio.Event()

    async def find_runs(self, **wanted: object) -> list[Run]:  # type: ignore[override]
        if self.hold and wanted.get("thread_id"):
            self.hold = False
            self.held.set()
            await self.go_on.wait()
        return [*await super().find_runs(**wanted)]  # type: ignore[arg-type]


async def test_an_answer_that_comes_in_the_moment_in_which_a_task_is_let_go_of_counts() -> None:
    journal = Held()

    @tool
    def blast() -> str:
        """Blast."""
        journal.hold = True  # from now on only whoever lets go of the task lists its runs
        return "boom"

    @tool
    def dig() -> str:
        """Dig."""
        return "hole"

    turns = [says("", call("b", "blast")), says("", call("d", "dig")), says("dug")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            asking = {"dig": True}
            family(background, {"digger": turns}, [blast, dig], interrupt_on=asking)
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread = (await background.start(new)).run.thread_id
            await journal.held.wait()
            (run,) = await journal.find_runs(thread_id=thread)
            (question,) = await journal.interrupts(run.id)
            async with anyio.create_task_group() as group:
                answers = {question.id: {"decision": "approve"}}
                group.start_soon(background.answer, run.id, answers)
                await anyio.wait_all_tasks_blocked()
                journal.go_on.set()
            (seen,) = await background.wait([thread], 20)
    assert (seen.status, seen.run.answer) == ("success", "dug")


async def test_a_message_to_a_run_that_others_carry_is_read_when_they_are_done(
    journal: MemoryCheckpointer,
) -> None:
    @tool
    def blast() -> str:
        """Blast."""
        return "boom"

    last = Gate(says("dug"))
    turns = [says("", call("b", "blast")), last, says("deeper")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": turns}, [blast], interrupt_on={"blast": True})
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread = (await background.start(new)).run.thread_id
            (asking,) = await background.wait([thread], 20)
            answers = {asking.questions[0].id: {"decision": "approve"}}
            async with anyio.create_task_group() as group:
                group.start_soon(background.agent("digger").aresume, asking.run.id, answers)
                await last.reached.wait()
                await background.send(thread, "Deeper!", "k")
                last.open.set()
            background.thread_changed(thread)
            while (seen := await background.look(thread)).run.answer != "deeper":
                await background._tasks.next_change(thread).wait()
    assert seen.status == "success"
