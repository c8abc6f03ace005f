"""A tool that is offered and that nobody would run is found before a model is asked."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import MiddlewareError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
)
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.middleware.commands.shell import ShellToolMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_results import (
    LLMToolEmulator,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
def lost() -> str:
    """Do something."""
    raise AssertionError


class Offers(AgentMiddleware):
    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        return await handler(request.override(tools=[*request.tools, lost]))


async def refused(agent: Agent, model: Turns) -> bool:
    result = await agent.ainvoke("go")
    if result.run.status == "done":
        return False
    assert isinstance(result.error, MiddlewareError)
    assert "offers lost, which the agent does not have" in str(result.error)
    return model.requests == []


async def test_a_deep_agent_finds_it() -> None:
    model = Turns(says("hi"))
    assert await refused(create_deep_agent(model, middleware=[Offers()]), model)


@pytest.mark.parametrize(
    "beside",
    [
        ToolCallLimitMiddleware(run_limit=1),
        ToolRetryMiddleware(),
        ToolErrorMiddleware(lambda error, request: None),
        ShellToolMiddleware(),
    ],
    ids=lambda one: one.name,
)
async def test_it_is_found_beside_middleware_that_only_watches_calls(
    beside: AgentMiddleware,
) -> None:
    model = Turns(says("hi"))
    assert await refused(create_agent(model, middleware=[Offers(), beside]), model)


async def test_it_is_offered_where_middleware_may_answer_it() -> None:
    model = Turns(says("", call("c1", "lost")), says("made up"), says("hi"))
    agent = create_agent(model, middleware=[Offers(), LLMToolEmulator(model=model)])
    assert not await refused(agent, model)
    assert model.requests
