"""The demo's side of the protocol: calls through the official client, shown as they are made.

The server is a child process on stdio that the demo owns, so that it can be killed at any moment.
The SDK's own `stdio_client` keeps its process to itself; everything else works the same way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client.stdio import get_default_environment
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, TextContent, TextResourceContents, jsonrpc_message_adapter

import deep_agent_mcp

from .view import DemoFailed, RunTree, View

__all__ = ["Conversation", "Facts", "ServerProcess"]


Facts: TypeAlias = dict[str, Any]
"""The structured content of a result."""

MAX_SHOWN = 48
MAX_ROUNDS = 20


class Conversation:
    """Calls tools over one connection.

    Args:
        client: Connected.
        view: Where calls are shown.
        thread_id: The thread to work in, once there is one.
    """

    def __init__(self, client: Client, view: View, thread_id: str = "") -> None:
        self._client = client
        self._view = view
        self.thread_id = thread_id

    async def call(self, tool: str, /, **args: Any) -> tuple[str, Facts]:
        """Call a tool on the thread; return its text and its facts.

        Raises:
            DemoFailed: It failed.
        """
        self._view.call(tool, _shown(args))
        if self.thread_id:
            args["thread_id"] = self.thread_id
        return _checked(tool, await self._client.call_tool(tool, args))

    async def delegate(
        self,
        tool: str,
        tree: RunTree,
        begins_to_think: Callable[[tuple[str, ...]], object] = lambda _: None,
        /,
        **args: Any,
    ) -> Facts:
        """Call `task`, `wait` or `reply` until the run is done or asks something.

        Args:
            tool: The tool.
            tree: Hears the progress.
            begins_to_think: Called with the names of an agent whose model is called.
            args: Of the tool.

        Raises:
            DemoFailed: The run failed.
            MCPError: The connection broke.
        """
        self._view.call(tool, _shown(args))
        with self._view.waiting("waiting for the run") as show:

            async def on_progress(
                progress: float, total: float | None, message: str | None
            ) -> None:
                show(message or "")
                agents = tree.hear(message or "")
                if agents:
                    begins_to_think(agents)

            for _ in range(MAX_ROUNDS):
                result = await self._client.call_tool(tool, args, progress_callback=on_progress)
                _, facts = _checked(tool, result)
                if facts["status"] != "running":
                    return facts
                tool, args = "wait", {"run_id": facts["run_id"]}
        raise DemoFailed(f"run {args['run_id']} is still working after {MAX_ROUNDS} waits")

    async def read(self, part: str) -> str:
        """Return a resource of the thread, such as `todos` or `transcript`.

        Raises:
            DemoFailed: It is not text, or not there.
        """
        uri = f"thread://{self.thread_id}/{part}"
        try:
            result = await self._client.read_resource(uri, cache_mode="bypass")
        except MCPError as error:
            raise DemoFailed(f"resource {uri}: {error}") from error
        content = result.contents[0]
        if not isinstance(content, TextResourceContents):
            raise DemoFailed(f"resource {uri} is not text")
        return content.text


def _checked(tool: str, result: CallToolResult) -> tuple[str, Facts]:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = texts[0] if texts else ""
    if result.is_error:
        raise DemoFailed(f"{tool} failed: {text}")
    return text, dict(result.structured_content or {})


def _shown(args: Facts) -> str:
    parts: list[str] = []
    for name, value in args.items():
        text = json.dumps(value, ensure_ascii=False)
        parts.append(f"{name}={text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + '...'}")
    return ", ".join(parts)


MAX_LINE_BYTES = 16 << 20
EXIT_SECONDS = 5.0

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception],
    MemoryObjectSendStream[SessionMessage],
]


class ServerProcess:
    """Starts `deep-agent-mcp serve` as often as asked, one process at a time.

    Args:
        arguments: Of `serve`.
        folder: Where it runs, so that no package in the user's directory can be in its way.
        log: File for its stderr; appended to.
        variables: Environment variables it gets besides the harmless ones.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, log: Path, variables: Sequence[str] = ()
    ) -> None:
        self._command = [sys.executable, "-m", "deep_agent_mcp", "serve", *arguments]
        self._folder = folder
        self.log = log
        self._env = get_default_environment()
        self._env.update({name: os.environ[name] for name in variables if name in os.environ})
        self._env["PYTHONPATH"] = str(Path(deep_agent_mcp.__file__).resolve().parents[1])
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End the server at once: SIGKILL, or TerminateProcess on Windows."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()

    async def died(self) -> int:
        """Wait until the process is gone and return its exit code (minus a signal's number)."""
        assert self._process is not None
        return await self._process.wait()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Streams]:
        """Start the server and yield the message streams of a transport for `mcp.Client`."""
        with self.log.open("ab") as log:
            process = await anyio.open_process(
                self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=self._folder,
                env=self._env,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        self._process = process
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_lines, process, incoming)
            tasks.start_soon(_write_lines, process, outgoing)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop(process)
                for stream in (read, write):
                    stream.close()
                tasks.cancel_scope.cancel()


async def _read_lines(
    process: Process, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    assert process.stdout is not None
    lines = BufferedByteReceiveStream(process.stdout)
    with incoming, suppress(anyio.IncompleteRead, anyio.EndOfStream, OSError):
        while True:
            line = await lines.receive_until(b"\n", MAX_LINE_BYTES)
            try:
                message: SessionMessage | Exception = SessionMessage(
                    jsonrpc_message_adapter.validate_json(line, by_name=False)
                )
            except ValueError as error:
                message = error
            try:
                await incoming.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write_lines(
    process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    closed = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
    with outgoing, suppress(*closed):
        async for one in outgoing:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(text.encode() + b"\n")


async def _stop(process: Process) -> None:
    """End the process the polite way, by closing its stdin, and make sure that it is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    with anyio.move_on_after(EXIT_SECONDS):
        await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(EXIT_SECONDS):  # wait() also waits for whoever has our pipes
            await process.wait()
    await process.stdout.aclose()
