"""Agents with streams, and a reader for the streams."""

import operator
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, NotRequired, TypedDict

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Runtime
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.state.channels import Mark, Reducer
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says


class Typing(Turns):
    """A model that streams its turns word by word."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    for word in piece.text.split():
                        yield Delta("text", word)
                    for one in piece.tool_calls:
                        yield Delta("tool_args", "{}", one.id, one.name)
                    yield piece


class Seen(TypedDict):
    notes: NotRequired[Annotated[list[str], Reducer(operator.add, default=list)]]
    secret: NotRequired[Annotated[str, Mark.PRIVATE]]
    inner: NotRequired[Annotated[int, Mark.OMIT_FROM_OUTPUT]]


class Notes(AgentMiddleware):
    """Middleware that writes state and custom events in every kind of hook."""

    state_schema = Seen

    def before_model(self, state, runtime: Runtime):
        runtime.stream_writer("before")
        return {"notes": ["b"], "secret": "s", "inner": 1}

    async def wrap_model_call(self, request, handler):
        request.runtime.stream_writer({"around": "model"})
        return await handler(request)

    def wrap_tool_call(self, request, handler):
        request.runtime.stream_writer(["around", "tool"])
        return handler(request)


@tool
async def look(runtime: ToolRuntime) -> ToolResult:
    """Look."""
    runtime.stream_writer("looking")
    return ToolResult("saw it", update={"notes": ["t"]})


async def read(
    agent: Agent, *modes: str, given: object = "go", options: RunOptions | None = None
) -> tuple[list[Event], RunResult]:
    async with aclosing(agent.astream(given, modes=modes, options=options)) as stream:  # type: ignore[arg-type]
        items = [one async for one in stream]
    *events, result = items
    assert isinstance(result, RunResult)
    assert all(isinstance(one, Event) for one in events)
    return events, result  # type: ignore[return-value]


def noting(**more) -> Agent:
    model = Typing(says("I look", call("1", "look")), says("all fine"))
    return create_agent(model, [look], middleware=[Notes()], **more)


def family(child: Turns, parent: Turns) -> Agent:
    inner = create_agent(child, [look], state_schema=Seen, name="child")

    @tool
    async def task(description: str, runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(inner, description)).text

    return create_agent(parent, [task], state_schema=Seen, name="main")
