"""Pauses, crashes, cancellation, forks: what was committed is enough to go on."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import (
    InvalidAnswer,
    ModelError,
    RunEnded,
    ThreadBusy,
    UnknownCheckpoint,
    UnknownInterrupt,
    UnknownRun,
    UnknownThread,
)
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Work:
    """Tools whose runs are counted, one of which can be held."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.held = anyio.Event()
        self.entered = anyio.Event()

    @property
    def tools(self):
        @tool
        async def step(name: str) -> str:
            """Do a step."""
            self.ran.append(name)
            return f"did {name}"

        @tool
        async def hold(name: str) -> str:
            """Do a step once released."""
            self.entered.set()
            await self.held.wait()
            self.ran.append(name)
            return f"did {name}"

        @tool
        async def ask(question: str, runtime: ToolRuntime) -> str:
            """Ask the user."""
            return "they said " + runtime.interrupt(question)

        return [step, hold, ask]


def texts(state) -> list[str]:
    return [one.text for one in state["messages"]]


async def test_after_a_crash_only_unfinished_calls_run_again():
    work, journal = Work(), MemoryCheckpointer()
    turns = (says("", call("1", "step", name="a"), call("2", "hold", name="b")), says("done"))
    agent = create_agent(Turns(*turns), work.tools, checkpointer=journal)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
            await work.entered.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert work.ran == ["a"]
    (run,) = await journal.find_runs(thread_id="t")
    assert run.status == "running"
    work.held.set()
    reborn = create_agent(Turns(*turns), work.tools, checkpointer=journal)
    snapshot = await reborn.get_state("t")
    assert snapshot.finished_calls == ("1",)
    result = await reborn.aresume(run.id)
    assert work.ran == ["a", "b"]
    assert result.run.status == "done"
    assert texts(result.state) == ["go", "", "did a", "did b", "done"]


async def test_cancelling_through_the_control_is_recorded_and_leaves_the_thread_usable():
    work = Work()
    turns = Turns(says("", call("1", "step", name="a"), call("2", "hold", name="b")), says("hi"))
    agent = create_agent(turns, work.tools)
    control = RunControl()
    results = []

    async def run():
        options = RunOptions(control=control)
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await work.entered.wait()
            control.cancel("the user stopped it")
    assert results[0].run.status == "cancelled"
    assert results[0].run.reason == "the user stopped it"
    with pytest.raises(RunEnded):
        await agent.aresume(results[0].run.id)
    result = await agent.ainvoke("hello?", thread_id="t")
    assert result.run.status == "done"
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.tool_call_id for one in told] == ["1", "2"]
    assert told[0].text == "did a"
    assert told[1].status == "error"


async def test_questions_are_answered_one_at_a_time_in_another_process():
    work, journal = Work(), MemoryCheckpointer()
    turns = (
        says("", call("1", "ask", question="A?"), call("2", "step", name="x"),
             call("3", "ask", question="B?")),
        says("fin"),
    )  # fmt: skip
    first = await create_agent(Turns(*turns), work.tools, checkpointer=journal).ainvoke("go")
    assert first.run.status == "needs_approval"
    assert [one.message for one in first.interrupts] == ["A?", "B?"]
    assert [one.path for one in first.interrupts] == [("agent", "1"), ("agent", "3")]
    other = create_agent(Turns(*turns), work.tools, checkpointer=journal)
    second = await other.aresume(first.run.id, {first.interrupts[1].id: "bee"})
    assert second.run.status == "needs_approval"
    assert [one.id for one in second.interrupts] == [first.interrupts[0].id]
    third = await other.aresume(first.run.id, {first.interrupts[0].id: "ay"})
    assert third.run.status == "done"
    assert texts(third.state)[2:5] == ["they said ay", "did x", "they said bee"]
    assert work.ran == ["x"]


async def test_wrong_answers_are_refused_and_not_stored():
    work = Work()
    agent = create_agent(
        Turns(says("", call("1", "step", name="a")), says("ok")),
        work.tools,
        policy=Policy((Rule("ask", "step"),)),
    )
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    with pytest.raises(UnknownInterrupt, match=question.id):
        await agent.aresume(waiting.run.id, {"int_nope": {"decision": "approve"}})
    with pytest.raises(InvalidAnswer, match="maybe"):
        await agent.aresume(waiting.run.id, {question.id: {"decision": "maybe"}})
    with pytest.raises(UnknownRun):
        await agent.aresume("run_nope")
    assert work.ran == []
    result = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert work.ran == ["a"]
    assert result.run.status == "done"


async def test_an_answer_given_while_a_sibling_still_runs_is_picked_up():
    work = Work()
    turns = Turns(says("", call("1", "ask", question="A?"), call("2", "hold", name="b")), says("k"))
    agent = create_agent(turns, work.tools)
    results = []

    async def run():
        options = RunOptions(run_id="run_1")
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await work.entered.wait()
            await anyio.wait_all_tasks_blocked()
            (question,) = await agent.checkpointer.interrupts("run_1")
            await agent.answer("run_1", {question.id: "now"})
            work.held.set()
    assert results[0].run.status == "done"
    assert "they said now" in texts(results[0].state)


