"""Sessions of Streamable HTTP, of the handshake era, whose streams can be resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from .event_store import EventLog, SessionEvents

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["ResumableSessions"]

RETRY_MS = 500
"""How long a client shall wait before it connects again."""


class ResumableSessions(StreamableHTTPSessionManager):
    """A session manager that gives each session a store of its own for its events.

    Enter `serving`; a request of 2026-07-28 is served as it is, since it has no session.

    Args:
        server: Serves the sessions.
        checks: Hosts and origins that are served.
        max_body_bytes: Bytes of one request.
        events: Keeps the events.
    """

    def __init__(
        self,
        server: Server[Any],
        checks: TransportSecuritySettings,
        max_body_bytes: int,
        events: EventLog | None = None,
    ) -> None:
        self._events = events or EventLog()
        super().__init__(
            server,
            security_settings=checks,
            max_request_body_size=max_body_bytes,
            retry_interval=RETRY_MS,
        )

    @property
    def event_store(self) -> EventStore | None:
        """A new session's store: the SDK reads this when it begins one, and keeps what it gets."""
        return self._events.new_session()

    @event_store.setter
    def event_store(self, store: EventStore | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The SDK's own is for all sessions at once, and is not used."""

    async def _serve_opening_request(
        self,
        http_transport: StreamableHTTPServerTransport,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve the handshake, and forget the session if it was refused.

        The SDK would keep it for half an hour, as one of the most that there may be of everybody's.
        """
        await super()._serve_opening_request(http_transport, scope, receive, send)
        store = http_transport._event_store  # pyright: ignore[reportPrivateUsage]
        session_id = http_transport.mcp_session_id
        if session_id and isinstance(store, SessionEvents) and not store.has_answered:
            await self._discard_session(session_id, http_transport)

    async def _discard_session(
        self, session_id: str, transport: StreamableHTTPServerTransport
    ) -> None:
        """Forget a session, whatever ended it, with its events."""
        await super()._discard_session(session_id, transport)
        store = transport._event_store  # pyright: ignore[reportPrivateUsage]
        if isinstance(store, SessionEvents):
            store.end()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve requests until the end of the block, which ends all sessions."""
        async with self._events.open(), self.run():
            yield
