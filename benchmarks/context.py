"""Model requests of the default deep agent: their size, and the time to build them.

The time is from the first hook of a round to the model call, with the default stack, in a thread
with many messages. The first round of a run builds the view of the thread; later rounds reuse it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio

from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Runtime
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.state.channels import State
from deep_agent_mcp.harness.tools.schemas import ToolSpec

__all__ = ["run"]

PEER_CHARACTERS = 10_548
"""Size of system prompt and tool schemas of deepagents 0.7.32 with the same nine tools."""

SIZES = (200, 2_000)
ROUNDS = 20

Measures = dict[str, dict[str, float | int | None]]


def run(rounds: int = 5) -> Report:
    """Measure the sizes once, and the times `rounds` times for each length of thread."""
    measures: Measures = {}
    bars = [*anyio.run(_sizes, measures), *anyio.run(_views, measures, rounds)]
    return Report("context", measures, bars)


class _Begin(AgentMiddleware):
    """Middleware that records the time of the first hook of a round."""

    def __init__(self) -> None:
        self.at = 0.0

    def before_model(self, state: State, runtime: Runtime) -> None:
        self.at = time.perf_counter()


class _Asked:
    """A model that calls a tool in all rounds except the last, and records requests and times."""

    name = "benchmark:asked"
    context_window = 1_000_000
    native_output = False

    def __init__(self, begin: _Begin, rounds: int) -> None:
        self.seconds: list[float] = []
        self.requests: list[ChatRequest] = []
        self._begin = begin
        self._rounds = rounds

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.seconds.append(time.perf_counter() - self._begin.at)
        self.requests.append(request)
        if len(self.seconds) < self._rounds:
            number = len(self.seconds)
            args = {"path": f"/notes/{number}"}
            yield AIMessage((ToolCall(f"call_{id(self)}_{number}", "ls", args),))
        else:
            yield AIMessage((TextBlock("Done."),))

    async def aclose(self) -> None:
        """Do nothing."""


async def _sizes(measures: Measures) -> list[Bar]:
    model = _Asked(_Begin(), 1)
    await create_deep_agent(model).ainvoke("Hello")
    (request,) = model.requests
    prompt = sum(len(section.text) for section in request.system)
    schemas = sum(
        len(json.dumps({"name": one.name, "description": one.description, "input": one.parameters}))
        for one in request.tools
        if isinstance(one, ToolSpec)
    )
    measures["system prompt, characters"] = spread([float(prompt)])
    measures["tool schemas, characters"] = spread([float(schemas)])
    measures["tools"] = spread([float(len(request.tools))])
    return [
        Bar(
            "prompt and schemas: ours / deepagents", (prompt + schemas) / PEER_CHARACTERS, 0.75, "x"
        )
    ]


async def _views(measures: Measures, rounds: int) -> list[Bar]:
    later: dict[int, list[float]] = {size: [] for size in SIZES}
    first: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            begin = _Begin()
            model = _Asked(begin, ROUNDS)
            agent = create_deep_agent(
                model,
                middleware=[begin],
                checkpointer=MemoryCheckpointer(),
                limits=Limits(model_calls=1_000, tool_calls=1_000),
            )
            await _fill(agent, size)
            await agent.ainvoke("Go on.", thread_id="t")
            first[size].append(1_000 * model.seconds[0])
            later[size].append(1_000 * statistics.median(model.seconds[1:]))
    for size in SIZES:
        measures[f"view of {size:,} messages, first, ms"] = spread(first[size])
        measures[f"view of {size:,} messages, unchanged, ms"] = spread(later[size])
    small, large = (statistics.median(later[size]) for size in SIZES)
    return [
        Bar("view of 2,000 messages, unchanged", large, 5, "ms"),
        Bar("unchanged view: 2,000 messages / 200", large / small, 1.5, "x"),
    ]


async def _fill(agent: Agent, size: int) -> None:
    """Fill the thread with a conversation of `size` messages."""
    messages: list[Message] = [HumanMessage("Tidy the notes.")]
    while len(messages) < size - 1:
        number = len(messages)
        call = ToolCall(f"old_{number}", "read_file", {"path": f"/notes/{number}.md"})
        messages.append(AIMessage((TextBlock("Next."), call)))
        messages.append(ToolMessage(call.id, "A line of a note.\n" * 20, "read_file"))
    messages.append(AIMessage((TextBlock("Tidied."),)))
    seed: Any = create_agent(
        _Asked(_Begin(), 1), [], checkpointer=agent.checkpointer, middleware=[]
    )
    await seed.ainvoke({"messages": [messages[0]]}, thread_id="t")
    await agent.update_state("t", {"messages": messages[1:]}, as_node="end")