async def test_a_new_message_instead_of_an_answer_closes_the_question():
    work = Work()
    agent = create_agent(
        Turns(says("", call("1", "ask", question="A?"), call("2", "step", name="x")), says("fine")),
        work.tools,
    )
    waiting = await agent.ainvoke("go", thread_id="t")
    result = await agent.ainvoke("never mind", thread_id="t")
    assert result.run.status == "done"
    kinds = [type(one) for one in result.state["messages"]]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, ToolMessage, HumanMessage, AIMessage]
    told = {one.tool_call_id: one for one in result.state["messages"][2:4]}
    assert told["2"].text == "did x"
    assert told["1"].status == "error"
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: "late"})


async def test_a_failed_model_call_loses_nothing_and_the_run_can_go_on():
    work = Work()
    journal = MemoryCheckpointer()
    turn = says("", call("1", "step", name="a"))
    agent = create_agent(
        Turns(turn, ModelError("529", kind="overloaded", retryable=True)),
        work.tools,
        checkpointer=journal,
    )
    failed = await agent.ainvoke("go")
    assert failed.run.status == "failed"
    assert failed.run.reason == "529"
    agent = create_agent(Turns(turn, says("fine now")), work.tools, checkpointer=journal)
    result = await agent.aresume(failed.run.id)
    assert result.run.answer == "fine now"
    assert work.ran == ["a"]


async def test_a_run_that_reaches_a_limit_ends_with_the_reason_and_paired_calls():
    work = Work()
    loop = [says("", call(str(n), "step", name=str(n))) for n in range(10)]
    agent = create_agent(Turns(*loop), work.tools)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=3)))
    assert result.run.status == "failed"
    assert result.run.reason is not None
    assert result.run.reason.startswith("limit: 3 model calls allowed")
    assert result.stop_reason == "model_calls"
    assert work.ran == ["0", "1", "2"]
    result = await create_agent(Turns(*loop), work.tools).ainvoke(
        "go", options=RunOptions(limits=Limits(tool_calls=1))
    )
    assert result.stop_reason == "tool_calls"
    assert isinstance(result.state["messages"][-1], ToolMessage)


async def test_a_thread_is_moved_by_one_run_at_a_time():
    work = Work()
    agent = create_agent(Turns(says("", call("1", "hold", name="a")), says("ok")), work.tools)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
            await work.entered.wait()
            with pytest.raises(ThreadBusy, match="thread t is being moved"):
                await agent.ainvoke("me too", thread_id="t")
            work.held.set()


async def test_drive_and_delegate_share_a_thread():
    work = Work()
    agent = create_agent(Turns(says("I saw it")), work.tools)
    driven = await agent.adrive([call("1", "step", name="a"), call("2", "step", name="b")])
    assert driven.run.kind == "drive"
    assert driven.run.status == "done"
    assert [one.text for one in driven.results] == ["did a", "did b"]
    result = await agent.ainvoke("what happened?", thread_id=driven.run.thread_id)
    assert result.run.answer == "I saw it"
    assert texts(result.state)[1:3] == ["did a", "did b"]
    history = await agent.get_state_history(driven.run.thread_id)
    assert [one.author for one in reversed(history)] == ["client", "tools", "input", "model"]


async def test_a_round_stores_what_it_adds_however_long_the_thread_is():
    steps: list[int] = []

    class Weighed(MemoryCheckpointer):
        async def commit(self, batch: Batch) -> None:
            steps.append(sum(len(w.value) for task in batch.writes for w in task.writes))
            await super().commit(batch)

    @tool
    async def read(place: int) -> str:
        """Read."""
        return f"{place:04}" * 500

    rounds = [
        says("", call(f"{n:03}", "read", place=n), call(f"{n:03}b", "read", place=n))
        for n in range(100)
    ]
    model = Turns(*rounds, says("end"))
    await create_agent(model, [read], checkpointer=Weighed()).ainvoke("go")
    assert sum(steps) > 100 * 2 * 2_000
    assert max(steps) < 6_000, "no step holds more than an answer or its two results"


async def test_a_fork_goes_back_and_keeps_the_history():
    agent = create_agent(Turns(says("one"), says("two")), [])
    first = await agent.ainvoke("a", thread_id="t")
    await agent.ainvoke("b", thread_id="t")
    assert first.checkpoint is not None
    await agent.fork("t", first.checkpoint.id)
    assert texts((await agent.get_state("t")).values) == ["a", "one"]
    result = await agent.ainvoke("c", thread_id="t")
    assert texts(result.state) == ["a", "one", "c", "two"]
    assert len(await agent.get_state_history("t")) == 7
    with pytest.raises(UnknownCheckpoint):
        await agent.fork("t", "ckpt_nope")
    with pytest.raises(UnknownThread):
        await agent.get_state("nope")


async def test_update_state_writes_on_top():
    agent = create_agent(Turns(says("one")), [])
    await agent.ainvoke("a", thread_id="t")
    await agent.update_state("t", {"messages": [HumanMessage("noted", source="me")]})
    assert texts((await agent.get_state("t")).values) == ["a", "one", "noted"]


async def test_leaving_a_stream_early_pauses_the_run_which_can_be_resumed():
    work = Work()
    agent = create_agent(Turns(says("", call("1", "hold", name="a")), says("ok")), work.tools)
    with anyio.fail_after(5):
        stream = agent.astream("go", thread_id="t", modes=("tasks",))
        async for event in stream:
            if event.data["event"] == "tool_start":
                break
        await stream.aclose()
    assert work.ran == []
    (run,) = await agent.checkpointer.find_runs(thread_id="t")
    assert (run.status, run.reason) == ("paused", "the consumer of the stream left")
    work.held.set()
    done = await agent.aresume(run.id)
    assert (done.run.status, work.ran) == ("done", ["a"])
