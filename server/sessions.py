"""The registry of connections of the handshake era, so that changes can be announced to them.

Clients of 2026-07-28 listen on `subscriptions/listen`; older ones are told on their connection. The
SDK reaches that connection only from inside a request, so a middleware keeps the session of each
successful `initialize` until the connection ends, and corrects what that handshake promises: the
SDK says `listChanged: false` on its own (mcp 2.9).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST

from server.auth.caller import Caller, current_caller

__all__ = ["MAX_WATCHED", "SessionRegistry"]

MAX_WATCHED = 1_000
"""How many resources one connection may watch."""

SEND_SECONDS = 2.0
"""How long one slow client may hold up its own notice before it is dropped."""

logger = logging.getLogger(__name__)

Context: TypeAlias = ServerRequestContext[Any, Any]


def _connection(ctx: Context) -> Connection:
    # The SDK gives handlers no public name for the connection a request came on.
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


class SessionRegistry:
    """Connected clients of the handshake era and the resources each of them watches.

    Args:
        most: Connections that one principal may have open; without authentication there is no
            bound.

    Append `registry.middleware` to `Server.middleware`; route `resources/subscribe` and
    `resources/unsubscribe` to `subscribe` and `unsubscribe`.
    """

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._callers: dict[Connection, Caller] = {}
        self._sessions: dict[Connection, ServerSession] = {}
        self._watched: dict[Connection, set[str]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def middleware(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Register the session of a handshake that succeeds.

        Raises:
            MCPError: The caller has as many open as one may have.
        """
        if ctx.method == "initialize":
            self._require_room(_connection(ctx))
        result = await call_next(ctx)
        if ctx.method != "initialize" or not isinstance(result, dict):
            return result
        connection = _connection(ctx)
        if connection not in self._sessions:
            connection.exit_stack.callback(self._forget, connection)
        self._sessions[connection] = ctx.session
        self._callers[connection] = current_caller.get()
        return _promising_notices(result)

    def _require_room(self, connection: Connection) -> None:
        principal = current_caller.get().principal
        others = [one for one, caller in self._callers.items() if caller.principal == principal]
        if principal and len(others) >= self._most and connection not in others:
            raise MCPError(
                INVALID_REQUEST,
                f"You have {len(others)} connections open, which is the most there may be. Close "
                "one, or use a client of protocol 2026-07-28, which needs none.",
            )

    def subscribe(self, ctx: Context, uri: str) -> None:
        """Tell this connection when the resource changes.

        Raises:
            MCPError: It watches as many as one connection may.
        """
        watched = self._watched.setdefault(_connection(ctx), set())
        if len(watched) >= MAX_WATCHED and uri not in watched:
            raise MCPError(
                INVALID_REQUEST,
                f"This connection watches {MAX_WATCHED} resources, which is the most there may be. "
                "Unsubscribe from some.",
            )
        watched.add(uri)

    def unsubscribe(self, ctx: Context, uri: str) -> None:
        """Stop telling it; a URI it does not watch is fine."""
        self._watched.get(_connection(ctx), set()).discard(uri)

    async def tools_changed(self) -> None:
        """Announce that the list of tools changed."""
        await self._each(list(self._sessions), ServerSession.send_tool_list_changed)

    async def prompts_changed(self) -> None:
        """Announce that the list of prompts changed."""
        await self._each(list(self._sessions), ServerSession.send_prompt_list_changed)

    async def resources_changed(self, owner: str | None = None) -> None:
        """Announce that the list of resources changed; with an owner, only to them."""
        told = [one for one in self._sessions if self._concerns(one, owner)]
        await self._each(told, ServerSession.send_resource_list_changed)

    async def resource_updated(self, uri: str, owner: str | None = None) -> None:
        """Announce a change of a resource to those who watch it; with an owner, only to them."""
        watching = [
            connection
            for connection, uris in self._watched.items()
            if uri in uris and self._concerns(connection, owner)
        ]
        await self._each(watching, lambda session: session.send_resource_updated(uri))

    def _concerns(self, connection: Connection, owner: str | None) -> bool:
        caller = self._callers.get(connection)
        return owner is None or (caller is not None and caller.owner == owner)

    async def _each(
        self, connections: list[Connection], send: Callable[[ServerSession], Awaitable[None]]
    ) -> None:
        async def tell(session: ServerSession) -> None:
            with anyio.move_on_after(SEND_SECONDS) as scope:
                await send(session)
            if scope.cancelled_caught:
                logger.warning("a client took no notice for %s s; it was dropped", SEND_SECONDS)

        async with anyio.create_task_group() as tasks:
            for connection in connections:
                session = self._sessions.get(connection)
                if session is not None:
                    tasks.start_soon(tell, session)

    def _forget(self, connection: Connection) -> None:
        self._sessions.pop(connection, None)
        self._callers.pop(connection, None)
        self._watched.pop(connection, None)


def _promising_notices(result: dict[str, Any]) -> dict[str, Any]:
    capabilities = dict(cast("dict[str, dict[str, Any]]", result.get("capabilities") or {}))
    for kind in ("tools", "prompts", "resources"):
        if kind in capabilities:
            capabilities[kind] = {**capabilities[kind], "listChanged": True}
    return {**result, "capabilities": capabilities}
