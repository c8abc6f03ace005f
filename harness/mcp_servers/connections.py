"""Connections to MCP servers: opened on first use, reopened when they break, shared by event loops.

There is one connection to each server of a middleware. Callers on any event loop use it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
from pydantic import JsonValue

from .._internal.records import record
from ..errors import ToolError
from ..loop.run.interrupts import Interrupted
from ..tools.tool import ToolFunction, ToolResult, ToolRuntime
from .config import MCPServer, check_names, check_servers
from .elicitation import (
    Asked,
    CallChannel,
    CallEvent,
    Elicitation,
    Floor,
    Memory,
    NotSent,
    Progress,
    Restarted,
    Round,
    Unavailable,
)
from .event_loop_thread import EventLoopThread, WorkerStopped
from .tools import Listing, listing

if TYPE_CHECKING:
    from .session import ServerSession

__all__ = ["PAUSES", "Connection", "Pool", "ServerStatus"]


logger = logging.getLogger(__name__)

PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds without attempts after a server failed for the first, second … time in a row."""


@record
class ServerStatus:
    """Status of a mounted server.

    Attributes:
        state: Whether it can be used. A server that was not used yet, or whose connection ended, is
            `not connected`; the next use opens it.
        reason: Why it cannot be used.
        tools: How many of its tools are offered.
        left_out: Reasons for missing tools, by the server's own names.
    """

    state: Literal["connected", "failed", "not connected"]
    reason: str | None = None
    tools: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


