"""A durable run, where each step is on disk before the next: our agent, or a minimal loop.

`python -m benchmarks.durable_round bare|ours ROUNDS` runs this number of rounds: a model answer
with a call, and its result. Both sides use the model and the tool of `bare_loop`. Ours is the
default deep agent with a SQLite journal. The other is the bare loop with seven pass-through
middlewares. It writes two synced SQLite rows per round with aiosqlite, which our journal also uses:
one for the answer, one for the result.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import anyio

from benchmarks.bare_loop import ScriptModel, noop
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatRequest

__all__ = ["main"]

MIDDLEWARES = 7
Handler = Callable[[Any], Awaitable[Any]]


class PassThrough:
    """A middleware with all hooks that changes nothing."""

    async def before_model(self, messages: list[Message]) -> None:
        """Change nothing."""

    async def after_model(self, messages: list[Message]) -> None:
        """Change nothing."""

    async def wrap_model_call(self, request: Any, handler: Handler) -> Any:
        return await handler(request)

    async def wrap_tool_call(self, request: Any, handler: Handler) -> Any:
        return await handler(request)


async def store(rows: aiosqlite.Connection, value: Any) -> None:
    """Add one row; it is on disk after the call."""
    await rows.execute("INSERT INTO rows (value) VALUES (?)", (json.dumps(value),))
    await rows.commit()


async def bare(goal: str, file: Path) -> None:
    """Run until the model calls no tool."""
    async with aiosqlite.connect(file) as rows:
        await rows.execute("PRAGMA journal_mode = WAL")
        await rows.execute("PRAGMA synchronous = FULL")
        await rows.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        await _loop(goal, rows)


async def _loop(goal: str, rows: aiosqlite.Connection) -> None:
    model, stack = ScriptModel(), [PassThrough() for _ in range(MIDDLEWARES)]

    ask: Handler = partial(_answer, model)
    use: Handler = _result
    for one in reversed(stack):
        ask = partial(one.wrap_model_call, handler=ask)
        use = partial(one.wrap_tool_call, handler=use)
    messages: list[Message] = [HumanMessage(goal)]
    while True:
        for one in stack:
            await one.before_model(messages)
        said: AIMessage = await ask(ChatRequest(messages))
        messages.append(said)
        for one in reversed(stack):
            await one.after_model(messages)
        calls = [{"id": one.id, "name": one.name, "args": one.args} for one in said.tool_calls]
        await store(rows, {"id": said.id, "type": "ai", "content": said.text, "calls": calls})
        if not calls:
            return
        for call in said.tool_calls:
            result: ToolMessage = await use(call)
            messages.append(result)
            stored = {"type": "tool", "tool_call_id": call.id, "name": call.name}
            await store(rows, {**stored, "id": result.id, "content": result.text})


async def _answer(model: ScriptModel, request: ChatRequest) -> AIMessage:
    async for piece in model.stream(request):
        if isinstance(piece, AIMessage):
            return piece
    raise AssertionError("the model did not answer")


async def _result(call: ToolCall) -> ToolMessage:
    return ToolMessage(call.id, await noop(**call.args), name=call.name)


async def ours(goal: str, file: Path) -> None:
    """Run the default deep agent."""
    from deep_agent_mcp.harness.agent import RunOptions
    from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
    from deep_agent_mcp.harness.deep_agent import create_deep_agent
    from deep_agent_mcp.harness.limits.limits import Limits

    limits = Limits(model_calls=1_000_000, tool_calls=1_000_000)
    async with SqliteCheckpointer(file) as journal:
        agent = create_deep_agent(ScriptModel(), [noop], checkpointer=journal)
        result = await agent.ainvoke(goal, options=RunOptions(limits=limits))
        if result.run.status != "done":
            raise RuntimeError(f"the run ended as {result.run.status}: {result.run.reason}")


def main(side: str, rounds: int) -> None:
    """Run one side."""
    with tempfile.TemporaryDirectory() as folder:
        work = {"bare": bare, "ours": ours}[side]
        anyio.run(work, f"rounds-0-{rounds}", Path(folder) / "rows.db")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
