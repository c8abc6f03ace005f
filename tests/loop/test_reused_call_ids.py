"""A model that numbers its calls anew in each answer is served like any other."""

import pytest

from deep_agent_mcp.harness.agent import RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.middleware.context.context_editing import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
)
from deep_agent_mcp.harness.middleware.skill_texts import active_skills
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.tool import Tool, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Ran(list[str]):
    def tool(self, **marks: bool) -> Tool:
        @tool(**marks)  # type: ignore[arg-type]
        async def act(text: str) -> str:
            """Act."""
            self.append(text)
            return f"did {text} " + "x" * 400

        return act


def told(result: RunResult) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


def acts(*texts: str) -> list[AIMessage]:
    return [says("", call("call_0", "act", text=one)) for one in texts]


@pytest.mark.parametrize("marks", [{}, {"once": True}, {"read_only": True, "cacheable": True}])
async def test_each_call_runs_and_keeps_its_own_result(marks: dict[str, bool]) -> None:
    ran = Ran()
    agent = create_agent(Turns(*acts("a", "b", "c"), says("done")), [ran.tool(**marks)])
    result = await agent.ainvoke("go")
    assert (result.run.answer, ran) == ("done", ["a", "b", "c"]), result.error
    assert [one[:5] for one in told(result)] == ["did a", "did b", "did c"]


async def test_each_call_is_asked_about_and_decided_by_itself() -> None:
    ran, journal = Ran(), MemoryCheckpointer()
    turns = (*acts("a", "b", "c"), says("done"))

    def agent():
        gate = HumanInTheLoopMiddleware({"act": True})
        return create_agent(Turns(*turns), [ran.tool()], middleware=[gate], checkpointer=journal)

    result = await agent().ainvoke("go", thread_id="t")
    asked: list[str] = []
    for decision in ("approve", "reject", "approve"):
        (question,) = result.interrupts
        asked.append(question.id)
        # Another process each time.
        result = await agent().aresume(result.run.id, {question.id: {"decision": decision}})
    assert (len(set(asked)), ran, result.run.status) == (3, ["a", "c"], "done")


async def test_each_subagent_is_one_of_its_own() -> None:
    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent != "main":
            heard = request.messages[0].text
            return says("", call("call_0", "act", text=heard)) if not place else says(heard)
        if place < 3:
            return says("", call("call_0", "task", description=f"part {place}"))
        return says("done")

    ran = Ran()
    result = await create_deep_agent(Turns(*[turn] * 8), [ran.tool()]).ainvoke("go")
    assert (result.run.answer, ran) == ("done", ["part 0", "part 1", "part 2"])
    assert [one[:6] for one in told(result)] == ["part 0", "part 1", "part 2"]


async def test_limits_count_each_call() -> None:
    ran = Ran()
    limit = ToolCallLimitMiddleware(run_limit=2)
    agent = create_agent(
        Turns(*acts("a", "b", "c"), says("done")), [ran.tool()], middleware=[limit]
    )
    result = await agent.ainvoke("go")
    assert (ran, result.run.status) == (["a", "b"], "done")


async def test_a_crash_repeats_only_the_call_that_was_under_way() -> None:
    """The results of earlier calls with its id do not pass for its own."""
    ran, journal = Ran(), MemoryCheckpointer()
    model = Turns(*acts("a", "b"), says("done"))
    agent = create_agent(model, [ran.tool()], checkpointer=journal, interrupt_before=["tools"])
    result = await agent.ainvoke("go", thread_id="t")
    for expected in (["a"], ["a", "b"]):
        agent = create_agent(model, [ran.tool()], checkpointer=journal, interrupt_before=["tools"])
        result = await agent.aresume(result.run.id)
        assert ran == expected
    assert result.run.answer == "done"


async def test_old_results_are_cleared_and_new_ones_stay() -> None:
    ran = Ran()
    editing = ContextEditingMiddleware(
        [ClearToolUsesEdit(trigger=300, keep=1, clear_tool_inputs=True)]
    )
    model = Turns(*acts("a", "b", "c", "d", "e"), says("done"))
    agent = create_agent(model, [ran.tool()], middleware=[editing])
    await agent.ainvoke("go")
    shown = [one for one in model.requests[-1].messages if isinstance(one, ToolMessage)]
    assert shown[0].text == "[cleared]"
    assert shown[-1].text.startswith("did e")
    calls = [
        dict(call.args)
        for one in model.requests[-1].messages
        if isinstance(one, AIMessage)
        for call in one.tool_calls
    ]
    assert (calls[0], calls[-1]) == ({}, {"text": "e"})


def test_a_skill_that_was_not_loaded_is_not_in_use_because_of_a_later_call() -> None:
    refused = says("", call("call_0", "skill", name="strict"))
    later = says("", call("call_0", "ls"))
    messages = [
        HumanMessage("go"),
        refused,
        ToolMessage("call_0", "rejected", "skill", status="error"),
        later,
        ToolMessage("call_0", "listed", "ls"),
    ]
    assert active_skills(messages) == []
    loaded = ToolMessage("call_0", "Skill: strict", "skill")
    assert active_skills([messages[0], refused, loaded, *messages[3:]]) == ["strict"]
