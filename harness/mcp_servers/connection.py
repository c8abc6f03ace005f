"""The standing connection to one server: opened on first use, opened again after it broke."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import anyio
from pydantic import JsonValue

from .._internal.records import record
from ..errors import ToolError
from ..tools.tool import ToolFunction, ToolResult
from .call_channel import CallChannel, Floor, NotSent, Unavailable
from .config import MCPServer
from .elicitation import Round
from .tools import Listing, listing

if TYPE_CHECKING:
    from .session import ServerSession

__all__ = ["PAUSES", "Connection", "ServerStatus"]

logger = logging.getLogger(__name__)

PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds to leave a server alone after it failed for the first, second … time in a row."""


@record
class ServerStatus:
    """How a server is doing.

    Attributes:
        state: Whether it can be used. A server that nobody has needed yet is `not connected`, and
            so is one whose connection ended: the next use opens it again.
        reason: Why it cannot be used.
        tools: How many of its tools are offered.
        left_out: Why some of them are missing, by the server's own names.
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
        spawn: Begins a task that belongs to no caller.
        function: Makes the body of a tool from its own name.

    Attributes:
        listing: What the server offered last, or None.
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
        """Whether the listing is up to date, or nothing can be done about it at the moment."""
        if self._resting:
            return True
        link = self._link
        return self._listed == self._changes and link is not None and link.alive

    @property
    def status(self) -> ServerStatus:
        """How the server is doing, as far as that is known."""
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
        """Bring the listing up to date, or say in `problem` why that cannot be done."""
        async with self._refreshing:
            if self.current:
                return
            try:
                try:
                    await self._list()
                except NotSent as error:
                    self._forget(error)
                    await self._list()
            except (NotSent, Unavailable) as error:
                self._failed(str(error))
            except Exception as error:  # a list that nobody thought of must not end a run
                logger.exception("MCP server %s: its tools cannot be used", self._name)
                self._failed(f"its tools cannot be used: {error}")

    async def call(
        self, tool: str, args: Mapping[str, JsonValue], line: CallChannel, resume: Round | None
    ) -> ToolResult:
        """Return the result of a tool. A call that did not reach the server is sent once more.

        Raises:
            ToolError: There is no result; the text says what is known.
        """
        try:
            try:
                return await (await self._ready()).call(tool, args, line, resume)
            except (NotSent, Unavailable) as error:
                self._forget(error)
                return await (await self._ready()).call(tool, args, line, resume)
        except (NotSent, Unavailable) as error:
            self._failed(str(error))
            raise ToolError(
                f"tool {tool!r} of MCP server {self._name!r} was not run: the server cannot be "
                f"used ({error}). Go on without it, or try again later."
            ) from error

    async def _ready(self) -> ServerSession:
        """Return an open session whose tools are known.

        Raises:
            Unavailable: There is none.
        """
        await self.refresh()
        if self.problem is not None or self._link is None:
            raise Unavailable(self.problem or "it failed a moment ago")
        return self._link

    async def _list(self) -> None:
        link = self._open()
        changes = self._changes
        tools = await link.tools()
        self.listing = listing(self._name, tools, self._server.tools, self._servers, self._function)
        self._listed = changes  # not newer ones: a change in the meantime must not be lost
        self.problem = None
        self._failures = 0

    async def close(self) -> None:
        """End the session and wait until it is left."""
        link = self._link
        self._drop()
        if link is not None:
            await link.ended.wait()

    def _open(self) -> ServerSession:
        from .session import ServerSession

        if self._link is None or not self._link.alive:
            self._link = ServerSession(self._name, self._server, self._floor, self._changed)
            self._changed()
            self._spawn(self._link.live)
        return self._link

    def _forget(self, error: NotSent | Unavailable) -> None:
        self._changed()
        if isinstance(error, NotSent) and error.reopen:
            self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _changed(self) -> None:
        self._changes += 1

    def _failed(self, problem: str) -> None:
        """Leave the server alone for a while, unless it is left alone already."""
        if self._resting:
            return
        self.problem = problem
        self._changed()
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        self._rest_until = time.monotonic() + pause
