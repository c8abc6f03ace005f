"""The agent of the replica benchmarks: its model follows the goal, and its tools write a log.

A goal is a sequence of commands, such as `work 2 ask work 1`. `work 3` runs three rounds of `note`
and `pay`, `nap 2` a tool that takes two seconds, `think 2` a model call that takes two seconds, and
`ask` a call that needs approval. Each tool writes `begin <tool> <call> <pid> <run> <ns>` and `end
…` to the file in `REPLICA_EFFECTS`, with the system's monotonic clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Sequence

import anyio

from deep_agent_mcp import Agent, create_deep_agent, tool
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
)
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.tool import ToolRuntime

__all__ = ["EFFECTS", "agent", "rounds_of"]

EFFECTS = "REPLICA_EFFECTS"
"""Environment variable with the path of the log."""

PAUSE = "REPLICA_PAUSE"
"""Environment variable with the seconds that a tool of `work` takes."""


def rounds_of(goal: str) -> list[tuple[str, float]]:
    """Parse a goal: return a word and a number for each round of the model."""
    words = goal.split()
    rounds: list[tuple[str, float]] = []
    while words:
        word = words.pop(0)
        number = float(words.pop(0)) if words and words[0].replace(".", "").isdigit() else 1.0
        rounds += [(word, number)] if word != "work" else [("work", 1.0)] * int(number)
    return rounds


class _Model:
    """A model that answers with the next round of the goal, according to the transcript."""

    name = "script:replicas"
    context_window = 1_000_000
    native_output = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        goal, done = _newest_goal(request.messages)
        rounds = rounds_of(goal)
        word, number = rounds[done] if done < len(rounds) else ("end", 0.0)
        if word == "think":
            await anyio.sleep(number)
        calls = {
            "work": ("note", "pay"),
            "nap": ("nap",),
            "ask": ("deploy",),
            "think": ("note",),
        }.get(word, ())
        args = {"seconds": number} if word == "nap" else {"turn": done}
        if calls:
            stem = f"{len(request.messages)}-{done}"
            yield AIMessage(
                tuple(
                    ToolCall(f"{stem}-{name}-{os.urandom(4).hex()}", name, args) for name in calls
                )
            )
        else:
            yield AIMessage((TextBlock(f"Finished {goal}."),))

    async def aclose(self) -> None:
        """Do nothing."""


def _newest_goal(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the newest goal, and the number of answers after it."""
    at = max(n for n, one in enumerate(messages) if isinstance(one, HumanMessage))
    done = sum(isinstance(one, AIMessage) for one in messages[at:])
    return messages[at].text, done


def agent() -> Agent:
    """Create the agent; the server provides its journal."""
    log = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pause = float(os.environ.get(PAUSE, "0.02"))

    async def act(name: str, runtime: ToolRuntime, seconds: float) -> str:
        line = f"{name} {runtime.tool_call_id} {os.getpid()} {runtime.run_id}"
        os.write(log, f"begin {line} {time.monotonic_ns()}\n".encode())
        await anyio.sleep(seconds)
        os.write(log, f"end {line} {time.monotonic_ns()}\n".encode())
        return f"done: {runtime.tool_call_id}"

    @tool
    async def note(turn: int, runtime: ToolRuntime) -> str:
        """Leave a line."""
        return await act("note", runtime, pause)

    @tool(once=True)
    async def pay(turn: int, runtime: ToolRuntime) -> str:
        """Leave a line, at most once."""
        return await act("pay", runtime, pause)

    @tool(once=True)
    async def nap(seconds: float, runtime: ToolRuntime) -> str:
        """Leave a line, and take a while."""
        return await act("nap", runtime, seconds)

    @tool(once=True)
    async def deploy(turn: int, runtime: ToolRuntime) -> str:
        """Leave a line, with approval."""
        return await act("deploy", runtime, 0)

    return create_deep_agent(_Model(), [note, pay, nap, deploy], interrupt_on={"deploy": True})
