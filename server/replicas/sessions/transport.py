"""A session's transport on one replica; other replicas may have one for the same session."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, cast

import anyio
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    LAST_EVENT_ID_HEADER,
    EventCallback,
    EventStore,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from starlette.requests import Request
from starlette.types import Send

from ....harness.messages.message import new_id
from .questions import Answer, Questions, asker_of, cancelled_request
from .store import StoredSession
from .streams import InboundStream, Item, OutboundStream, Place, SessionStreams

__all__ = ["NOTICES", "Exchange", "SessionRefused", "SharedTransport"]

LIST_NOTICES: Final = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)
UPDATED: Final = "notifications/resources/updated"
NOTICES: Final = frozenset({*LIST_NOTICES, UPDATED})
"""Notices of changes. Every replica gets every change, so only one notifies a session."""

RESTORE_SECONDS: Final = 30.0

_ENDS: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Errors of a message for a session that is just ending here."""

logger = logging.getLogger(__name__)


class SessionRefused(Exception):
    """Error: a replica does not serve a session; the text says why."""


class Exchange(Protocol):
    """A transport's interface to the other replicas."""

    async def began(self, transport: SharedTransport, hello: JSONRPCRequest) -> None:
        """Announce a new session to all replicas."""
        ...

    async def watches(self, transport: SharedTransport, uri: str, *, watched: bool) -> None:
        """Announce that a session subscribes to a resource, or unsubscribes."""
        ...

    async def takes_standing_stream(self, transport: SharedTransport) -> bool:
        """Move the standing stream here; return whether notices may have been missed before."""
        ...

    async def forward(self, transport: SharedTransport, message: JSONRPCMessage) -> None:
        """Forward a client's answer or notification to the replica that it concerns."""
        ...

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a client's request in the form to serve, so that it can be repeated."""
        ...

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving a request a second time has no further effect."""
        ...


class SharedTransport(StreamableHTTPServerTransport, EventStore):
    """A session's transport on this replica, which also stores what it sends.

    Args:
        session_id: The session's id for its client.
        streams: Its streams.
        exchange: Reaches the other replicas.
        name: This replica's id.
        owner: A digest of the credential that began it.
        checks: Allowed hosts and origins.
        retry_interval: Milliseconds after which clients should reconnect.
        idle_timeout: Seconds without a request after which it ends here.

    Attributes:
        is_open: Whether the handshake has succeeded.
        standing: The replica with the standing stream; empty if there was none.
        standing_lock: Held while `standing` is read from the database or stored there, so that an
            older value does not overwrite a newer one.
        watched: The resources that the client subscribed to.
        origin: A request of the client, for work on its behalf without a request.
        was_used: Whether a request arrived since this was last set to False.
    """

    def __init__(
        self,
        session_id: str,
        streams: SessionStreams,
        exchange: Exchange,
        name: str,
        owner: str,
        *,
        checks: TransportSecuritySettings | None,
        retry_interval: int | None,
        idle_timeout: float | None,
    ) -> None:
        super().__init__(
            session_id,
            event_store=self,
            security_settings=checks,
            retry_interval=retry_interval,
            idle_timeout=idle_timeout,
        )
        self.session_id = session_id
        self.streams = streams
        self.owner = owner
        self.is_open = False
        self.standing = ""
        self.standing_lock = anyio.Lock()
        self.watched: set[str] = set()
        self.origin: Request | None = None
        self.was_used = True
        self._exchange = exchange
        self._name = name
        self._hello: JSONRPCRequest | None = None
        self._open_requests: set[str] = set()
        self._changes: dict[str, tuple[str, bool]] = {}
        self._own: dict[str, anyio.Event] = {}
        self._refusal: str | None = None
        self._questions = Questions(name)

    @property
    def is_busy(self) -> bool:
        """Whether a request of the client is being served, or a stream of it is open."""
        return self._requests_in_flight > 0

    # --- a session that began elsewhere -------------------------------------------------------

    async def restore(self, stored: StoredSession, request: Request) -> None:
        """Repeat the handshake that the client had with another replica.

        Raises:
            SessionRefused: The server does not accept it here.
        """
        self.origin = _without_body(request)
        self.standing = stored.replica
        hello = stored.hello
        await self._ask_itself(hello.method, hello.params or {})
        if self._refusal is not None:
            raise SessionRefused(self._refusal)
        self.is_open = True
        done = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
        await self._receive(done)
        await self.follow_watched(stored.watched)

    async def follow_watched(self, watched: frozenset[str]) -> None:
        """Watch the resources that the client subscribed to on another replica."""
        for uri in sorted(watched - self.watched):
            await self._ask_itself("resources/subscribe", {"uri": uri})
        for uri in sorted(self.watched - watched):
            await self._ask_itself("resources/unsubscribe", {"uri": uri})
        self.watched = set(watched)

    async def deliver(self, message: JSONRPCMessage) -> None:
        """Take a client's message that another replica has received, unless the session ends."""
        mine = self._mine(message)
        if mine is not None:
            with suppress(*_ENDS):
                await self._receive(mine)

    async def _ask_itself(self, method: str, params: dict[str, Any]) -> None:
        """Serve a request as if the client had sent it, without sending the answer."""
        own = new_id("own")
        answered = self._own[own] = anyio.Event()
        request = JSONRPCRequest(jsonrpc="2.0", id=own, method=method, params=params)
        try:
            with anyio.fail_after(RESTORE_SECONDS):
                await self._receive(request)
                await answered.wait()
        except TimeoutError as error:
            raise SessionRefused(f"{method} was not answered in time") from error
        except _ENDS as error:
            raise SessionRefused("the session has just ended here") from error
        finally:
            self._own.pop(own, None)

    async def _receive(self, message: JSONRPCMessage, **metadata: Any) -> None:
        """Have the SDK receive a message as if the client had sent it here."""
        assert self.origin is not None and isinstance(self._read_stream_writer, InboundStream)
        about = self._message_metadata(self.origin, **metadata)
        await self._read_stream_writer.send_past(SessionMessage(message, metadata=about))

    # --- messages of the client ---------------------------------------------------------------

    async def _arriving(self, item: Item) -> Item | None:
        """Check a client's message; return None if it is for another replica."""
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._note_origin(item)
            request = self._exchange.prepared(message)
            await self._note_request(request)
            return replace(item, message=request)
        mine = self._mine(message)
        if mine is not None:
            return replace(item, message=mine)
        await self._exchange.forward(self, message)
        return None

    def _note_origin(self, item: SessionMessage) -> None:
        if self.origin is None and isinstance(item.metadata, ServerMessageMetadata):
            self.origin = _without_body(cast("Request", item.metadata.request_context))

    async def _note_request(self, request: JSONRPCRequest) -> None:
        if request.method == "initialize":
            self._hello = request
            self._open_requests.add(str(request.id))
            return
        self._begin(request)
        if not self._exchange.can_repeat(request):  # its type is sufficient, and takes no space
            request = JSONRPCRequest(jsonrpc="2.0", id=request.id, method=request.method)
        await self.streams.note_request(request)

    def _begin(self, request: JSONRPCRequest) -> None:
        stream = str(request.id)
        self._open_requests.add(stream)
        if request.method in ("resources/subscribe", "resources/unsubscribe"):
            uri = str((request.params or {}).get("uri"))
            self._changes[stream] = (uri, request.method == "resources/subscribe")

    def _mine(self, message: JSONRPCMessage) -> JSONRPCMessage | None:
        """Return an answer or notification with this replica's id; None if it is for another."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            asker = asker_of(message)
            if not asker:
                return message  # there was no question; the SDK drops it
            return self._questions.answered(message) if asker == self._name else None
        cancelled = cancelled_request(message)
        return message if cancelled is None or cancelled in self._open_requests else None

    async def _go_on_with(self, request: JSONRPCRequest) -> None:
        """Serve a request that a dead replica was serving, on the same stream."""
        self._begin(request)
        ended = partial(self._terminate_unanswered_request, request.id)
        await self._receive(request, on_request_unanswered=ended)

    async def answered_for_the_dead(self, question: JSONRPCRequest, answer: Answer) -> None:
        """Use the answer to a dead replica's question for the same question asked here."""
        ours = self._questions.answer_for(question, answer)
        if ours is not None:
            with suppress(*_ENDS):
                await self._receive(ours)

    # --- messages to the client ---------------------------------------------------------------

    async def _leaving(self, item: SessionMessage) -> SessionMessage | None:
        """Return a message with this replica in a question's id; None if it is already answered."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            asked = self._questions.ask(message)
            if isinstance(asked, JSONRPCRequest):
                return replace(item, message=asked)
            await self._receive(asked)
            return None
        if isinstance(message, JSONRPCNotification) and cancelled_request(message) is not None:
            return replace(item, message=self._questions.take_back(message))
        return item

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store a message before it reaches the client; see `EventStore`."""
        if message is None:
            return await self.streams.store(stream_id, None, awaited=False)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if stream_id in self._own:
                self._keep(stream_id, message)
                return ""
            await self._answers(stream_id, is_result=isinstance(message, JSONRPCResponse))
        if stream_id == GET_STREAM_KEY:
            if self.standing != self._name and _is_notice(message):
                return ""  # the replica with the stream receives the change and notifies the client
            return await self.streams.store(stream_id, message, awaited=self.standing != self._name)
        is_attached = stream_id in self._request_streams
        return await self.streams.store(stream_id, message, awaited=not is_attached)

    def _keep(self, stream_id: str, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCError):
            self._refusal = message.error.message
        self._own[stream_id].set()

    async def _answers(self, stream_id: str, *, is_result: bool) -> None:
        """Announce the changes of a request before its client can use another replica."""
        self._open_requests.discard(stream_id)
        change = self._changes.pop(stream_id, None)
        if not is_result:
            return
        if self._hello is not None and stream_id == str(self._hello.id):
            hello, self._hello, self.is_open = self._hello, None, True
            await self._exchange.began(self, hello)
        elif change is not None:
            uri, watched = change
            (self.watched.add if watched else self.watched.discard)(uri)
            await self._exchange.watches(self, uri, watched=watched)

    # --- streams ------------------------------------------------------------------------------

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send past and future events of a stream after an event; see `EventStore`.

        Returns:
            None: the SDK has nothing more to send.
        """
        place = Place.of(last_event_id)
        if place is None or (place.is_standing and self.standing != self._name):
            return None  # the client has since connected to another replica
        position = await self.streams.position(place)
        if position is not None:
            await self.streams.follow(place, position, send_callback, self._take_over)
        return None

    def _take_over(self, request: JSONRPCRequest) -> Callable[[], Awaitable[None]] | None:
        """Return a message that continues a dead replica's request; None if not allowed."""
        return partial(self._go_on_with, request) if self._exchange.can_repeat(request) else None

    async def _tell_that_all_may_have_changed(self) -> None:
        for method in LIST_NOTICES:
            await self._notify(method, {})
        for uri in sorted(self.watched):
            await self._notify(UPDATED, {"uri": uri})

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        notice = JSONRPCNotification(jsonrpc="2.0", method=method, params=params or None)
        await self.streams.store(GET_STREAM_KEY, notice, awaited=False)

    async def _handle_get_request(self, request: Request, send: Send) -> None:
        """Serve the standing stream like a resumed one: any replica may write it.

        Raises:
            HarnessError: The database cannot be used; nothing was sent.
        """
        event_id = request.headers.get(LAST_EVENT_ID_HEADER)
        place = Place.of(event_id) if event_id else await self.streams.now()
        is_standing = place is not None and place.is_standing
        # Before the client knows that it is connected: from then on it misses nothing.
        if (
            is_standing
            and check_accept_headers(request)[1]
            and await self._exchange.takes_standing_stream(self)
        ):
            await self._tell_that_all_may_have_changed()
        if place is not None and not event_id:
            named = (LAST_EVENT_ID_HEADER.encode(), place.event_id.encode())
            scope = {**request.scope, "headers": [*request.scope["headers"], named]}
            request = Request(scope, request.receive)
        await super()._handle_get_request(request, send)

    @asynccontextmanager
    async def connect(
        self,
    ) -> AsyncGenerator[tuple[ReadStream[Item], WriteStream[SessionMessage]]]:
        """Yield the streams of a connection, and check all messages."""
        async with super().connect() as (read, write):
            assert self._read_stream_writer is not None
            self._read_stream_writer = InboundStream(self._read_stream_writer, self._arriving)
            yield read, OutboundStream(write, self._leaving)


def _is_notice(message: JSONRPCMessage) -> bool:
    return isinstance(message, JSONRPCNotification) and message.method in NOTICES


def _without_body(request: Request) -> Request:
    return Request({key: value for key, value in request.scope.items() if key != "state"})
