"""An agent whose tool kills its server; replicas with it retry after a short time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator

from deep_agent_mcp import Agent, create_deep_agent, tool
from deep_agent_mcp.harness.messages.message import AIMessage, TextBlock, ToolCall, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.server.runs.queue import losses

__all__ = ["agent"]


class _Model:
    """A model that calls the tool, and then ends the run."""

    name = "script:poison"
    context_window = 1_000_000
    native_output = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        if any(isinstance(one, ToolMessage) for one in request.messages):
            yield AIMessage((TextBlock("Survived."),))
        else:
            yield AIMessage((ToolCall("call-1", "die", {}),))

    async def aclose(self) -> None: ...


@tool
async def die() -> str:
    """Kill the server, unless it is told not to."""
    if "SPARED" not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return "spared"


def agent() -> Agent:
    losses.BACKOFF = (0.0, 0.1, 0.2, 0.3)
    return create_deep_agent(_Model(), [die])
