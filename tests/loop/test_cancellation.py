"""Stopping a run: at once, after the step, or when its time is up."""

import itertools
import threading
import time

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import RunEnded
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.models.base import Delta
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.ports_and_waits import growing

pytestmark = pytest.mark.anyio

AT_ONCE = 1.0
"""Seconds within which a run stops, on a busy machine too. What it stops would hang for longer."""

STOPPED = {"cancel": "cancelled", "pause": "paused"}


class Work:
    """Tools that finish, hang in a task, or hang in a thread."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ended: list[str] = []
        self.entered = anyio.Event()
        self.release = threading.Event()
        self.hangs = True
        self.tools = [tool(self.step), tool(self.hang), tool(self.block), tool(self.drain)]

    async def step(self, name: str = "step") -> str:
        """Do a step."""
        self.ran.append(name)
        return f"did {name}"

    async def hang(self) -> str:
        """Hang until stopped."""
        try:
            self.entered.set()
            if self.hangs:
                await anyio.sleep_forever()
        finally:
            self.ended.append("hang")
        self.ran.append("hang")
        return "did hang"

    def block(self) -> str:
        """Hang in a thread."""
        anyio.from_thread.run_sync(self.entered.set)
        self.release.wait(5)
        self.ended.append("block")
        return "too late"

    async def drain(self, runtime: ToolRuntime) -> str:
        """Ask the run to stop after this step."""
        self.ran.append("drain")
        runtime.request_drain()
        return "draining"


class Stop:
    """Runs an agent until something is under way, then stops it and measures the time."""

    def __init__(self, agent, started: anyio.Event, how: str = "cancel") -> None:
        self.agent, self.started, self.how = agent, started, how
        self.seconds = -1.0

    async def run(self):
        control, results = RunControl(), []

        async def work() -> None:
            options = RunOptions(control=control, run_id="r")
            results.append(await self.agent.ainvoke("go", thread_id="t", options=options))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                await self.started.wait()
                await anyio.wait_all_tasks_blocked()
                began = time.perf_counter()
                getattr(control, self.how)("enough")
        self.seconds = time.perf_counter() - began
        assert self.seconds < AT_ONCE
        return results[0]


def told(result) -> list[tuple[str, str]]:
    return [
        (one.tool_call_id, one.status)
        for one in result.state["messages"]
        if isinstance(one, ToolMessage)
    ]


@pytest.mark.parametrize("how", ["cancel", "pause"])
async def test_stopping_ends_the_models_stream_at_once(how):
    closed: list[bool] = []

    class Slow(Turns):
        async def stream(self, request):
            try:
                yield Delta("text", "thinking")
                self.asked.set()
                await anyio.sleep_forever()
            finally:
                closed.append(True)

    journal, model = MemoryCheckpointer(), Slow()
    stop = Stop(create_agent(model, checkpointer=journal), model.asked, how)
    result = await stop.run()
    assert closed == [True]
    assert (result.run.status, result.run.reason) == (STOPPED[how], "enough")
    agent = create_agent(Turns(says("at last")), checkpointer=journal)
    if how == "pause":
        assert (await agent.aresume("r")).run.answer == "at last"
    else:
        with pytest.raises(RunEnded, match="cancelled"):
            await agent.aresume("r")
        assert (await agent.ainvoke("again", thread_id="t")).run.answer == "at last"


@pytest.mark.parametrize("hanging", ["hang", "block"])
@pytest.mark.parametrize("how", ["cancel", "pause"])
async def test_stopping_ends_running_tools_at_once_and_keeps_what_finished(hanging, how):
    work = Work()
    turns = (says("", call("1", "step"), call("2", hanging), call("3", "step")), says("done"))
    agent = create_agent(Turns(*turns), work.tools)
    result = await Stop(agent, work.entered, how).run()
    work.release.set()
    assert result.run.status == STOPPED[how]
    assert work.ran == ["step", "step"]
    assert (await agent.get_state("t")).finished_calls == ("1", "3")
    work.hangs = False
    if how == "cancel":
        result = await agent.ainvoke("and now?", thread_id="t")
        assert told(result) == [("1", "success"), ("2", "error"), ("3", "success")]
    else:
        result = await agent.aresume("r")
        assert told(result) == [("1", "success"), ("2", "success"), ("3", "success")]
    assert result.run.status == "done"
    assert work.ran.count("step") == 2


async def test_a_tool_below_sync_wrappers_and_a_subagent_stops_at_once():
    class Sync(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            return handler(request)

    work, journal = Work(), MemoryCheckpointer()
    child = create_agent(
        Turns(says("", call("c1", "step"), call("c2", "hang")), says("report")), work.tools,
        middleware=[Sync()], checkpointer=journal, name="child",
    )  # fmt: skip
    agent = parent_of(child, journal, middleware=[Sync()])
    result = await Stop(agent, work.entered, "pause").run()
    assert (result.run.status, work.ended) == ("paused", ["hang"])
    work.hangs = False
    assert (await agent.aresume("r")).run.status == "done"
    assert work.ran == ["step", "hang"]


def parent_of(child, journal, turns=None, **options):
    @tool
    async def task(runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, "do it")
        return ToolResult(result.failed or result.text, writes=result.writes)

    turns = turns or (says("", call("p1", "task")), says("done"))
    return create_agent(Turns(*turns), [task], checkpointer=journal, **options)


async def test_the_late_result_of_a_thread_is_thrown_away():
    work = Work()
    agent = create_agent(Turns(says("", call("1", "block")), says("a"), says("b")), work.tools)
    await Stop(agent, work.entered).run()
    work.release.set()
    result = await agent.ainvoke("well?", thread_id="t")
    with anyio.fail_after(5):
        while not work.ended:
            await anyio.lowlevel.checkpoint()
    assert told(result) == [("1", "error")]
    assert told(await agent.ainvoke("and?", thread_id="t")) == [("1", "error")]


class Doubtful(AgentMiddleware):
    """Asks for a drain in one of its hooks."""

    def __init__(self, hook: str) -> None:
        async def drain(state, runtime):
            if not asked:
                asked.append(hook)
                runtime.request_drain()

        asked: list[str] = []
        setattr(self, hook, drain)


@pytest.mark.parametrize(
    ("hook", "ran"),
    [("before_agent", []), ("before_model", ["step"]), ("after_model", ["step"])],
)
async def test_a_drain_from_a_hook_finishes_the_step_and_the_run_can_go_on(hook, ran):
    work, journal = Work(), MemoryCheckpointer()
    turns = (says("", call("1", "step")), says("", call("2", "step")), says("done"))
    agent = create_agent(
        Turns(*turns), work.tools, middleware=[Doubtful(hook)], checkpointer=journal
    )
    result = await agent.ainvoke("go")
    assert (result.run.status, result.stop_reason, result.interrupts) == ("paused", "paused", ())
    assert "asked to pause" in str(result.run.reason)
    reborn = create_agent(Turns(*turns), work.tools, checkpointer=journal)
    done = await reborn.aresume(result.run.id)
    assert done.run.status == "done"
    assert work.ran == ["step", "step"]
    assert told(done) == [("1", "success"), ("2", "success")]


async def test_a_drain_from_a_tool_lets_its_siblings_finish_and_stores_the_step():
    work, journal = Work(), MemoryCheckpointer()
    turns = (says("", call("1", "drain"), call("2", "step")), says("done"))
    agent = create_agent(Turns(*turns), work.tools, checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t")
    assert result.run.status == "paused"
    state = await agent.get_state("t")
    assert (state.checkpoint.author, state.next) == ("tools", "model")
    assert (await agent.aresume(result.run.id)).run.answer == "done"
    assert sorted(work.ran) == ["drain", "step"]


async def test_a_drain_from_outside_waits_for_the_step_and_a_new_message_may_come_instead():
    work = Work()
    control, release = RunControl(), anyio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        work.entered.set()
        await release.wait()
        return "held"

    agent = create_agent(Turns(says("", call("1", "hold")), says("ok")), [hold])
    results = []

    async def run() -> None:
        options = RunOptions(control=control, run_id="r")
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await work.entered.wait()
            control.drain()
            await anyio.wait_all_tasks_blocked()
            assert results == []
            release.set()
    assert results[0].run.status == "paused"
    result = await agent.ainvoke("go on", thread_id="t")
    assert told(result) == [("1", "success")]
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume("r")


async def test_a_run_that_is_handed_over_stays_running_and_belongs_to_nobody():
    journal = MemoryCheckpointer()

    def build():
        turns = (says("", call("1", "hold")), says("done"))
        return create_agent(Turns(*turns), [hold], checkpointer=journal)

    control, entered, release = RunControl(), anyio.Event(), anyio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        entered.set()
        await release.wait()
        return "held"

    async def run() -> None:
        options = RunOptions(control=control, run_id="r", owner="here")
        await build().ainvoke("go", options=options)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await entered.wait()
            control.hand_over("the server stops")
            release.set()
    left = await journal.run("r")
    assert left is not None
    assert (left.status, left.owner, left.reason) == ("running", None, "the server stops")
    done = await build().aresume("r", options=RunOptions(owner="there"))
    assert (done.run.status, done.run.owner, done.run.reason) == ("done", "there", None)
    assert told(done) == [("1", "success")]


async def test_a_drain_before_the_start_accepts_the_input_and_nothing_else():
    control = RunControl()
    control.drain()
    model = Turns(says("hello"))
    agent = create_agent(model)
    result = await agent.ainvoke("go", options=RunOptions(control=control))
    assert (result.run.status, model.requests) == ("paused", [])
    assert (await agent.aresume(result.run.id)).run.answer == "hello"


async def test_a_drain_in_the_last_step_ends_the_run_as_usual():
    class Late(AgentMiddleware):
        def after_agent(self, state, runtime):
            runtime.request_drain()

    result = await create_agent(Turns(says("bye")), middleware=[Late()]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "bye")


async def test_a_drain_beside_a_question_waits_for_the_answer():
    work = Work()
    turns = (says("", call("1", "drain"), call("2", "step")), says("done"))
    agent = create_agent(Turns(*turns), work.tools, policy=Policy((Rule("ask", "step"),)))
    waiting = await agent.ainvoke("go")
    assert waiting.run.status == "needs_approval"
    answers = {waiting.interrupts[0].id: {"decision": "approve"}}
    assert (await agent.aresume(waiting.run.id, answers)).run.status == "done"
    assert work.ran == ["drain", "step"]


async def test_a_drain_inside_a_subagent_pauses_both_and_both_go_on():
    work, journal = Work(), MemoryCheckpointer()
    child_turns = (says("", call("c1", "drain"), call("c2", "step")), says("report"))

    def build():
        child = create_agent(Turns(*child_turns), work.tools, checkpointer=journal, name="child")
        return parent_of(child, journal)

    result = await build().ainvoke("go", thread_id="t")
    assert (result.run.status, result.interrupts) == ("paused", ())
    assert sorted(work.ran) == ["drain", "step"]
    done = await build().aresume(result.run.id)
    assert done.run.status == "done"
    assert sorted(work.ran) == ["drain", "step"]
    assert [one.text for one in done.state["messages"]] == ["go", "", "report", "done"]


async def test_a_deadline_stops_tools_keeps_what_finished_and_more_time_goes_on():
    turns = (says("", call("1", "step"), call("2", "hang")), says("done"))
    for seconds in growing(0.25):  # time for all that comes before it hangs
        work = Work()
        agent = create_agent(Turns(*turns), work.tools)
        limits = Limits(seconds=seconds, model_calls=1)
        result = await agent.ainvoke("go", thread_id="t", options=RunOptions(limits=limits))
        if work.entered.is_set() and (await agent.get_state("t")).finished_calls:
            break
    assert (result.run.status, result.stop_reason) == ("failed", "seconds")
    assert f"{seconds:g} seconds allowed" in str(result.run.reason)
    assert (await agent.get_state("t")).finished_calls == ("1",)
    again = await agent.aresume(result.run.id, options=RunOptions(limits=limits))
    assert again.stop_reason == "seconds"
    work.hangs = False
    more = await agent.aresume(result.run.id, options=RunOptions(limits=Limits(seconds=60)))
    assert (more.run.status, work.ran) == ("done", ["step", "hang"])


async def test_a_deadline_stops_the_model_and_the_agents_below():
    journal, model = MemoryCheckpointer(), Turns(says("never"))
    model.gate = anyio.Event()
    agent = parent_of(create_agent(model, checkpointer=journal, name="child"), journal)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(seconds=0.03)))
    assert result.stop_reason == "seconds"
    model.gate.set()
    assert (await agent.aresume(result.run.id, options=RunOptions(limits=Limits()))).run.answer


@pytest.mark.parametrize("how", ["cancel", "pause"])
@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_stopped_at_each_await_point_says_the_same_here_and_in_the_journal(
    how, resumed
):
    """And it goes on, or makes way, from every one of them."""
    turns = (
        says("", call("1", "step", name="1"), call("2", "step", name="2")),
        says("", call("3", "step", name="3")),
        says("done"),
    )
    for ticks in itertools.count():
        work, journal = Work(), MemoryCheckpointer()
        agent = create_agent(Turns(*turns), work.tools, checkpointer=journal)
        if resumed:
            before = RunControl()
            before.drain()
            options = RunOptions(run_id="r", control=before)
            await agent.ainvoke("go", thread_id="t", options=options)
        control, results = RunControl(), []
        options = RunOptions(run_id="r", control=control)

        async def run(agent=agent, options=options, results=results) -> None:
            begin = agent.aresume("r", options=options) if resumed else agent.ainvoke(
                "go", thread_id="t", options=options
            )  # fmt: skip
            results.append(await begin)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
            getattr(control, how)("enough")
        (result,) = results
        kept = await journal.run("r")
        assert kept is not None
        assert kept.status == result.run.status, ticks
        if kept.status == "done":
            break
        if kept.status == "paused":
            result = await agent.aresume("r")
        else:
            result = await agent.ainvoke("again", thread_id="t")
        assert result.run.status == "done"
        assert isinstance(result.state["messages"][-1], AIMessage)
        assert len(work.ran) == len(set(work.ran)), ticks
    assert ticks > 3
