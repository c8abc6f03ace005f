"""Our side, with a deep agent: `python -m benchmarks.peers.ours MEASURE …`.

`PEERS_STORED=end` stores a run at its end, not after each step.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.bare_loop import ScriptModel
from benchmarks.peers import measure
from deep_agent_mcp import Agent, Limits, RunOptions, create_deep_agent, tool

LIMITS = Limits(model_calls=100_000, tool_calls=100_000)


@tool
async def noop(number: int) -> str:
    """Do nothing."""
    return measure.RESULT


@dataclass
class Runs:
    """Runs of one agent, by thread name."""

    agent: Agent
    durability: Literal["sync", "exit"]
    threads: dict[str, str] = field(default_factory=dict[str, str])

    async def __call__(self, goal: str, thread: str) -> None:
        options = RunOptions(limits=LIMITS, durability=self.durability)
        result = await self.agent.ainvoke(goal, options=options)
        assert result.run.status == "done", result.run.reason
        self.threads[thread] = result.run.thread_id

    async def history(self, thread: str) -> int:
        """List the checkpoints of a thread."""
        return len(await self.agent.get_state_history(self.threads[thread], limit=10_000))

    async def states(self, thread: str) -> int:
        """List the checkpoints of a thread, and read the state after each."""
        thread_id = self.threads[thread]
        found = await self.agent.get_state_history(thread_id, limit=10_000)
        for one in found:
            await self.agent.get_state(thread_id, checkpoint_id=one.id)
        return len(found)


@asynccontextmanager
async def agent(journal: Path | None, *, parent: bool, delay: float) -> AsyncGenerator[Runs]:
    async with runs_of(create_deep_agent, journal, delay) as runs:
        yield runs


@asynccontextmanager
async def runs_of(
    create: Callable[..., Agent], journal: Path | None, delay: float
) -> AsyncGenerator[Runs]:
    """Create an agent with its journal in this file, or in memory."""
    async with AsyncExitStack() as stack:
        checkpointer = None
        if journal is not None:
            from deep_agent_mcp import SqliteCheckpointer

            checkpointer = await stack.enter_async_context(SqliteCheckpointer(journal))
        made = create(ScriptModel(delay), [noop], checkpointer=checkpointer)
        stack.push_async_callback(made.aclose)
        yield Runs(made, "exit" if os.environ.get("PEERS_STORED") == "end" else "sync")


async def prompt() -> int:
    """Return the characters of a model request before its first message."""

    class Recording(ScriptModel):
        async def stream(self, request: Any) -> Any:
            self.request = request
            async for piece in super().stream(request):
                yield piece

    model = Recording()
    await create_deep_agent(model, []).ainvoke("rounds-0-0")
    request = model.request
    tools = [
        {"name": one.name, "description": one.description, "input_schema": one.parameters}
        for one in request.tools
    ]
    return sum(len(one.text) for one in request.system) + sum(len(json.dumps(one)) for one in tools)


async def grep(root: str, pattern: str) -> int:
    return len((await _files(root).grep(pattern, limit=20_000)).matches)


async def glob(root: str, pattern: str) -> int:
    return len(await _files(root).glob(pattern, limit=20_000))


def _files(root: str) -> Any:
    from benchmarks.search import runtime_of
    from deep_agent_mcp import DirectoryBackend, MemoryCheckpointer

    return DirectoryBackend(root).open(runtime_of(MemoryCheckpointer()))


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
