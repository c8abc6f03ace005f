"""Background tasks hold under deleted threads, failing journals, copies, and several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.state import FileData
from deep_agent_mcp.harness.checkpoint.base import Interrupt, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, ModelError, ToolError
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.background import task_runner
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.harness.subagents.background.three_way_merge import merge_changes
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.subagents.background.support import (
    DIGGER,
    Cast,
    Gate,
    check,
    family,
    news,
    results,
    start,
    task_id,
    task_in,
    view,
)

pytestmark = pytest.mark.anyio


async def test_a_subagent_below_the_main_agent_starts_no_tasks(
    journal: MemoryCheckpointer,
) -> None:
    below = Cast(mid=[says("", start("s1")), says("told")], digger=[says("dug")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            mid = family(background, below, name="mid")
            top = family_of(mid, journal)
            result = await top.ainvoke("go", thread_id="t")
            found = await journal.find_runs()
    assert result.run.status == "done"
    assert [one.agent for one in found] == ["main"]
    (refused,) = [
        one.text
        for request in below.asked_by("mid")
        for one in request.messages
        if one.type == "tool"
    ]
    assert "only the main agent has background tasks" in refused


def family_of(mid: Any, journal: MemoryCheckpointer) -> Any:
    from tests.subagents.family import family as plain_family
    from tests.subagents.family import task

    turns: Any = {"main": [says("", task("c1", "x", "mid")), says("End.")]}
    return plain_family(turns, subagents=[CompiledSubAgent("mid", "M", mid)], checkpointer=journal)


async def test_a_fork_starts_no_tasks_and_hears_none(journal: MemoryCheckpointer) -> None:
    twin = SubAgent("twin", "Forks.", mode="fork")

    class Turns(Cast):
        async def stream(self, request: Any) -> Any:
            self.requests.append(request)
            if request.agent == "twin":
                told = [one for one in request.messages if one.type == "tool"]
                yield says("sorry") if "only the main" in told[-1].text else says("", start("s1"))
                return
            async for one in super().stream(request):
                yield one

    forking = call("f", "task", description="try", subagent_type="twin")
    turns = Turns(main=[says("", forking), says("End.")], digger=[says("dug")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, turns, subagents=[DIGGER, twin])
            result = await agent.ainvoke("go", thread_id="t")
            found = await journal.find_runs()
    assert results(result)["f"].text.startswith("sorry")
    assert [one.agent for one in found] == ["main"]


async def test_a_ready_agent_works_under_the_name_that_it_is_registered_with(
    journal: MemoryCheckpointer,
) -> None:
    bard = create_agent(Cast(bard=[says("Roses.")]), name="bard")
    main = [says("", start("c1", "A line.", "poet")), lambda r: check(r, "c1"), says("End.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            poet = CompiledSubAgent("poet", "Rhymes.", bard)
            agent = family(background, {"main": main}, subagents=[poet])
            result = await agent.ainvoke("go", thread_id="t")
    assert results(result)["check"].text.endswith("Roses.")


async def test_what_a_living_process_has_in_line_is_left_to_it(
    journal: MemoryCheckpointer,
) -> None:
    first, second = Gate(says("one")), Gate(says("two"))

    async def dig(request: Any) -> Any:
        return await (first if "first" in request.messages[0].text else second)(request)

    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=1) as one:
            family(one, {"digger": [dig]})
            await one.start(NewTask("t", "task-00000001", "digger", "first", {}))
            await first.reached.wait()
            new = NewTask("t", "task-00000002", "digger", "second", {})
            assert (await one.start(new)).status == "pending"
            async with BackgroundSubAgents(journal, max_running=1) as other:
                family(other, {"digger": [dig]})
                (seen,) = await other.wait(["t.task-00000002"], 1)
                assert seen.status == "pending"
                assert not second.reached.is_set()
                first.open.set()
                second.open.set()
                (seen,) = await other.wait(["t.task-00000002"], 20)
    assert (seen.status, seen.run.attempt, second.most) == ("success", 2, 1)


async def test_leaving_ends_a_wait_and_a_cancel(journal: MemoryCheckpointer) -> None:
    stopping, waited = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take a while to stop."""
        try:
            stopping.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await waited.wait()
        return ""

    thread = "t.task-00000001"
    background = BackgroundSubAgents(journal)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await background.wait([thread], 600)
                waited.set()

            async with background:
                family(background, {"digger": [says("", call("s", "slow")), says("x")]}, [slow])
                await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
                await stopping.wait()
                group.start_soon(wait)
                group.start_soon(background.cancel, thread, "no longer needed")
                await anyio.wait_all_tasks_blocked()
    assert (await background.look(thread)).status == "cancelled"


