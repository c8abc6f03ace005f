import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.todo_list import TodoListMiddleware
from deep_agent_mcp.harness.middleware.tools.offered_tools import ToolExclusionMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, model_request

pytestmark = pytest.mark.anyio

ran: list[str] = []


@tool
def keep() -> str:
    """Keep."""
    ran.append("keep")
    return "kept"


@tool
def delete_all() -> str:
    """Delete."""
    ran.append("delete_all")
    return "deleted"


def results(result: object) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]  # type: ignore[attr-defined]


async def test_excluded_tools_are_neither_offered_nor_run() -> None:
    ran.clear()
    model = Turns(says("", call("a", "delete_all"), call("b", "keep")), says("ok"))
    agent = create_agent(
        model, [keep, delete_all], middleware=[ToolExclusionMiddleware(["delete_*"])]
    )
    refused, kept = results(await agent.ainvoke("Go"))
    assert [one.name for one in model.requests[0].tools if isinstance(one, ToolSpec)] == ["keep"]
    assert refused.status == "error"
    assert "delete_all is not available to this agent" in refused.text
    assert (kept.text, ran) == ("kept", ["keep"])


async def test_an_edit_by_a_person_does_not_reach_an_excluded_tool() -> None:
    ran.clear()
    model = Turns(says("", call("a", "keep")), says("ok"))
    middleware = [ToolExclusionMiddleware(["delete_all"]), HumanInTheLoopMiddleware({"keep": True})]
    agent = create_agent(model, [keep, delete_all], middleware=middleware)
    result = await agent.ainvoke("Go")
    (question,) = result.interrupts
    edit = {"decision": "edit", "tool": "delete_all", "args": {}}
    again = await agent.aresume(result.run.id, {question.id: edit})
    assert (again.run.status, ran) == ("needs_approval", [])
    (question,) = again.interrupts
    assert "delete_all is not available to this agent" in question.message
    done = await agent.aresume(again.run.id, {question.id: {"decision": "approve"}})
    assert (results(done)[0].status, ran) == ("success", ["keep"])


async def test_provider_tools_go_too_and_a_choice_of_an_excluded_tool_is_dropped() -> None:
    raw = {"type": "web_search_20260318", "name": "web_search"}
    sent = Sent()
    request = model_request([HumanMessage("go")], tools=(keep, delete_all, raw))
    middleware = ToolExclusionMiddleware(["web_search", "delete_all"])
    for choice, left in (("delete_all", "auto"), ("keep", "keep"), ("any", "any")):
        await middleware.wrap_model_call(request.override(tool_choice=choice), sent)
        assert sent.request.tools == (keep,)
        assert sent.request.tool_choice == left
    first, second = sent.requests[:2]
    assert first.tools is second.tools


async def test_the_section_of_an_excluded_tool_is_left_out_with_it() -> None:
    model = Turns(says("ok"))
    middleware = [ToolExclusionMiddleware(["write_todos"]), TodoListMiddleware()]
    await create_agent(model, middleware=middleware).ainvoke("Go")
    assert model.requests[0].system == ()


async def test_nothing_excluded_changes_nothing() -> None:
    sent = Sent()
    request = model_request([], tools=(keep,))
    await ToolExclusionMiddleware([]).wrap_model_call(request, sent)
    assert sent.request is request


def test_wrong_arguments_are_refused_when_the_agent_is_built() -> None:
    for wrong in ("keep", [1], [""]):
        with pytest.raises(AgentBuildError, match="list of tool names"):
            ToolExclusionMiddleware(wrong)  # type: ignore[arg-type]
