"""HTTP sessions: resumable streams of older clients, and a time limit for the arrival of requests.

Sessions of Streamable HTTP in the handshake era have streams that can be resumed.

uvicorn does not limit how long a request takes to arrive. A client that sends a byte a second, or
nothing, could keep its connection, and the task that waits for its body, forever. Here a request
has some seconds for head and body together, and more for each piece of a large body; then it is
answered with `408` and dropped. The time for an answer is not limited here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import h11
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from .event_store import EventLog, SessionEvents

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = [
    "ARRIVAL_SECONDS",
    "LEAST_BYTES_PER_SECOND",
    "ResumableSessions",
    "ServedSessions",
    "SessionsOf",
    "TimedProtocol",
]


RETRY_MS = 500
"""Milliseconds that a client should wait before it reconnects."""


class ServedSessions(Protocol):
    """Serves `/mcp`, and keeps the sessions of older clients."""

    @property
    def asgi_app(self) -> ASGIApp:
        """Serve a request; only inside the block of `serving`."""
        ...

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Serve requests until the end of the block."""
        ...


SessionsOf: TypeAlias = "Callable[[Server[Any], TransportSecuritySettings], ServedSessions]"
"""Makes the session keeper of a server, from the server and its allowed hosts."""


class ResumableSessions(StreamableHTTPSessionManager):
    """A session manager that gives each session its own event store.

    Enter `serving` first. A request of 2026-07-28 is served directly, because it has no session.

    Args:
        server: Serves the sessions.
        checks: The allowed hosts and origins.
        events: Keeps the events.
    """

    def __init__(
        self,
        server: Server[Any],
        checks: TransportSecuritySettings,
        events: EventLog | None = None,
    ) -> None:
        self._events = events or EventLog()
        super().__init__(
            server,
            security_settings=checks,
            max_request_body_size=sys.maxsize,  # `checked_requests` has already limited it
            retry_interval=RETRY_MS,
        )

    @property
    def event_store(self) -> EventStore | None:
        """The store for a new session: the SDK reads this once for each session it starts."""
        return self._events.new_session()

    @event_store.setter
    def event_store(self, store: EventStore | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ignore the SDK's own store, which is common to all sessions."""

    async def _serve_opening_request(
        self,
        http_transport: StreamableHTTPServerTransport,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve the handshake, and remove the session if it was refused.

        The SDK would keep it for half an hour, and count it towards the limit of all sessions.
        """
        await super()._serve_opening_request(http_transport, scope, receive, send)
        store = http_transport._event_store  # pyright: ignore[reportPrivateUsage]
        session_id = http_transport.mcp_session_id
        if session_id and isinstance(store, SessionEvents) and not store.has_answered:
            await self._discard_session(session_id, http_transport)

    async def _discard_session(
        self, session_id: str, transport: StreamableHTTPServerTransport
    ) -> None:
        """Remove an ended session with its events, whatever ended it."""
        await super()._discard_session(session_id, transport)
        store = transport._event_store  # pyright: ignore[reportPrivateUsage]
        if isinstance(store, SessionEvents):
            store.end()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve requests until the end of the block, which ends all sessions."""
        async with self._events.open(), self.run():
            yield


ARRIVAL_SECONDS: Final = 15.0
"""Seconds for a request to arrive, from the connection or from the end of the last request."""

LEAST_BYTES_PER_SECOND: Final = 4_096
"""Bytes for which a request gets another second."""

_TOO_SLOW = b"The request took too long to arrive. Nothing was done; send it again."


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for the arrival of each request."""

    _timer: asyncio.TimerHandle | None = None
    _due = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for the first request."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Start the clock with a request's first bytes and stop it with its last."""
        super().data_received(data)
        # While a request is being answered, the next one that was read ahead has not begun.
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self._timer is None:
                self._begin()
            self._due += len(data) / LEAST_BYTES_PER_SECOND
        else:
            self._end()

    def on_response_complete(self) -> None:
        """Start the clock for a request whose first part was read ahead."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._timer is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._due = self.loop.time() + ARRIVAL_SECONDS
        self._timer = self.loop.call_at(self._due, self._look)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.loop.time() < self._due:  # new bytes have extended it
            self._timer = self.loop.call_at(self._due, self._look)
            return
        began = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if began and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse()
        self.transport.close()

    def _refuse(self) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(_TOO_SLOW)).encode()),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
            h11.Data(data=_TOO_SLOW),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
