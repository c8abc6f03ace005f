"""Sessions of clients, and announcements of changes to them.

Clients of 2026-07-28 listen on `subscriptions/listen`; older ones get notices on their connection.
The SDK gives access to that connection only inside a request, so a middleware keeps the session of
each successful `initialize` until the connection ends. It also corrects the capabilities in that
handshake, where the SDK sets `listChanged: false`.

Changes of threads are collected for a moment and sent together, because a run commits many steps
per second, and a notified client reads everything again. Tools never change, except for the list of
subagents in the description of `task`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST

from ..auth.caller import Caller, current_caller, owner_of
from ..runs.active_run import WRITING, ThreadPart
from .uris import OWN_URIS, moved_uri, owned_uri, thread_uri

__all__ = ["MAX_WATCHED", "Announcements", "Relay", "SessionRegistry"]


MAX_WATCHED = 1_000
"""How many resources one connection may watch."""

logger = logging.getLogger(__name__)

Context: TypeAlias = ServerRequestContext[Any, Any]
Send: TypeAlias = Callable[[ServerSession], Awaitable[None]]


def _connection(ctx: Context) -> Connection:
    # The SDK gives handlers no public name for the connection a request came on.
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


@dataclass(slots=True, eq=False)
class _Client:
    """A connection, with the notices that are not yet sent to it.

    Attributes:
        session: The SDK's session, which sends to it.
        caller: The caller behind it.
        watched: The resources to which it has subscribed.
        notices: Notices to send, by content, so that equal notices are sent once.
        sending: Cancels the current sending; None if nothing is being sent.
    """

    session: ServerSession
    caller: Caller
    watched: set[str] = field(default_factory=set[str])
    notices: dict[str, Send] = field(default_factory=dict[str, Send])
    sending: anyio.CancelScope | None = None

    async def send(self, scope: anyio.CancelScope) -> None:
        """Send all notices, as long as the client reads and the connection lasts."""
        with scope:
            while self.notices:
                send = self.notices.pop(next(iter(self.notices)))
                try:
                    await send(self.session)
                except Exception:
                    logger.exception("a client was not notified of a change")
        self.sending = None


class SessionRegistry:
    """Connected clients of the handshake era and the resources each of them watches.

    Each client gets notices at its own pace: one that does not read delays no other.

    Args:
        most: The most open connections of one principal; without authentication there is no
            limit.

    Attributes:
        most: The same limit, for new connections.
        watched: How many resources all connections watch.

    Serve `initialize` through `registering`; route `resources/subscribe` and
    `resources/unsubscribe` to `subscribe` and `unsubscribe`; `run` sends what is announced.
    """

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.watched = 0
        self._clients: dict[Connection, _Client] = {}
        self._wake = anyio.Event()

    def __len__(self) -> int:
        return len(self._clients)

    async def registering(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Serve `initialize`, and register the session if that succeeds.

        Raises:
            MCPError: The caller has too many open connections.
        """
        connection = _connection(ctx)
        self._require_room(connection)
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        known = self._clients.get(connection)
        if known is None:
            connection.exit_stack.callback(self._forget, connection)
            self._clients[connection] = _Client(ctx.session, current_caller.get())
        else:
            known.session, known.caller = ctx.session, current_caller.get()
        return _promising_notices(result)

    def _require_room(self, connection: Connection) -> None:
        principal = current_caller.get().principal
        others = [one for one, it in self._clients.items() if it.caller.principal == principal]
        if principal and len(others) >= self.most and connection not in others:
            raise MCPError(
                INVALID_REQUEST,
                f"You have {len(others)} connections open, the most allowed. Nothing was opened. "
                "Close one, or use a client of protocol 2026-07-28, which needs none.",
            )

    def subscribe(self, ctx: Context, uri: str) -> None:
        """Notify this connection when the resource changes.

        Raises:
            MCPError: It watches too many resources.
        """
        watched = self._clients[_connection(ctx)].watched
        if len(watched) >= MAX_WATCHED and uri not in watched:
            raise MCPError(
                INVALID_REQUEST,
                f"This connection watches {MAX_WATCHED} resources, the most allowed. "
                "Unsubscribe from some.",
            )
        self.watched += uri not in watched
        watched.add(uri)

    def unsubscribe(self, ctx: Context, uri: str) -> None:
        """Stop notifying this connection; a URI that it does not watch is ignored."""
        client = self._clients[_connection(ctx)]
        self.watched -= uri in client.watched
        client.watched.discard(uri)
        client.notices.pop(uri, None)

    def tools_changed(self) -> None:
        """Announce that the list of tools changed."""
        self._tell(self._clients.values(), "tools", ServerSession.send_tool_list_changed)

    def prompts_changed(self) -> None:
        """Announce that the list of prompts changed."""
        self._tell(self._clients.values(), "prompts", ServerSession.send_prompt_list_changed)

    def resources_changed(self, owner: str | None = None) -> None:
        """Announce that the list of resources changed; if there is an owner, only to them."""
        self._tell(self._of(owner), "resources", ServerSession.send_resource_list_changed)

    def resource_updated(self, uri: str, owner: str | None = None) -> None:
        """Announce a change of a resource to its watchers; if there is an owner, only to them."""
        watching = [one for one in self._of(owner) if uri in one.watched]
        self._tell(watching, uri, lambda session: session.send_resource_updated(uri))

    async def run(self) -> None:
        """Send the announcements; never returns."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                for one in self._clients.values():
                    if one.notices and one.sending is None:
                        one.sending = anyio.CancelScope()
                        tasks.start_soon(one.send, one.sending)

    def _of(self, owner: str | None) -> list[_Client]:
        return [one for one in self._clients.values() if owner in (None, one.caller.owner)]

    def _tell(self, clients: Iterable[_Client], what: str, send: Send) -> None:
        for one in clients:
            one.notices[what] = send
        self._wake.set()

    def _forget(self, connection: Connection) -> None:
        gone = self._clients.pop(connection)
        self.watched -= len(gone.watched)
        if gone.sending is not None:
            gone.sending.cancel()


def _promising_notices(result: dict[str, Any]) -> dict[str, Any]:
    capabilities = dict(cast("dict[str, dict[str, Any]]", result.get("capabilities") or {}))
    for kind in ("tools", "prompts", "resources"):
        if kind in capabilities:
            capabilities[kind] = {**capabilities[kind], "listChanged": True}
    return {**result, "capabilities": capabilities}


COLLECT_SECONDS = 0.1
"""Seconds for which changes of threads are collected before they are announced."""


class _LocalBus(InMemorySubscriptionBus):
    """Reaches the listeners of this process.

    Attributes:
        listeners: How many there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listeners = 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener, and return a function that removes it."""
        unsubscribe = super().subscribe(listener)
        self.listeners += 1
        subscribed = True

        def take_back() -> None:
            nonlocal subscribed
            self.listeners -= subscribed
            subscribed = False
            unsubscribe()

        return take_back


class Relay(Protocol):
    """Forwards announcements to other servers; must not block."""

    def thread_changed(
        self,
        thread_id: str,
        *,
        parts: Iterable[ThreadPart],
        files: Iterable[str],
        is_new: bool,
    ) -> None:
        """See `Announcements.thread_changed`."""
        ...

    def menus_changed(self, *, tools: bool) -> None:
        """See `Announcements.menus_changed`."""
        ...


class Announcements:
    """Sends change notices to clients of both eras.

    Args:
        sessions: The connections of older clients.
        relay: Forwards to other servers with the same threads; None if there are none.

    Attributes:
        bus: Reaches clients of 2026-07-28 that are connected to this server.
        sessions: The connections of older clients.
    """

    def __init__(self, sessions: SessionRegistry, relay: Relay | None) -> None:
        self._relay = relay
        self.bus = _LocalBus()
        self.sessions = sessions
        self._changed: dict[str, set[str]] = {}  # parts by thread, as in their URIs
        self._new_owners: set[str] = set()
        self._wake = anyio.Event()

    async def menus_changed(self, *, tools: bool, relayed: bool = False) -> None:
        """Announce that skills or subagents changed, and so prompts and resources.

        Args:
            tools: Whether subagents changed, which the description of `task` lists.
            relayed: Whether another server says so.
        """
        if self._relay is not None and not relayed:
            self._relay.menus_changed(tools=tools)
        if tools:
            await self.bus.publish(ToolsListChanged())
            self.sessions.tools_changed()
        await self.bus.publish(PromptsListChanged())
        await self.bus.publish(ResourcesListChanged())
        self.sessions.prompts_changed()
        self.sessions.resources_changed()

    async def resource_changed(self, uri: str) -> None:
        """Announce that the content of one resource changed."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        self.sessions.resource_updated(uri)

    def thread_changed(
        self,
        thread_id: str,
        *,
        parts: Iterable[ThreadPart] = (),
        files: Iterable[str] = (),
        is_new: bool = False,
        relayed: bool = False,
    ) -> None:
        """Note a change on a thread; `run` announces it soon.

        Args:
            thread_id: The thread.
            parts: The parts whose content changed; empty if only a run's record changed.
            files: Paths of written files, which also change the listing.
            is_new: Whether this is its first step.
            relayed: Whether another server says so.
        """
        if self._relay is not None and not relayed and parts is not WRITING:
            self._relay.thread_changed(thread_id, parts=parts, files=files, is_new=is_new)
        heard = self.sessions.watched or self.bus.listeners
        if not (heard or is_new):  # all clients are notified of new threads
            return
        changed = self._changed.setdefault(thread_id, set())
        changed.update(parts)
        for path in files:
            changed.update(("files", f"files{path}"))
        if is_new:
            self._new_owners.add(owner_of(thread_id))
        self._wake.set()

    async def run(self) -> None:
        """Announce the noted changes, and send all notices; never returns."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.sessions.run)
            while True:
                await self._wake.wait()
                await anyio.sleep(COLLECT_SECONDS)
                self._wake = anyio.Event()
                try:
                    await self._announce()
                except Exception:
                    logger.exception("a change was not announced to every client")

    async def _announce(self) -> None:
        changed, self._changed = self._changed, {}
        new_owners, self._new_owners = self._new_owners, set()
        for owner in new_owners:
            if not owner:  # the bus cannot distinguish listeners of 2026-07-28; they see the list
                await self.bus.publish(ResourcesListChanged())
            self.sessions.resources_changed(owner)
        for owner in {owner_of(thread_id) for thread_id in changed}:
            for uri in OWN_URIS:
                await self.bus.publish(ResourceUpdated(uri=owned_uri(uri, owner)))
                self.sessions.resource_updated(uri, owner)
        for thread_id, parts in changed.items():
            await self.bus.publish(ResourceUpdated(uri=moved_uri(thread_id)))
            for part in sorted(parts):
                await self.resource_changed(thread_uri(thread_id, part))
