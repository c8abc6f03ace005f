"""The servers of a middleware and their connections, as callers on any event loop use them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import anyio
from pydantic import JsonValue

from ..errors import ToolError
from ..loop.run.interrupts import Interrupted
from ..tools.tool import ToolFunction, ToolResult, ToolRuntime
from .call_channel import Asked, CallChannel, CallEvent, Progress, Restarted
from .config import MCPServer, check_servers
from .connection import Connection
from .elicitation import Elicitation, Memory
from .event_loop_thread import EventLoopThread, WorkerStopped
from .names import check_names

__all__ = ["Pool"]

_MAX_WAITING = 1_000
"""Calls that wait for an answer and whose questions are remembered."""

CallKey: TypeAlias = tuple[str, str, tuple[str, ...], str, str]


class Pool:
    """Connections to servers, by name.

    Raises:
        AgentBuildError: A value is no server, or two names read alike.
    """

    def __init__(self, servers: Mapping[str, MCPServer]) -> None:
        check_servers(servers)
        check_names(servers)
        self.servers = dict(servers)
        self._worker = EventLoopThread("mcp-servers")
        self._waiting: OrderedDict[CallKey, Memory] = OrderedDict()
        self._connections = self._connect()

    def _connect(self) -> dict[str, Connection]:
        return {
            name: Connection(name, server, self.servers, self._worker.spawn, self._body_of(name))
            for name, server in self.servers.items()
        }

    def connection(self, server: str) -> Connection:
        """Return what is known of a server; only its attributes are for callers."""
        return self._connections[server]

    async def refresh(self, servers: Collection[str]) -> None:
        """Bring the listings of servers up to date, all at once."""
        behind = [one for one in map(self.connection, servers) if not one.current]
        if not behind:
            return

        async def work(_send: Callable[[Any], None]) -> None:
            async with anyio.create_task_group() as group:
                for one in behind:
                    group.start_soon(one.refresh)

        with suppress(WorkerStopped):  # closed meanwhile: there are no tools then
            await self._worker.run(work)

    async def aclose(self) -> None:
        """Close all connections; a later use opens them again."""
        connections, self._connections = self._connections, self._connect()

        async def work(_send: Callable[[Any], None]) -> None:
            async with anyio.create_task_group() as group:
                for one in connections.values():
                    group.start_soon(one.close)

        if self._worker.alive:
            with suppress(WorkerStopped):  # somebody else closes it too
                await self._worker.run(work)
            await self._worker.stop()

    async def call(self, server: str, tool: str, args: Mapping[str, JsonValue]) -> ToolResult:
        """Call a tool for a program; what the server asks meanwhile is left without an answer.

        Raises:
            ToolError: There is no result; the text says what is known.
        """

        def hear(event: CallEvent) -> None:
            if isinstance(event, Asked):
                event.reply(None)

        async def work(send: Callable[[CallEvent], None]) -> ToolResult:
            return await self.connection(server).call(tool, args, CallChannel(send), None)

        try:
            return await self._worker.run(work, hear)
        except WorkerStopped as error:
            raise ToolError(f"MCP server {server!r}: the connection was closed") from error

    def _body_of(self, server: str) -> Callable[[str], ToolFunction]:
        def body(tool: str) -> ToolFunction:
            return partial(self._call, server, tool)

        return body

    async def _call(
        self, server: str, tool: str, args: dict[str, Any], runtime: ToolRuntime
    ) -> ToolResult:
        """Run a server's tool for a call of an agent."""
        key = (runtime.thread_id, runtime.run_id, runtime.agent_path, server, tool)
        memory = self._waiting.pop(key, None) or Memory()
        payload: dict[str, JsonValue] = {"server": server, "tool": tool}
        dialogue = Elicitation(runtime.interrupt, payload, memory)

        def hear(event: CallEvent) -> None:
            match event:
                case Asked(asked, reply):
                    reply(dialogue.answers(asked))
                case Restarted():
                    dialogue.restart()
                case Progress():
                    runtime.stream_writer(_progress(payload, event))

        async def work(send: Callable[[CallEvent], None]) -> ToolResult:
            return await self.connection(server).call(tool, args, CallChannel(send), resume)

        try:
            resume = dialogue.resume()
            return await self._worker.run(work, hear)
        except Interrupted:
            self._waiting[key] = memory
            while len(self._waiting) > _MAX_WAITING:
                self._waiting.popitem(last=False)
            raise
        except WorkerStopped as error:
            raise ToolError(
                f"tool {tool!r} of MCP server {server!r}: the connection was closed during the "
                "call. Whether the tool acted is unknown."
            ) from error


def _progress(payload: Mapping[str, JsonValue], event: Progress) -> JsonValue:
    return {
        "type": "mcp_progress",
        **payload,
        "progress": event.progress,
        "total": event.total,
        "message": event.message,
    }
