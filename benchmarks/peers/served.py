"""Servers as processes, which receive runs over HTTP. Their model answers immediately.

A run has five model calls and four tool calls, on a new thread. The same raw client is used for
each server, with one connection for each concurrent run.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import anyio

from benchmarks.client import REPO, WrongReply, cpu_seconds, end, environment
from benchmarks.http_client import HttpClient
from benchmarks.peers.sides import compared

__all__ = ["AT_ONCE", "GOAL", "Ask", "RunClient", "RunServer", "delegated", "our_server"]

GOAL = "rounds-0-4"
IN_TURN, AT_ONCE = 10, 100
START_SECONDS = 60.0

Row: TypeAlias = dict[str, float | int | None]


class RunClient(HttpClient):
    """A connection that requests one run after the other."""

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON to a path of the server, and return its JSON answer."""
        self._path = path
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        await self._send("POST", json.dumps(body).encode(), headers)
        return json.loads(await self._read_all(await self._head(200)))


Cost: TypeAlias = tuple[float, float]
"""Milliseconds, and milliseconds of processor time."""

Ask: TypeAlias = Callable[[RunClient], Awaitable[bool]]
"""Requests a run, waits for its end, and returns whether it is done."""


class RunServer:
    """A server as a child process.

    Args:
        command: The command that starts it; `{port}` stands for a free port.
        ask: Function of a client that requests a run.
        mcp: Whether requests are sent over MCP, at `/mcp`.
        cwd: Its working directory. Default: this checkout.
    """

    def __init__(
        self, command: Sequence[str], ask: Ask, *, mcp: bool = True, cwd: Path = REPO
    ) -> None:
        self._ask, self._mcp = ask, mcp
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}/mcp"
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._process = subprocess.Popen(
            [part.replace("{port}", str(port)) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=cwd,
            env=environment() | {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"},
        )
        self._wait_for(port)

    def in_turn(self, runs: int) -> Cost:
        """Return the cost of a run, for consecutive runs."""
        return self._timed(runs, 1)

    def at_once(self, runs: int) -> Cost:
        """Return the cost of a run, for concurrent runs."""
        return self._timed(1, runs)

    def _timed(self, each: int, clients: int) -> Cost:
        wall, processor = anyio.run(self._run_all, each, clients)
        runs = each * clients
        return 1_000 * wall / runs, 1_000 * processor / runs

    async def _run_all(self, each: int, clients: int) -> Cost:
        connections = [RunClient(self._url, "modern") for _ in range(clients)]
        for one in connections:
            await (one.open() if self._mcp else one.connect())
        before, began = cpu_seconds(self._process.pid), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for one in connections:
                tasks.start_soon(self._run_some, one, each)
        taken = time.perf_counter() - began, cpu_seconds(self._process.pid) - before
        for one in connections:
            await one.aclose()
        return taken

    async def _run_some(self, client: RunClient, runs: int) -> None:
        for _ in range(runs):
            if not await self._ask(client):
                raise WrongReply("a run was not done")

    def _wait_for(self, port: int) -> None:
        end = time.perf_counter() + START_SECONDS
        while time.perf_counter() < end and self._process.poll() is None:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        self.close()
        raise WrongReply(f"the server does not listen after {START_SECONDS:.0f} s")

    def close(self) -> None:
        """Stop the server."""
        end(self._process)
        self._log.close()


def delegated(peer: str, ours: RunServer, theirs: RunServer, rounds: int) -> dict[str, Row]:
    """Request runs from both servers alternately, and compare the costs of a run."""
    for server in (ours, theirs):
        server.in_turn(3)  # imports and connections are not part of the cost
    turns = [(ours.in_turn(IN_TURN), theirs.in_turn(IN_TURN)) for _ in range(rounds)]
    together = [(ours.at_once(AT_ONCE), theirs.at_once(AT_ONCE)) for _ in range(rounds)]
    return {
        f"{label}, {unit} a run": compared(peer, [(a[place], b[place]) for a, b in found])
        for label, found in (("delegated", turns), (f"{AT_ONCE} delegated at once", together))
        for place, unit in enumerate(("ms", "processor ms"))
    }


def our_server(folder: Path) -> RunServer:
    """Start our server for Streamable HTTP, with the agent of `ours_plain`."""
    options = ("--transport", "http", "--port", "{port}", "--state-dir", str(folder / "state"))
    agent = "benchmarks.peers.ours_plain:served"
    return RunServer((sys.executable, "-m", "deep_agent_mcp", "serve", agent, *options), _task)


async def _task(client: RunClient) -> bool:
    done = await client.call("task", {"goal": GOAL, "thread_id": "new"})
    return done["structuredContent"]["status"] == "done"