class Connection:
    """A server's connection. Methods are for the worker's loop, attributes for any thread.

    Args:
        name: The server's name.
        server: How to reach it.
        servers: All configured servers.
        spawn: Starts a task that belongs to no caller.
        function: Creates the body of a tool from its own name.

    Attributes:
        listing: The last list of the server's tools, or None.
        problem: Why it cannot be used, or None.
    """

    def __init__(
        self,
        name: str,
        server: MCPServer,
        servers: Collection[str],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        function: Callable[[str], ToolFunction],
    ) -> None:
        self.listing: Listing | None = None
        self.problem: str | None = None
        self._name = name
        self._server = server
        self._servers = servers
        self._spawn = spawn
        self._function = function
        self._link: ServerSession | None = None
        self._changes = 0
        self._listed = -1
        self._failures = 0
        self._rest_until = 0.0
        self._floor = Floor()
        self._refreshing = anyio.Lock()

    @property
    def current(self) -> bool:
        """Whether the listing is up to date, or cannot be updated at the moment."""
        if self._resting:
            return True
        link = self._link
        return self._listed == self._changes and link is not None and link.alive

    @property
    def status(self) -> ServerStatus:
        """The known state of the server."""
        if self.problem is not None:
            return ServerStatus("failed", self.problem)
        link, known = self._link, self.listing
        if link is None or not link.alive or known is None:
            return ServerStatus("not connected")
        return ServerStatus("connected", None, len(known.tools), known.left_out)

    @property
    def _resting(self) -> bool:
        return time.monotonic() < self._rest_until

    async def refresh(self) -> None:
        """Update the listing, or set `problem` to the reason why that is not possible."""
        async with self._refreshing:
            if self.current:
                return
            try:
                link = self._open()
                try:
                    await self._list(link)
                except NotSent as error:
                    self._forget(link, error)
                    await self._list(self._open())
            except (NotSent, Unavailable) as error:
                self._failed(str(error))
            except Exception as error:  # an unexpected list must not end a run
                logger.exception("MCP server %s: its tools cannot be used", self._name)
                self._failed(f"its tools cannot be used: {error}")

    async def call(
        self, tool: str, args: Mapping[str, JsonValue], line: CallChannel, resume: Round | None
    ) -> ToolResult:
        """Return the result of a tool. A call that did not reach the server is repeated once.

        Raises:
            ToolError: There is no result; the text explains why.
        """
        try:
            link = await self._ready()
            try:
                return await link.call(tool, args, line, resume)
            except (NotSent, Unavailable) as error:
                self._forget(link, error)
                return await (await self._ready()).call(tool, args, line, resume)
        except (NotSent, Unavailable) as error:
            self._failed(str(error))
            raise ToolError(
                f"tool {tool!r} of MCP server {self._name!r} was not run: the server cannot be "
                f"used ({error}). Go on without it, or try again later."
            ) from error

    async def _ready(self) -> ServerSession:
        """Return an open session with known tools.

        Raises:
            Unavailable: There is no session.
        """
        await self.refresh()
        if self.problem is not None or self._link is None:
            raise Unavailable(self.problem or "it failed a moment ago")
        return self._link

    async def _list(self, link: ServerSession) -> None:
        changes = self._changes
        tools = await link.tools()
        self.listing = listing(self._name, tools, self._server.tools, self._servers, self._function)
        self._listed = changes  # not newer ones: a change in the meantime must not be lost
        self.problem = None
        self._failures = 0

    async def close(self) -> None:
        """End the session and wait until it is closed."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
            await link.ended.wait()

    def _open(self) -> ServerSession:
        from .session import ServerSession

        if self._link is None or not self._link.alive:
            self._link = ServerSession(self._name, self._server, self._floor, self._changed)
            self._changed()
            self._spawn(self._link.live)
        return self._link

    def _forget(self, link: ServerSession, error: NotSent | Unavailable) -> None:
        """Stop using a session that failed, unless a parallel call has replaced it already."""
        if link is not self._link:
            return
        self._changed()
        if isinstance(error, NotSent) and error.reopen:
            self._link = None
            link.retire()

    def _changed(self) -> None:
        self._changes += 1

    def _failed(self, problem: str) -> None:
        """Stop using the server for a while, unless it is already paused."""
        if self._resting:
            return
        if problem != self.problem:
            logger.warning("MCP server %s cannot be used: %s", self._name, problem)
        self.problem = problem
        self._changed()
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        self._rest_until = time.monotonic() + pause


_MAX_WAITING = 1_000
"""The most waiting calls with remembered questions."""

CallKey: TypeAlias = tuple[str, str, tuple[str, ...], str, str]


class Pool:
    """Connections to servers, by name.

    Raises:
        AgentBuildError: A value is not a server, or two names are too similar.
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
        """Return a server's connection; callers may only use its attributes."""
        return self._connections[server]

    async def refresh(self, servers: Collection[str]) -> None:
        """Update the listings of servers concurrently."""
        behind = [one for one in map(self.connection, servers) if not one.current]
        if not behind:
            return

        async def work(_send: Callable[[Any], None]) -> None:
            async with anyio.create_task_group() as group:
                for one in behind:
                    group.start_soon(one.refresh)

        with suppress(WorkerStopped):  # closed meanwhile, so there are no tools
            await self._worker.run(work)

    async def aclose(self) -> None:
        """Close all connections; a later use opens them again."""
        connections, self._connections = self._connections, self._connect()

        async def work(_send: Callable[[Any], None]) -> None:
            async with anyio.create_task_group() as group:
                for one in connections.values():
                    group.start_soon(one.close)

        if self._worker.alive:
            with suppress(WorkerStopped):  # another caller closes it too
                await self._worker.run(work)
            await self._worker.stop()

    async def call(self, server: str, tool: str, args: Mapping[str, JsonValue]) -> ToolResult:
        """Call a tool for a program; questions of the server are not answered.

        Raises:
            ToolError: There is no result; the text explains why.
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
        dialogue = Elicitation(runtime.interrupt, server, tool, memory)

        def hear(event: CallEvent) -> None:
            match event:
                case Asked(asked, reply):
                    reply(dialogue.answers(asked))
                case Restarted():
                    dialogue.restart()
                case Progress():
                    runtime.stream_writer(_progress(server, tool, event))

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


def _progress(server: str, tool: str, event: Progress) -> JsonValue:
    return {
        "type": "mcp_progress",
        "server": server,
        "tool": tool,
        "progress": event.progress,
        "total": event.total,
        "message": event.message,
    }
