"""The streams of one session on one replica: stored, tapped, and resumed.

The SDK names streams by the ids of requests, which clients count from one, so the names are only
unique within a session. The replica that serves a request writes its stream. All replicas can write
the standing stream, for messages that belong to no request.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeAlias

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage
from mcp.shared._context_streams import ContextSendStream
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ....harness._internal.records import record
from ....harness.errors import HarnessError
from .contracts import Peers
from .event_log import KEEP_SECONDS, Event, EventKind, EventLog
from .store import name_of

__all__ = ["InboundStream", "Item", "OutboundStream", "Place", "SessionStreams"]

STANDING_STREAM: Final = name_of(GET_STREAM_KEY)

PEER_SECONDS: Final = 1.0
"""How often a reader checks that the replica that writes its stream is alive."""

STOPPED: Final = (
    "The server that worked on this request stopped before it answered. Whether it was done is not "
    "known. Runs that it began continue: `threads` shows them, and `wait` with the id of one "
    "returns "
    "its result."
)

TakeOver: TypeAlias = Callable[[JSONRPCRequest], Callable[[], Awaitable[None]] | None]
"""Returns the message that continues a request of a dead replica; None if that is not allowed."""

_STANDING_ID = re.compile(r"standing_([0-9]{1,18})")
_EVENT_ID = re.compile(r"evt_(.+)_([0-9]{1,18})_([0-9a-f]{32})", re.DOTALL)

logger = logging.getLogger(__name__)


@record
class Place:
    """A place in a stream, encoded in an event id.

    Attributes:
        replica: The replica that stored the event; empty if the place is not an event.
        number: Its number among the session's events on that replica; otherwise, the position.
        stream: The stream's name in the tables.
    """

    replica: str
    number: int
    stream: str

    @staticmethod
    def of(event_id: str) -> Place | None:
        """Return the place in an event id; None if the id is not ours."""
        if (found := _STANDING_ID.fullmatch(event_id)) is not None:
            return Place("", int(found[1]), STANDING_STREAM)
        found = _EVENT_ID.fullmatch(event_id)
        return None if found is None else Place(found[1], int(found[2]), found[3])

    @property
    def is_standing(self) -> bool:
        """Whether it is on the standing stream."""
        return self.stream == STANDING_STREAM

    @property
    def event_id(self) -> str:
        """The event id for clients."""
        if not self.replica:
            return f"standing_{self.number}"
        return f"evt_{self.replica}_{self.number}_{self.stream}"


class SessionStreams:
    """The streams of one session, which no other session can read.

    Args:
        log: Stores all events.
        peers: The replicas.
        session: The session's name in the tables.
    """

    def __init__(self, log: EventLog, peers: Peers, session: str) -> None:
        self.session = session
        self._log = log
        self._peers = peers
        self._number = time.time_ns() // 1_000  # so that a later start never reuses numbers
        self._news = anyio.Event()
        self._readers: dict[str, object] = {}
        self._has_ended = False

    @property
    def has_readers(self) -> bool:
        """Whether a reader here waits for events of a stream."""
        return bool(self._readers)

    def end(self) -> None:
        """End all streams resumed here, and store nothing more."""
        self._has_ended = True
        self._readers.clear()
        self.wake()

    def wake(self) -> None:
        """Have all readers check for more events."""
        self._news.set()
        self._news = anyio.Event()

    def leave_standing_stream(self) -> None:
        """End the standing stream here: the client has connected to another replica."""
        if self._readers.pop(STANDING_STREAM, None) is not None:
            self.wake()

    async def note_request(self, request: JSONRPCRequest) -> None:
        """Store a client's request, for the replica that has to answer it."""
        await self._add(name_of(str(request.id)), "request", request, awaited=False)

    async def store(self, stream_id: str, message: JSONRPCMessage | None, *, awaited: bool) -> str:
        """Store a message, or only a place to resume from; return its event id.

        Args:
            stream_id: The SDK's name of the stream.
            message: The message; None for a place.
            awaited: Whether another replica may be reading the stream.
        """
        stream = name_of(stream_id)
        if message is None:
            self._number += 1
            return Place(self._peers.owner, self._number, stream).event_id
        kind: EventKind = "message"
        if stream == STANDING_STREAM:
            kind = "standing"
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            kind = "last"
        return await self._add(stream, kind, message, awaited=awaited)

    async def now(self) -> Place:
        """Return the place in the standing stream before all events that are not stored yet.

        Raises:
            HarnessError: The database cannot be used.
        """
        return Place("", await self._log.newest(self.session), STANDING_STREAM)

    async def position(self, place: Place) -> int | None:
        """Return the position at which a stream continues after a place; None for an unknown place.

        Waits for events that the writer of the stream has not written yet.
        """
        try:
            return await self._position(place)
        except HarnessError as error:
            logger.error("a stream cannot be resumed now: %s", error)
            return None

    async def follow(
        self, place: Place, position: int, send: EventCallback, take_over: TakeOver
    ) -> None:
        """Send the events of a stream after a position, up to the stream's end.

        A new reader of a stream replaces the previous one.

        Args:
            place: The last place that the client has received.
            position: The position of that place.
            send: Sends an event.
            take_over: Decides who continues a request of a dead replica.
        """
        if self._has_ended:
            return
        reader = self._readers[place.stream] = object()
        self.wake()
        try:
            with anyio.move_on_after(KEEP_SECONDS):
                await self._send(place, position, reader, send, take_over)
        except HarnessError as error:
            logger.error("a stream ended before its time: %s", error)
        finally:
            if self._readers.get(place.stream) is reader:
                del self._readers[place.stream]

    async def _position(self, place: Place) -> int | None:
        if not place.replica:
            return place.number
        while True:
            is_alive = await self._peers.is_alive(place.replica)
            position = await self._log.cursor(
                self.session, place.stream, place.replica, place.number
            )
            if position == "ended":
                return None
            is_new = time.time_ns() // 1_000 - place.number < 10_000_000
            if position is not None or place.is_standing or not (is_alive and is_new):
                return 0 if position is None and place.is_standing else position
            await self._wait()

    async def _send(
        self,
        place: Place,
        position: int,
        reader: object,
        send: EventCallback,
        take_over: TakeOver,
    ) -> None:
        writer = place.replica
        while self._readers.get(place.stream) is reader:
            news = self._news
            page = await self._log.page(self.session, place.stream, position)
            for event in page:
                position = event.position
                if event.kind != "request":
                    await send(EventMessage(event.message, _event_id(event)))
                if event.kind == "last":
                    return
                writer = event.replica
            if page:
                continue
            if place.is_standing or writer == self._peers.owner:
                await news.wait()
            elif await self._peers.is_alive(writer):
                await self._wait()
            else:
                successor = await self._settle(place.stream, take_over)
                if successor is None:
                    return
                writer = successor

    async def _wait(self) -> None:
        with anyio.move_on_after(PEER_SECONDS):
            await self._news.wait()

    async def _settle(self, stream: str, take_over: TakeOver) -> str | None:
        """Continue a request of a dead replica, or end its stream.

        The fastest replica does this.

        Returns:
            The new writer of the stream; None if the request is not known.
        """
        asked = await self._log.request(self.session, stream)
        if asked is None or not isinstance(asked.message, JSONRPCRequest):
            return None
        if await self._peers.is_alive(asked.replica):
            return asked.replica  # it has taken the request over
        go_on = take_over(asked.message)
        if go_on is not None:
            event = self._event(stream, "request", asked.message)
        else:
            error = ErrorData(code=INTERNAL_ERROR, message=STOPPED)
            answer = JSONRPCError(jsonrpc="2.0", id=asked.message.id, error=error)
            event = self._event(stream, "last", answer)
        if await self._log.succeed(event, asked) and go_on is not None:
            await go_on()
        return self._peers.owner

    async def _add(
        self, stream: str, kind: EventKind, message: JSONRPCMessage, *, awaited: bool
    ) -> str:
        event = self._event(stream, kind, message)
        if not self._has_ended:
            await self._log.add(event, awaited=awaited)
        self.wake()
        return _event_id(event)

    def _event(self, stream: str, kind: EventKind, message: JSONRPCMessage) -> Event:
        self._number += 1
        return Event(self.session, stream, self._peers.owner, self._number, kind, message)


