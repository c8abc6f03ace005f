"""What tools return becomes one result per call, state, and further calls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.loop.hooks.requests import Command, Send
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Overwrite
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.arithmetic import Sums, add, multiply
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


def results(result) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def returning(make: Callable[[ToolRuntime], Any], name="give"):
    @tool(name=name)
    async def give(runtime: ToolRuntime) -> Any:
        """Give."""
        return make(runtime)

    return give


def own(runtime: ToolRuntime, text="mine") -> ToolMessage:
    return ToolMessage(runtime.tool_call_id, text)


GIVE = call("1", "give")


async def given(make, *calls, **options):
    """Run one call of a tool that returns this, and see that the thread can be used again."""
    model = Turns(says("", *(calls or (GIVE,))), says("end"), says("again"))
    agent = create_agent(model, [returning(make), add], state_schema=Sums, **options)
    result = await agent.ainvoke("go", thread_id="t")
    fresh = create_agent(
        model, [returning(make), add], state_schema=Sums, checkpointer=agent.checkpointer
    )
    again = await fresh.ainvoke("more", thread_id="t")
    assert again.run.answer == "again"
    return result


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (own, "mine"),
        (lambda runtime: [own(runtime)], "mine"),
        (lambda runtime: [Command({"total": 1}), own(runtime)], "mine"),
        (lambda runtime: Command({"messages": [own(runtime)], "total": 1}), "mine"),
        (lambda runtime: Command({"total": 1}), "Done."),
        (lambda runtime: ToolMessage(runtime.tool_call_id, {"a": 1}), '{"a": 1}'),
        (lambda runtime: [1, "ä", None], '[1, "ä", null]'),
        (lambda runtime: ["a", "b"], '["a", "b"]'),
        (lambda runtime: [], "[]"),
        (lambda runtime: [{"id": 1}, {"id": 2}], '[{"id": 1}, {"id": 2}]'),
    ],
)
async def test_a_tool_has_one_result_whatever_it_returns(make, text):
    result = await given(make)
    (one,) = results(result)
    assert (one.tool_call_id, one.name, one.status, one.text) == ("1", "give", "success", text)


async def test_a_command_with_several_messages_keeps_their_order_behind_the_result():
    def make(runtime):
        notes = [HumanMessage(text, source="give") for text in ("first", "second")]
        return Command({"messages": [notes[0], own(runtime), notes[1]]})

    result = await given(make, GIVE, call("2", "add", a=1, b=1))
    assert [one.text for one in result.state["messages"]] == [
        "go", "", "mine", "first", "second", "2", "end",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda one: [own(one), own(one)], "2 results for one call"),
        (lambda one: Command({"messages": [own(one), own(one)]}), "2 results for one call"),
        (lambda one: [own(one), Command({"messages": [own(one)]})], "2 results for one call"),
        (lambda one: ToolMessage("9", "x"), "another call than its own: 9"),
        (lambda one: [own(one), "text"], "with a str in it"),
        (lambda one: Command({"messages": [own(one)]}, jump_to="end"), "only hooks jump"),
        (lambda one: Command(send=["add"]), "`send` takes Send(tool, args)"),
        (lambda one: Command({"color": "red"}), "wrote undeclared state 'color'"),
        (lambda one: Command({"last": "x"}), "give: 'last' was given a wrong value"),
        (lambda one: Command({"messages": [own(one), "hi"]}), "'messages' was given a wrong"),
        (lambda one: Command({"messages": [own(one), says("hi")]}), "nothing else"),
        (lambda one: ToolResult("x", update={"messages": [ToolMessage("9", "y")]}), "nothing else"),
        (lambda one: ToolResult("x", update={"messages": Overwrite([])}), "nothing else"),
        (lambda one: ToolResult("x", writes=[("messages", Overwrite([]))]), "nothing else"),
        (lambda one: ToolResult("x", update={"messages": [RemoveMessage("9")]}), "cannot remove"),
        (lambda one: ToolResult("x", writes=[("last", None)]), "give: 'last' was given a wrong"),
    ],
)
async def test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable(make, text):
    result = await given(make)
    (one,) = results(result)
    assert (one.tool_call_id, one.status) == ("1", "error")
    assert text in one.text
    assert "last" not in result.state
    assert result.run.answer == "end"


async def test_two_calls_that_remove_one_message_the_later_gets_an_error():
    def make(runtime):
        first = runtime.state["messages"][0]
        return Command({"messages": [own(runtime), RemoveMessage(first.id)]})

    result = await given(make, GIVE, call("2", "give"))
    assert sorted(one.status for one in results(result)) == ["error", "success"]
    assert [one.tool_call_id for one in results(result)] == ["1", "2"]
    assert not any(isinstance(one, HumanMessage) for one in result.state["messages"])


@pytest.mark.parametrize(
    ("calls", "direct"),
    [
        ("a", True), ("ab", True), ("an", False), ("n", False), ("aa", True), ("nab", False),
    ],
)  # fmt: skip
async def test_only_direct_tools_together_end_the_run(calls, direct):
    tools = [
        tool(name=name, return_direct=name != "n")(lambda name=name: f"from {name}")
        for name in "abn"
    ]
    model = Turns(says("", *(call(str(n), name) for n, name in enumerate(calls))), says("end"))
    result = await create_agent(model, tools).ainvoke("go")
    assert result.run.status == "done"
    assert isinstance(result.state["messages"][-1], ToolMessage if direct else AIMessage)
    assert len(model.requests) == (1 if direct else 2)


async def test_a_call_turned_into_a_direct_tool_counts_as_that_tool():
    direct = tool(name="direct", return_direct=True)(lambda: "bye")

    async def swap(request, handler):
        return await handler(request.override(call=replace(request.call, name="direct", args={})))

    model = Turns(says("", call("1", "add", a=1, b=1)))
    wrap = wrap_tool_call(name="swap")(swap)
    result = await create_agent(model, [add, direct], middleware=[wrap]).ainvoke("go")
    assert result.state["messages"][-1].text == "bye"


# --- Send ----------------------------------------------------------------------------------


def sending(*sends):
    return lambda runtime: Command({"messages": [own(runtime)]}, send=sends)


async def test_calls_that_tools_send_run_next_in_call_order_through_the_gate():
    first = returning(sending(Send("add", {"a": 1, "b": 1}), Send("nope")), "first")
    released = anyio.Event()

    @tool
    async def second() -> Command:
        """Finish after the third."""
        await released.wait()
        return Command(send=[Send("multiply", {"a": 2, "b": 2})])

    @tool
    async def third() -> Command:
        """Finish first."""
        released.set()
        return Command(send=[Send("add", {"a": "x", "b": 1})])

    calls = [call("1", "first"), call("2", "second"), call("3", "third")]
    policy = Policy((Rule("deny", "multiply"),))
    tools = [first, second, third, add, multiply]
    result = await create_agent(Turns(says("", *calls), says("end")), tools, policy=policy).ainvoke(
        "go"
    )
    answers = [one for one in result.state["messages"] if isinstance(one, AIMessage)]
    assert [one.source for one in answers] == [None, "send", None]
    sent = answers[1].tool_calls
    assert [one.name for one in sent] == ["add", "nope", "multiply", "add"]
    told = results(result)[3:]
    assert [one.tool_call_id for one in told] == [one.id for one in sent]
    assert [one.status for one in told] == ["success", "error", "error", "error"]
    assert "was refused" in told[2].text
    assert "sent_calls" not in result.state


async def test_what_was_sent_may_send_again_and_ask():
    chain = returning(sending(Send("next")), "give")
    following = returning(sending(Send("add", {"a": 4, "b": 4})), "next")
    policy = Policy((Rule("ask", "add"),))
    model = Turns(says("", GIVE), says("end"))
    agent = create_agent(model, [chain, following, add], policy=policy)
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    assert question.payload == {"tool": "add", "args": {"a": 4, "b": 4}}
    done = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert [one.text for one in results(done)] == ["mine", "mine", "8"]
    assert len(model.requests) == 2


async def test_a_driven_call_gets_its_own_results_not_those_of_what_it_sent():
    tools = [returning(sending(Send("add", {"a": 1, "b": 1}))), add]
    result = await create_agent(Turns(), tools).adrive([GIVE])
    assert [one.text for one in result.results] == ["mine"]
    assert [one.text for one in results(result)] == ["mine", "2"]


class Death(BaseException):
    """The process is gone."""


class DiesAtCheckpoint(MemoryCheckpointer):
    """A journal whose process dies when the step of the tools would become a checkpoint."""

    dies = True

    async def commit(self, batch):
        if self.dies and any(one.author == "tools" for one in batch.checkpoints):
            self.dies = False
            # The results got there before, as they do while a sibling runs on.
            finished = [one for one in batch.writes if one.task_id != "tools"]
            await super().commit(replace(batch, writes=finished, checkpoints=[], runs=[]))
            raise Death
        await super().commit(batch)


async def test_what_was_sent_survives_a_crash_between_the_tools_and_their_checkpoint():
    ran, journal = [], DiesAtCheckpoint()

    @tool
    async def begin(runtime: ToolRuntime) -> Command:
        """Begin."""
        ran.append("begin")
        return Command(send=[Send("add", {"a": 1, "b": 1}), Send("add", {"a": 2, "b": 2})])

    model = Turns(says("", call("1", "begin")), says("end"))
    agent = create_agent(model, [begin, add], checkpointer=journal)
    with pytest.raises(Death):
        await agent.ainvoke("go", thread_id="t", options=RunOptions(run_id="run_1"))
    reborn = create_agent(model, [begin, add], checkpointer=journal)
    assert (await reborn.get_state("t")).finished_calls == ("1",)
    result = await reborn.aresume("run_1")
    assert ran == ["begin"]
    assert [one.text for one in results(result)] == ["Done.", "2", "4"]
    sent = next(one for one in result.state["messages"] if getattr(one, "source", "") == "send")
    assert [one.id for one in sent.tool_calls] == [one.tool_call_id for one in results(result)[1:]]
