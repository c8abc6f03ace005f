"""The baseline for our loop: a model, a tool and the minimal code to combine them.

Both sides use this model and this tool. A goal is `rounds-0-<n>`, which calls the tool n times, or
`fan-0-<n>`, which starts n subagents in parallel with the goal `rounds-0-1`. The model chooses the
next turn by the last message. So one model serves any number of runs, and its time does not depend
on their length.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatModel, ChatRequest, Delta

__all__ = ["ScriptModel", "bare_loop", "bare_parent", "noop"]

BareTool = Callable[..., Awaitable[str]]


async def noop(number: int) -> str:
    """Do nothing."""
    return f"done {number}"


class ScriptModel:
    """A model that answers after `delay` seconds."""

    name = "script:benchmark"
    context_window = 1_000_000
    native_output = False

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        answer = _answer(request.messages)
        if self._delay:
            await anyio.sleep(self._delay)
        yield Delta("text", answer.text)
        yield answer

    async def aclose(self) -> None:
        """Do nothing."""


def _answer(messages: Sequence[Message]) -> AIMessage:
    kind, done, total = _place(messages)
    if kind == "rounds" and done < total:
        call = ToolCall(f"rounds-{done + 1}-{total}", "noop", {"number": done})
        return AIMessage((TextBlock("Next."), call))
    if kind == "fan" and done == 0:
        calls = [
            ToolCall(f"fan-{number}-{total}", "task", {"description": "rounds-0-1"})
            for number in range(1, total + 1)
        ]
        return AIMessage((TextBlock("All at once."), *calls))
    return AIMessage((TextBlock("Finished."),))


def _place(messages: Sequence[Message]) -> tuple[str, int, int]:
    for message in reversed(messages):
        text = message.tool_call_id if isinstance(message, ToolMessage) else message.text
        if text.startswith(("rounds-", "fan-")):
            kind, done, total = text.split("-")
            return kind, int(done), int(total)
    raise ValueError("the transcript holds no goal of this benchmark")


async def bare_loop(model: ChatModel, tools: Mapping[str, BareTool], goal: str) -> list[Message]:
    """Run until the model calls no tool; return the messages."""
    messages: list[Message] = [HumanMessage(goal)]
    while True:
        answer: AIMessage | None = None
        async for piece in model.stream(ChatRequest(messages)):
            if isinstance(piece, AIMessage):
                answer = piece
        assert answer is not None
        messages.append(answer)
        calls = answer.tool_calls
        if not calls:
            return messages
        if len(calls) == 1:
            messages.append(await _result(tools, calls[0]))
            continue
        results: dict[str, ToolMessage] = {}

        async def run(call: ToolCall, results: dict[str, ToolMessage] = results) -> None:
            results[call.id] = await _result(tools, call)

        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(run, call)
        messages += [results[call.id] for call in calls]


async def _result(tools: Mapping[str, BareTool], call: ToolCall) -> ToolMessage:
    return ToolMessage(call.id, await tools[call.name](**call.args), name=call.name)


def bare_parent(model: ChatModel) -> Mapping[str, BareTool]:
    """Return the tools of an agent with a subagent."""

    async def task(description: str) -> str:
        last: Any = (await bare_loop(model, {"noop": noop}, description))[-1]
        return last.text

    return {"noop": noop, "task": task}
