"""Other descriptions of tools, for one model."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.middleware.tools.offered_tools import ToolDescriptionMiddleware
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, model_request

pytestmark = pytest.mark.anyio

SEARCH = {"type": "web_search_20260318", "name": "read"}


@tool
def read(path: str) -> str:
    """Read."""
    return f"contents of {path}"


@tool
def write(path: str) -> str:
    """Write."""
    return path


async def test_the_model_reads_the_other_description_and_the_tool_runs_as_before() -> None:
    model = Turns(says("", call("1", "read", path="/a")), says("done"))
    middleware = ToolDescriptionMiddleware({"read": "Look at a file.", "gone": "x"})
    agent = create_agent(model, [read, write], middleware=[middleware])
    result = await agent.ainvoke("go")
    assert [one.description for one in model.requests[0].tools] == ["Look at a file.", "Write."]  # type: ignore[union-attr]
    assert result.state["messages"][2].text == "contents of /a"
    assert agent.definition.tools["read"].description == "Read."


async def test_the_same_tools_give_the_same_request_each_time() -> None:
    sent, middleware = Sent(), ToolDescriptionMiddleware({"read": "Look."})
    offered = (read, write, SEARCH)
    for _ in range(2):
        await middleware.wrap_model_call(model_request([], tools=offered), sent)
    first, second = sent.requests
    assert first.tools is second.tools
    spec, _, raw = first.tool_specs()
    assert isinstance(spec, ToolSpec)
    assert spec.description == "Look."
    assert raw == SEARCH, "tools of the provider stay as they are"


async def test_a_list_of_tools_that_changes_is_looked_at_again() -> None:
    sent, middleware = Sent(), ToolDescriptionMiddleware({"read": "Look."})
    offered = [write]
    request = model_request([], tools=offered)
    await middleware.wrap_model_call(request, sent)
    assert sent.request is request
    offered.append(read)
    await middleware.wrap_model_call(request, sent)
    assert [one.description for one in sent.request.tools] == ["Write.", "Look."]  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", [{"read": ""}, {"read": None}, {"": "x"}, {3: "x"}])
def test_what_is_no_description_is_refused(wrong: Any) -> None:
    with pytest.raises(AgentBuildError, match="a description by the name of each tool"):
        ToolDescriptionMiddleware(wrong)
