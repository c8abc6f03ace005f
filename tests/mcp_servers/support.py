"""MCP servers as child processes, and agents that use them."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware, StdioServer
from deep_agent_mcp.harness.messages.message import ToolMessage
from tests.fork_server import environment, stand_in, start
from tests.loop.models import Turns, says

ROOT = Path(__file__).parents[2]


def sdk_server(log: Path, era: str = "new", **options) -> StdioServer:
    server = [sys.executable, "-m", "tests.mcp_servers.sdk_server", "stdio", era, str(log)]
    command, *args = stand_in(server, {})
    return StdioServer(command, args, cwd=ROOT, **options)


def raw_server(habit: str = "behaves", file: Path | None = None, **options) -> StdioServer:
    args = ["-S", "-E", "-m", "tests.mcp_servers.raw_server", habit, *([str(file)] if file else [])]
    return StdioServer(sys.executable, args, cwd=ROOT, **options)


@contextmanager
def http_server(log: Path, era: str = "new", port: int = 0) -> Iterator[int]:
    """Serve on a free port, and yield it."""
    command = [
        sys.executable,
        "-m",
        "tests.mcp_servers.sdk_server",
        "http",
        era,
        str(log),
        str(port),
    ]
    said, out = os.pipe()
    with open(said, "rb") as stdout:
        with open(out, "wb"):
            process = start(command, environment(ROOT), ROOT, stdout=out, stderr=2)
        try:
            yield json.loads(stdout.readline())
        finally:
            process.kill()
            process.wait(60)


def agent_with(middleware: MCPToolsMiddleware, *turns, **options) -> Agent:
    """Return an agent whose model gives these calls or answers in order, and then says `ok`."""
    answers = [one if not isinstance(one, tuple) else says("", *one) for one in turns]
    return create_agent(Turns(*answers, says("ok")), middleware=[middleware], **options)


def results(result) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


async def until(condition) -> None:
    """Wait for a condition in another thread or process, for which there is no event."""
    with anyio.fail_after(25):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)