async def test_the_model_is_told_of_every_ending_of_a_task(journal: MemoryCheckpointer) -> None:
    tries: list[int] = []

    def dig(request: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ModelError("overloaded")
        return says("gold at last")

    main = [says("", start("c1")), says("Begun."), says("Noted."), says("Good."), says("Quiet.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [dig]})
            first = await agent.ainvoke("go", thread_id="t")
            failed = await view(background, first, "c1")
            second = await agent.ainvoke("news?", thread_id="t")
            await background.answer(failed.run.id, {})
            await view(background, first, "c1")
            third = await agent.ainvoke("news?", thread_id="t")
            fourth = await agent.ainvoke("news?", thread_id="t")
    assert [": error" in one for one in news(second)] == [True]
    assert [": success" in one for one in news(third)] == [False, True]
    assert news(fourth) == news(third)


async def test_a_deleted_task_does_not_hide_the_others(journal: MemoryCheckpointer) -> None:
    looking = says("", call("k", "check_tasks"))
    main = [says("", start("c1"), start("c2")), says("Begun."), looking, says("Seen.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("clay")]})
            first = await agent.ainvoke("go", thread_id="t")
            gone = await view(background, first, "c1")
            await view(background, first, "c2")
            await journal.delete_thread(gone.run.thread_id)
            second = await agent.ainvoke("news?", thread_id="t")
    assert "is gone" in "".join(news(second))
    shown = results(second)["k"]
    assert shown.status == "success"
    assert shown.text.endswith("clay")
    assert gone.task_id not in shown.text


async def test_a_task_asked_for_by_id_that_was_deleted_has_a_line_that_says_so(
    journal: MemoryCheckpointer,
) -> None:
    main = [
        says("", start("c1"), start("c2")),
        says("Begun."),
        lambda r: check(r, "c1", "c2"),
        says("Seen."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("clay")]})
            first = await agent.ainvoke("go", thread_id="t")
            gone = await view(background, first, "c1")
            await journal.delete_thread(gone.run.thread_id)
            second = await agent.ainvoke("news?", thread_id="t")
    text = results(second)["check"].text
    assert f"{gone.task_id} is gone" in text
    assert text.endswith("clay")


class Failing(MemoryCheckpointer):
    """A journal that cannot be read some times."""

    failures = 0

    async def run(self, run_id: str) -> Run | None:
        if self.failures:
            self.failures -= 1
            raise CheckpointError("the disk is busy")
        return await super().run(run_id)


async def test_a_journal_that_fails_for_a_moment_strands_no_task() -> None:
    journal = Failing()
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("gold")]})
            journal.failures = 2
            new = NewTask("t", "task-00000001", "digger", "dig", {})
            thread = (await background.start(new)).run.thread_id
            while (seen := await background.look(thread)).status != "success":
                await background._tasks.next_change(thread).wait()  # nobody asks for it again
    assert seen.run.answer == "gold"


class FailingAtAnEnd(MemoryCheckpointer):
    """A journal that cannot be listed once a run has ended, one time."""

    failed = False

    async def find_runs(self, **wanted: Any) -> Sequence[Run]:
        found = await super().find_runs(**wanted)
        if not self.failed and any(one.status in ("done", "failed") for one in found):
            self.failed = True
            raise CheckpointError("the disk is busy")
        return found


@pytest.mark.parametrize("end", [says("gold"), ModelError("no luck")])
async def test_a_message_to_a_task_that_ends_while_its_journal_fails_is_delivered(
    end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "POLL_SECONDS", 0.01)
    reached, sent = anyio.Event(), anyio.Event()

    async def dig(request: Any) -> Any:
        if len(request.messages) > 1:
            return says(request.messages[-1].text)
        reached.set()
        await sent.wait()
        if isinstance(end, Exception):
            raise end
        return end

    journal, thread = FailingAtAnEnd(), "t.task-00000001"
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [dig, dig]})
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            await reached.wait()
            await background.send(thread, "deeper", "k1")
            sent.set()
            while not journal.failed or (await background.look(thread)).run.answer != "deeper":
                await background._tasks.next_change(thread).wait()


class FailingAtAnAnswer(MemoryCheckpointer):
    """A journal in which the answer comes as soon as a run asks, and that then fails one time."""

    background: BackgroundSubAgents
    asked = failing = False

    async def run(self, run_id: str) -> Run | None:
        found = await super().run(run_id)
        if found is not None and found.status == "needs_approval" and not self.asked:
            self.asked = True
            (question,) = await self.interrupts(run_id)
            await self.background.answer(run_id, {question.id: {"decision": "approve"}})
            self.failing = True
        return found

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        if self.failing:
            self.failing = False
            raise CheckpointError("the disk is busy")
        return await super().interrupts(run_id)


async def test_a_task_that_is_answered_while_its_journal_fails_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_runner, "POLL_SECONDS", 0.01)
    journal, thread = FailingAtAnAnswer(), "t.task-00000001"
    turns = {"digger": [says("", call("a", "ls", path="/")), says("gold")]}
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            journal.background = background
            family(background, turns, policy=Policy([Rule("ask", tool="ls")]))
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            while (seen := await background.look(thread)).status != "success":
                await background._tasks.next_change(thread).wait()
    assert seen.run.answer == "gold"
    assert journal.asked


