"""An edit into a call that cannot run is refused, and the question stays open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, Interrupt
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import InvalidAnswer
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}


def even(number: int) -> int:
    if number % 2:
        raise ValueError("it must be even")
    return number


class Ran(list[Any]):
    """What has run, of three tools: one with checks that no JSON schema has."""

    def tools(self) -> list[Tool]:
        @tool
        async def send(place: str, count: Annotated[int, AfterValidator(even)] = 2) -> str:
            """Send."""
            self.append(("send", place, count))
            return "sent"

        @tool
        async def wipe(disk: Annotated[str, Field(pattern="^[a-z]$")]) -> str:
            """Wipe."""
            self.append(("wipe", disk))
            return "wiped"

        async def log(args: dict[str, Any]) -> str:
            self.append(("log", args["entry"]["level"]))
            return "logged"

        schema: dict[str, Any] = {
            "type": "object",
            "properties": {"entry": {"$ref": "#/$defs/entry"}},
            "required": ["entry"],
            "additionalProperties": False,
            "$defs": {
                "entry": {
                    "type": "object",
                    "properties": {"level": {"enum": [1, 2]}},
                    "required": ["level"],
                    "additionalProperties": False,
                }
            },
        }
        return [send, wipe, Tool.from_schema("log", "Log.", schema, log)]


CALLS = (("send", {"place": "a"}), ("wipe", {"disk": "c"}), ("log", {"entry": {"level": 1}}))
GOOD: dict[str, Sequence[dict[str, Any]]] = {
    "send": [{"place": "b"}, {"place": "b", "count": 4}],
    "wipe": [{"disk": "d"}],
    "log": [{"entry": {"level": 2}}],
}
BAD: dict[str, Sequence[dict[str, Any]]] = {
    "send": [
        {},
        {"place": 7},
        {"place": "b", "count": 3},
        {"place": "b", "more": 1},
        {"disk": "c"},
    ],
    "wipe": [{}, {"disk": "cd"}, {"disk": None}, {"disk": "c", "x": 1}, {"place": "a"}],
    "log": [
        {},
        {"entry": {}},
        {"entry": {"level": 3}},
        {"entry": 1},
        {"entry": {"level": 1, "x": 1}},
    ],
}
UNKNOWN = ("", "wip", "Wipe", "wipe ", "send,wipe", "*", "task", "__class__")


def edits() -> list[tuple[dict[str, Any], str]]:
    """Return edits of a call of `send` into what cannot run, with what is said of them."""
    found: list[tuple[dict[str, Any], str]] = [
        ({"tool": name, **more}, "there is no tool")
        for name in UNKNOWN
        for more in ({}, {"args": {}}, {"args": {"place": "b"}})
    ]
    for name, several in BAD.items():
        found += [({"tool": name, "args": args}, "") for args in several]
    found += [({"args": args}, "") for args in BAD["send"]]
    return [*found, ({"tool": "wipe"}, ""), ({"tool": "log"}, "")]


def asking(ran: Ran, name: str, args: dict[str, Any], **options: Any) -> Agent:
    model = Turns(says("", call("1", name, **args)), says("done"))
    return create_agent(model, ran.tools(), **options)


GATES: Sequence[Callable[[], dict[str, Any]]] = (
    lambda: {"middleware": [HumanInTheLoopMiddleware({"*": True})]},
    lambda: {"policy": Policy((Rule("ask", "*"),))},
)


def texts(result: RunResult) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def still_open(journal: Checkpointer, question: Interrupt) -> bool:
    known = await journal.interrupts(question.run_id)
    return known == [question] and not question.answered


@pytest.mark.parametrize("gate", GATES, ids=["middleware", "policy"])
@pytest.mark.parametrize(("change", "words"), edits())
async def test_an_edit_into_what_cannot_run_is_refused_and_leaves_the_question_open(
    change: dict[str, Any], words: str, gate: Callable[[], dict[str, Any]]
) -> None:
    ran, journal = Ran(), MemoryCheckpointer()
    agent = asking(ran, "send", {"place": "a"}, checkpointer=journal, **gate())
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    answers = {question.id: {"decision": "edit", **change}}
    for give in (agent.aresume, agent.answer):
        with pytest.raises(InvalidAnswer, match="Nothing was stored") as refusal:
            await give(waiting.run.id, answers)
        assert words in str(refusal.value)
    assert await still_open(journal, question)
    done = await agent.aresume(waiting.run.id, {question.id: APPROVE})
    assert (done.run.status, ran) == ("done", [("send", "a", 2)])


@pytest.mark.parametrize(
    ("asked", "name", "args"),
    [(one, name, args) for one, name in itertools.product(CALLS, GOOD) for args in GOOD[name]],
)
async def test_an_edit_into_what_can_run_is_taken(
    asked: tuple[str, dict[str, Any]], name: str, args: dict[str, Any]
) -> None:
    ran = Ran()
    gate = HumanInTheLoopMiddleware({asked[0]: True})
    agent = asking(ran, *asked, middleware=[gate])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    answer = {"decision": "edit", "tool": name, "args": args}
    done = await agent.aresume(waiting.run.id, {question.id: answer})
    assert done.run.status == "done"
    assert [one[0] for one in ran] == [name]


@pytest.mark.parametrize("change", [{"tool": "erase"}, {"args": {"file_path": 7}}])
async def test_edits_of_what_a_subagent_asks_are_checked_against_its_tools(
    change: dict[str, Any],
) -> None:
    def turns(request: Any) -> Any:
        if any(one.name == "task" for one in request.tools):
            return says("", call("p", "task", description="look"))
        return says("", call("1", "ls", path="/"))

    journal = MemoryCheckpointer()
    model = Turns(turns, says("done"))
    agent = create_deep_agent(model, checkpointer=journal, interrupt_on={"ls": True})
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    assert question.path == ("main", "p", "general-purpose", "1")
    for wrong in ({**change}, {"tool": "read_file", "args": {"no": 1}}):
        with pytest.raises(InvalidAnswer, match="Nothing was stored"):
            await agent.aresume(waiting.run.id, {question.id: {"decision": "edit", **wrong}})
    assert await still_open(journal, question)
    # Not `task`: the subagent has none, though its caller has.
    with pytest.raises(InvalidAnswer, match="there is no tool 'task'"):
        into = {"decision": "edit", "tool": "task", "args": {"description": "x"}}
        await agent.aresume(waiting.run.id, {question.id: into})
    done = await agent.aresume(waiting.run.id, {question.id: APPROVE})
    assert done.run.status == "done"


async def test_where_the_asking_agent_is_not_to_be_found_the_call_is_asked_about_again() -> None:
    ran = Ran()
    journal = MemoryCheckpointer()
    gate = HumanInTheLoopMiddleware({"send": True})
    child = create_agent(
        Turns(says("", call("1", "send", place="a")), says("sent")),
        ran.tools(),
        middleware=[gate],
        checkpointer=journal,
        name="child",
    )

    @tool
    async def hand_on(runtime: ToolRuntime) -> ToolResult:
        """Hand on."""
        result = await runtime.run_subagent(child, "send it")
        return ToolResult(result.text, writes=result.writes)

    model = Turns(says("", call("p", "hand_on")), says("done"))
    agent = create_agent(model, [hand_on], checkpointer=journal)
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    with pytest.raises(InvalidAnswer, match="there is no tool 'erase'"):  # the question knows
        into: dict[str, Any] = {"decision": "edit", "tool": "erase", "args": {}}
        await agent.aresume(waiting.run.id, {question.id: into})
    for wrong in ({"disk": "cd"}, {"disk": 7}):
        into = {"decision": "edit", "tool": "wipe", "args": wrong}
        waiting = await agent.aresume(waiting.run.id, {question.id: into})
        (again,) = waiting.interrupts
        assert again.id != question.id and again.payload == question.payload
        assert "The edit was not used: wipe was not run: disk" in again.message
        assert ran == []
        question = again
    done = await agent.aresume(waiting.run.id, {question.id: APPROVE})
    assert (done.run.status, ran) == ("done", [("send", "a", 2)])


async def test_an_edit_that_was_not_used_is_not_used_later_either() -> None:
    ran, journal = Ran(), MemoryCheckpointer()
    send, wipe, _ = ran.tools()
    gate = HumanInTheLoopMiddleware({"send": True})

    def agent_with(*tools: Tool) -> Agent:
        model = Turns(says("", call("1", "send", place="a")), says("done"))
        return create_agent(model, tools, middleware=[gate], checkpointer=journal)

    both, one = agent_with(send, wipe), agent_with(send)
    waiting = await both.ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    edit: Any = {"decision": "edit", "tool": "wipe", "args": {"disk": "c"}}
    # Stored while the tool was there, and taken up when it is gone.
    await journal.commit(Batch("t", answers={question.id: edit}))
    waiting = await one.aresume(waiting.run.id)
    (again,) = waiting.interrupts
    assert "there is no tool 'wipe'" in again.message
    reject = {"decision": "reject", "message": "No."}
    done = await both.aresume(waiting.run.id, {again.id: reject})
    assert ran == []
    assert texts(done) == ["send was rejected by a person and did not run: No.."]


async def test_a_tool_that_a_wrapper_supplies_may_be_edited_by_its_own_schema() -> None:
    ran = Ran()
    send, wipe, _ = ran.tools()

    @wrap_tool_call
    async def supply(request: Any, handler: Any) -> Any:
        return await handler(request.override(tool=replace(wipe, name="send")))

    gate = HumanInTheLoopMiddleware({"send": True})
    model = Turns(says("", call("1", "send", disk="c")), says("done"))
    agent = create_agent(model, [send], middleware=[supply, gate])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    with pytest.raises(InvalidAnswer):
        wrong = {"decision": "edit", "args": {"disk": "cd"}}
        await agent.aresume(waiting.run.id, {question.id: wrong})
    into = {"decision": "edit", "args": {"disk": "d"}}
    await agent.aresume(waiting.run.id, {question.id: into})
    assert ran == [("wipe", "d")]