def _event_id(event: Event) -> str:
    return Place(event.replica, event.number, event.stream).event_id


Item: TypeAlias = SessionMessage | Exception


class InboundStream(ContextSendStream[Item]):
    """Messages from a client to the SDK.

    Args:
        stream: The SDK's stream.
        look: Returns the message to pass on instead; None to drop it.
    """

    __slots__ = ("_look",)

    def __init__(
        self, stream: ContextSendStream[Item], look: Callable[[Item], Awaitable[Item | None]]
    ) -> None:
        super().__init__(stream._inner)  # pyright: ignore[reportPrivateUsage]
        self._look = look

    async def send(self, item: Item) -> None:
        """Pass a message, or its replacement, on."""
        found = await self._look(item)
        if found is not None:
            await super().send(found)

    async def send_past(self, item: SessionMessage) -> None:
        """Pass a message on without checking it."""
        await super().send(item)


class OutboundStream:
    """Messages from the SDK to a client.

    Args:
        stream: The SDK's stream.
        look: Returns the message to pass on instead; None to drop it.
    """

    def __init__(
        self,
        stream: WriteStream[SessionMessage],
        look: Callable[[SessionMessage], Awaitable[SessionMessage | None]],
    ) -> None:
        self._stream = stream
        self._look = look

    async def send(self, item: SessionMessage, /) -> None:
        """Pass a message, or its replacement, on."""
        found = await self._look(item)
        if found is not None:
            await self._stream.send(found)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> OutboundStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