async def test_a_pending_task_whose_subagent_is_gone_fails_with_a_reason(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))
    known = {"digger": DIGGER, "hewer": SubAgent("hewer", "Hews.", "You hew.")}
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=1) as background:
            agent = family(background, {"digger": [gate]}, subagents=[*known.values()])
            find = background.agent
            assert agent is not None
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            await gate.reached.wait()
            await background.start(NewTask("t", "task-00000002", "hewer", "hew", {}))

            def without(name: str) -> Any:
                if name == "hewer":
                    raise ToolError("there is no subagent 'hewer'")
                return find(name)

            background._runner._agents = without
            gate.open.set()
            (seen,) = await background.wait(["t.task-00000002"], 20)
    assert seen.status == "error"
    assert "no subagent 'hewer'" in (seen.run.reason or "")


async def test_redaction_leaves_the_list_of_tasks_alone(journal: MemoryCheckpointer) -> None:
    everywhere = dict.fromkeys(("apply_to_input", "apply_to_output", "apply_to_tool_results"), True)
    rules = PIIMiddleware("hexid", detector=r"[0-9a-f]{8,}", strategy="redact", **everywhere)
    main = [says("", start("c1")), says("Begun."), says("", call("k", "check_tasks")), says("End.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("dug")]}, middleware=[rules])
            first = await agent.ainvoke("go", thread_id="t")
            ((known, task),) = first.state["background_tasks"].items()
            await background.wait([f"t.{known}"], 20)
            second = await agent.ainvoke("and?", thread_id="t")
    assert task["thread_id"] == f"t.{known}"
    assert results(second)["k"].text.endswith("dug")


async def test_a_copy_of_a_thread_does_not_control_the_tasks_of_the_original(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))
    main = [
        says("", start("c1")),
        says("Begun."),
        lambda r: says("", call("k", "cancel_task", task_id=task_id(r, "c1"))),
        says("End."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            first = await agent.ainvoke("go", thread_id="t")
            await gate.reached.wait()
            await journal.copy_thread("t", "u")
            copy = await agent.ainvoke("stop", thread_id="u")
            seen = await background.look(f"t.{task_in(first.state['messages'], 'c1')}")
            assert seen.status == "running"
            gate.open.set()
    assert results(copy)["k"].status == "error"
    assert "belongs to the thread" in results(copy)["k"].text


async def test_a_copy_that_waits_does_not_go_on_with_what_the_original_left(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))
    looking = [lambda r: check(r, "c1", seconds=0.1), says("Seen.")]
    turns = {"main": [says("", start("c1")), says("Begun."), *looking], "digger": [gate]}
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as other:
            agent = family(other, turns)
            async with BackgroundSubAgents(journal) as background:
                first = await family(background, turns).ainvoke("go", thread_id="t")
                await gate.reached.wait()
            gate.open.set()
            (thread,) = (one["thread_id"] for one in first.state["background_tasks"].values())
            await journal.copy_thread("t", "u")
            copy = await agent.ainvoke("wait", thread_id="u")
            assert ": pending" in results(copy)["check"].text
            assert not other.is_busy(thread)
            await agent.ainvoke("wait", thread_id="t")
            (seen,) = await other.wait([thread], 20)
    assert seen.status == "success"


async def test_messages_open_no_more_tasks_than_may_be_open(journal: MemoryCheckpointer) -> None:
    gate = Gate(says("again"))
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_open=1) as background:
            family(background, {"digger": [says("dug"), gate]})
            threads = [f"t.task-{number:08x}" for number in range(2)]
            for thread in threads:
                new = NewTask("t", thread.partition(".")[2], "digger", "dig", {})
                await background.start(new)
                await background.wait([thread], 20)
            await background.send(threads[0], "more", "k0")
            with pytest.raises(ToolError, match="no more are allowed"):
                await background.send(threads[1], "more", "k1")


def test_what_is_said_of_merged_files_is_bounded() -> None:
    file = FileData("x")
    many = {f"/out/{number:05}.txt": file for number in range(200)}
    taken = merge_changes({}, many, {}, "/conflicts/task-1").describe("task-1")
    assert taken.endswith("and 180 more.")
    assert len(taken) < 1_000
    kept = merge_changes({}, many, dict.fromkeys(many, FileData("y")), "/conflicts/task-1")
    assert kept.describe("task-1").endswith("180 more.")
    assert len(kept.describe("task-1")) < 5_000


async def test_a_task_that_is_answered_while_another_call_is_at_work_goes_on(
    journal: MemoryCheckpointer,
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take time."""
        begun.set()
        await go_on.wait()
        return "slow is done"

    @tool
    def blast() -> str:
        """Make a hole."""
        return "a hole"

    cast = Cast(
        main=[says("", start("c1")), says("Begun.")],
        digger=[says("", call("s", "slow"), call("b", "blast")), says("dug")],
    )
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            main = family(background, cast, [slow, blast], interrupt_on={"blast": True})
            result = await main.ainvoke("go", thread_id="t")
            await begun.wait()
            (run,) = [one for one in await journal.find_runs() if one.agent == "digger"]
            while not (asked := await journal.interrupts(run.id)):
                await anyio.lowlevel.checkpoint()
            await background.answer(run.id, {asked[0].id: {"decision": "approve"}})
            go_on.set()
            ended = await view(background, result, "c1")
    assert ended.status == "success"
