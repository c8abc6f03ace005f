"""Middleware of your own: a class with state, a hook of one function, and a stream of its events.

Run it with `python examples/custom_middleware.py`. The model is scripted: no key, no network.
"""

from operator import add
from typing import Annotated, TypedDict

import anyio

from deep_agent_mcp import (
    AgentMiddleware,
    Event,
    Reducer,
    Runtime,
    ScriptedModel,
    ToolCallRequest,
    before_model,
    create_agent,
    tool,
)
from deep_agent_mcp.harness.loop.hooks.requests import ToolCallOutcome, ToolHandler


class TrailState(TypedDict):
    """State keys of the middleware. A write to `visited` is added to what is there."""

    visited: Annotated[list[str], Reducer(add, default=list)]


class Trail(AgentMiddleware):
    """Keeps a list of the pages that were read, and tells whoever watches."""

    state_schema = TrailState

    def before_model(self, state: TrailState, runtime: Runtime) -> None:
        """Report before each model call."""
        runtime.stream_writer({"read so far": len(state["visited"])})

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Note the page, also when the call was refused."""
        page = request.call.args.get("page")
        if page in request.state["visited"]:
            request.runtime.stream_writer({"again": page})
        outcome = await handler(request)
        return outcome.with_update(visited=[page])


@before_model(can_jump_to=["end"])
def stop_after_three(state: TrailState, runtime: Runtime) -> dict[str, str] | None:
    """End the run before it reads for ever."""
    return {"jump_to": "end"} if len(state["visited"]) >= 3 else None


@tool(read_only=True)
def read(page: str) -> str:
    """Read a page."""
    return f"{page} links to home"


def reading(*pages: str) -> dict[str, object]:
    return {"tool_calls": [{"name": "read", "args": {"page": page}} for page in pages]}


async def main() -> None:
    model = ScriptedModel([reading("home", "news"), reading("home"), {"text": "never asked for"}])
    agent = create_agent(model, [read], middleware=[Trail(), stop_after_three])
    async for item in agent.astream("Look around.", modes=["custom"]):
        if isinstance(item, Event):
            print("event:", item.data["data"])
        else:
            print("result:", item.run.status, item.state["visited"])


if __name__ == "__main__":
    anyio.run(main)
