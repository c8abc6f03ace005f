"""Our side, with an agent without todos, files or subagents; it can be run or served.

python -m benchmarks.peers.ours_plain MEASURE …
deep-agent-mcp serve benchmarks.peers.ours_plain:served
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.bare_loop import ScriptModel
from benchmarks.peers import measure
from benchmarks.peers.ours import Runs, noop, runs_of
from deep_agent_mcp import Agent, create_agent


def served() -> Agent:
    """Create the agent for our server."""
    return create_agent(ScriptModel(), [noop])


@asynccontextmanager
async def agent(journal: Path | None, *, parent: bool, delay: float) -> AsyncGenerator[Runs]:
    async with runs_of(create_agent, journal, delay) as runs:
        yield runs


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
