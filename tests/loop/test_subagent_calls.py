"""Subagents below a call: their pauses, crashes, state and failures."""

import operator
from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Mark, Reducer
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Shared(TypedDict):
    notes: NotRequired[Annotated[list[str], Reducer(operator.add, default=list)]]
    secret: NotRequired[Annotated[str, Mark.PRIVATE]]


def family(child_turns, parent_turns, tools, journal=None, policy=None):
    journal = journal or MemoryCheckpointer()
    child = create_agent(
        Turns(*child_turns), tools, state_schema=Shared, checkpointer=journal, policy=policy,
        name="child",
    )  # fmt: skip

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        if result.failed:
            return ToolResult(f"failed: {result.failed}", status="error")
        return ToolResult(result.text, writes=result.writes)

    return create_agent(
        Turns(*parent_turns), [task], state_schema=Shared, checkpointer=journal, name="main"
    )


def note_tool(ran):
    @tool
    async def note(text: str) -> ToolResult:
        """Note."""
        ran.append(text)
        return ToolResult("noted", update={"notes": [text], "secret": "s"})

    return note


async def test_a_child_answers_and_its_shared_state_comes_back():
    ran = []
    agent = family(
        [
            says("", call("c1", "note", text="x")),
            says("", call("c2", "note", text="y")),
            says("rep"),
        ],
        [says("", call("p1", "task", description="do it")), says("thanks")],
        [note_tool(ran)],
    )
    result = await agent.ainvoke({"messages": [], "notes": ["given"]})
    assert result.run.status == "done"
    assert result.state["notes"] == ["given", "x", "y"]
    assert "secret" not in result.state
    assert [m.text for m in result.state["messages"] if isinstance(m, ToolMessage)] == ["rep"]


async def test_parallel_children_ask_labelled_questions_and_are_answered_in_any_order():
    ran = []
    turns = lambda: [  # noqa: E731
        says("", call("p1", "task", description="A"), call("p2", "task", description="B")),
        says("both"),
    ]
    child = lambda: [  # noqa: E731
        lambda request: says("", call("c1", "note", text=request.messages[0].text)),
        says("ok"),
    ]
    journal = MemoryCheckpointer()
    policy = Policy((Rule("ask", "note"),))
    agent = family(child(), turns(), [note_tool(ran)], journal, policy)
    waiting = await agent.ainvoke("go")
    assert [one.path for one in waiting.interrupts] == [
        ("main", "p1", "child", "c1"),
        ("main", "p2", "child", "c1"),
    ]
    assert [one.payload["args"]["text"] for one in waiting.interrupts] == ["A", "B"]
    reborn = family(child(), turns(), [note_tool(ran)], journal, policy)
    second = await reborn.aresume(
        waiting.run.id, {waiting.interrupts[1].id: {"decision": "approve"}}
    )
    assert ran == ["B"]
    assert [one.id for one in second.interrupts] == [waiting.interrupts[0].id]
    third = await reborn.aresume(
        waiting.run.id, {waiting.interrupts[0].id: {"decision": "approve"}}
    )
    assert ran == ["B", "A"]
    assert third.run.status == "done"
    assert third.state["notes"] == ["A", "B"]


async def test_after_a_crash_inside_a_child_its_finished_calls_do_not_run_again():
    ran, journal = [], MemoryCheckpointer()
    entered, release = anyio.Event(), anyio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        entered.set()
        await release.wait()
        ran.append("held")
        return "held"

    def build():
        return family(
            [says("", call("c1", "note", text="x")), says("", call("c2", "hold")), says("rep")],
            [says("", call("p1", "task", description="do it")), says("thanks")],
            [note_tool(ran), hold],
            journal,
        )

    agent = build()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
            await entered.wait()
            group.cancel_scope.cancel()
    (run,) = await journal.find_runs(thread_id="t")
    release.set()
    result = await build().aresume(run.id)
    assert result.run.status == "done"
    assert ran == ["x", "held"]
    assert result.state["notes"] == ["x"]


async def test_a_failing_child_is_a_result_and_its_siblings_go_on():
    agent = family(
        [
            lambda request: (
                (_ for _ in ()).throw(ModelError("no luck"))
                if request.messages[0].text == "A"
                else says("fine")
            )
        ],
        [
            says("", call("p1", "task", description="A"), call("p2", "task", description="B")),
            says("one of two"),
        ],
        [],
    )
    result = await agent.ainvoke("go")
    assert result.run.answer == "one of two"
    told = [m for m in result.state["messages"] if isinstance(m, ToolMessage)]
    assert [(m.status, m.text) for m in told] == [("error", "failed: no luck"), ("success", "fine")]


async def test_nesting_is_bounded():
    journal = MemoryCheckpointer()
    agents = {}

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(agents["self"], description)
        return ToolResult(result.failed or result.text)

    agents["self"] = create_agent(
        Turns(says("", call("1", "task", description="deeper")), says("bottom")),
        [task],
        checkpointer=journal,
    )
    result = await agents["self"].ainvoke("go")
    assert result.run.status == "done"
    namespaces = {ns for _, ns in agents["self"].definition.states._states}
    assert max(ns.count("/") + 1 for ns in namespaces if ns) == 3
