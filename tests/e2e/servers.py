"""Real servers as child processes, and connections of the official client to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import yaml
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from deep_agent_mcp.harness.mcp_servers.transports import sse_streams
from tests.fork_server import Process, environment, stand_in, start

ROOT = Path(__file__).resolve().parents[2]
Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")
TRANSPORTS = ("stdio", "http", "sse")


@dataclass
class Setup:
    """Directory, flags and environment of a server.

    Attributes:
        place: Directory of the state, the root of the files, skills and the script.
        flags: Additional command-line flags.
        env: Additional environment variables.
        script: Content of the scripted model's file; None for the default model.
    """

    place: Path
    flags: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    script: Any = None

    def __post_init__(self) -> None:
        for path in (self.root, self.skills):
            path.mkdir(exist_ok=True)

    @property
    def root(self) -> Path:
        return self.place / "root"

    @property
    def skills(self) -> Path:
        return self.place / "skills"

    @property
    def state(self) -> Path:
        return self.place / "state"

    def command(self, transport: str) -> list[str]:
        flags = ["--state-dir", str(self.state), "--root", str(self.root)]
        flags += ["--skills", str(self.skills), "--transport", transport]
        if transport != "stdio":  # many tests leave runs that never end
            flags += ["--port", "0", "--drain-seconds", "0"]
        if self.script is not None:
            path = self.place / "script.yaml"
            path.write_text(yaml.safe_dump(self.script, sort_keys=False), encoding="utf-8")
            flags += ["--model", f"scripted:{path}"]
        return [sys.executable, "-m", "deep_agent_mcp", "serve", *flags, *self.flags]

    def environment(self) -> dict[str, str]:
        return environment(self.place, **self.env)

    def skill(self, name: str, description: str, body: str = "Do it.") -> None:
        folder = self.skills / name
        folder.mkdir(exist_ok=True)
        text = f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")

    def stdio(self) -> StdioServerParameters:
        env = self.environment()
        command, *args = stand_in(self.command("stdio"), env)
        return StdioServerParameters(command=command, args=args, env=env, cwd=self.place)

    @contextmanager
    def serving(self) -> Iterator[HttpServer]:
        """Serve Streamable HTTP and SSE until the block ends."""
        said, out = os.pipe()
        with (self.place / "stderr.txt").open("ab") as log, open(out, "wb") as its_out:
            process = start(
                self.command("http"),
                self.environment(),
                self.place,
                stdout=its_out.fileno(),
                stderr=log.fileno(),
            )
        server = HttpServer(process)
        with open(said, "rb") as stdout:
            try:
                line = stdout.readline()
                assert line, (self.place / "stderr.txt").read_text()
                server.listening = json.loads(line)
                yield server
            finally:
                server.stop()


@dataclass
class HttpServer:
    """A server process that is listening."""

    process: Process
    listening: dict[str, Any] = field(default_factory=dict)

    def target(self, transport: str) -> Any:
        if transport == "sse":
            return sse_streams(self.listening["sse_url"])
        return self.listening["url"]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


@asynccontextmanager
async def connected(target: Any, mode: Era, **options: Any) -> AsyncIterator[Client]:
    """Connect the official client; no call may take longer than a minute."""
    async with Client(target, mode=mode, read_timeout_seconds=60, **options) as client:
        yield client


@asynccontextmanager
async def served(setup: Setup, mode: Era, **options: Any) -> AsyncIterator[Client]:
    """Start a server and connect to it over HTTP; both end with the block."""
    with setup.serving() as server:
        async with connected(server.target("http"), mode, **options) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def data_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict), text_of(result)
    return cast("dict[str, Any]", result.structured_content)


def error_of(result: CallToolResult) -> str:
    assert result.is_error, text_of(result)
    return text_of(result)


async def call(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    """Call a tool that must succeed and return its structured content."""
    return data_of(await client.call_tool(tool, args))


async def refused(client: Client, tool: str, **args: Any) -> str:
    """Call a tool that must fail and return its text."""
    return error_of(await client.call_tool(tool, args))


async def until_progress(
    client: Client, needle: str, times: int, tool: str, **args: Any
) -> CallToolResult | None:
    """Call a tool, and cancel the call once a progress text has arrived `times` times."""
    seen = 0
    with anyio.CancelScope() as scope:

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            nonlocal seen
            seen += needle in (message or "")
            if seen >= times:
                scope.cancel()

        return await client.call_tool(tool, args, progress_callback=hear)
    return None
