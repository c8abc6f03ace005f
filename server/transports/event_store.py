"""Event store: keeps sent events of handshake-era streams, so that clients can resume them.

If the connection of a Streamable HTTP client breaks during a call, the client reconnects with
`Last-Event-ID`, and gets the missed events, then new ones. Each session has its own store: the SDK
names streams by request ids, which all clients count from one, so in a common store clients would
read each other's events.

Events end with the process, like sessions: they are in an unnamed temporary database, which the
system deletes however the process ends, and they are encrypted with a key that is only in memory.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter

from ...harness._internal.records import record
from ...harness.messages.message import new_id

__all__ = ["EventLog", "SessionEvents"]

KEEP_SECONDS = 3_600.0
"""Seconds for which events are kept, and the longest time that a resumed stream stays open."""

MOST_BYTES = 64 << 20
"""The most bytes of all sessions' events; beyond it, the largest session loses its oldest."""

COLLECT_SECONDS = 0.2
"""Seconds for which events are collected before they are written together."""

MOST_COLLECTED = 256
"""The most events that are collected."""

_PAGE = 8
_NONCE_BYTES = 12
_SCHEMA = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    stream TEXT NOT NULL,
    at REAL NOT NULL,
    sealed BLOB NOT NULL,
    UNIQUE (session, number)
)
"""

_FORGET_OLD = """
DELETE FROM events WHERE id < ifnull(
    (SELECT id FROM events WHERE at >= ? ORDER BY id LIMIT 1), (SELECT max(id) + 1 FROM events)
)
"""

_MAKE_ROOM = """
WITH largest AS (
    SELECT session, min(number) AS first, max(number) AS last FROM events
    GROUP BY session ORDER BY sum(length(stream) + length(sealed)) DESC LIMIT 1
)
DELETE FROM events WHERE (session, number) IN (
    SELECT session, number FROM events JOIN largest USING (session)
    WHERE number <= first + (last - first) / 10
)
"""
"""Deletes the oldest tenth of the largest session, so that only its own client loses events."""

_EVENT_ID = re.compile(r"(evt_[0-9a-f]{16})_([0-9]{1,15})")

T = TypeVar("T")

logger = logging.getLogger(__name__)


@record
class _Event:
    """A message on a stream; a message of None only marks a position in it."""

    session: str
    number: int
    stream: str
    message: JSONRPCMessage | None

    @property
    def ends_stream(self) -> bool:
        """Whether it answers the request that the stream belongs to."""
        return (
            isinstance(self.message, JSONRPCResponse | JSONRPCError) and self.message.id is not None
        )


class EventLog:
    """The events of all sessions of this process, kept once `open` is entered.

    If an event cannot be written, this is logged and the server continues. Only clients that
    resume miss the event.

    Args:
        most_bytes: The most bytes of all events.
        keep_seconds: How long each event is kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, keep_seconds: float = KEEP_SECONDS) -> None:
        self.keep_seconds = keep_seconds
        self._most_bytes = most_bytes
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._database: sqlite3.Connection | None = None
        self._collected: list[_Event] = []
        self._ended: list[str] = []
        self._turn = anyio.Lock()
        self._wake = anyio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Keep events until the end of the block."""
        self._database = await anyio.to_thread.run_sync(_new_database)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write_along)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                async with self._turn:  # not while a client still reads
                    self._database.close()
                    self._database = None

    def new_session(self) -> SessionEvents:
        """Return the store of a new session."""
        return SessionEvents(self)

    async def add(self, event: _Event) -> None:
        """Keep an event; waits only if too many are not yet written."""
        self._collected.append(event)
        self._wake.set()
        if len(self._collected) >= MOST_COLLECTED:
            await self._write()

    def forget(self, session: str) -> None:
        """Delete the events of an ended session, together with the next write."""
        self._ended.append(session)
        self._wake.set()

    async def find_stream(self, session: str, number: int) -> str | None:
        """Return the stream of a session's event; None if the event is not kept."""
        rows = await self._select(
            "SELECT stream FROM events WHERE at >= ? AND session = ? AND number = ?",
            session,
            number,
        )
        return str(rows[0][0]) if rows else None

    async def page(self, session: str, stream: str, number: int) -> Sequence[_Event]:
        """Return the next events of a stream after a number."""
        rows = await self._select(
            "SELECT number, sealed FROM events WHERE at >= ? AND session = ? AND stream = ? "
            f"AND number >= ? ORDER BY number LIMIT {_PAGE}",
            session,
            stream,
            number,
        )
        return [self._opened(session, int(row[0]), stream, row[1]) for row in rows]

    async def _write_along(self) -> None:
        while True:
            await self._wake.wait()
            await anyio.sleep(COLLECT_SECONDS)
            self._wake = anyio.Event()
            await self._write()

    async def _write(self) -> None:
        async with self._turn:
            batch, self._collected = self._collected, []
            ended, self._ended = self._ended, []
            if batch or ended:
                with anyio.CancelScope(shield=True):  # they belong to other tasks as well
                    if not await self._in_thread(lambda db: self._store(db, batch, ended), False):
                        self._ended += ended

    async def _select(self, query: str, *values: object) -> list[tuple[int | str, bytes]]:
        await self._write()
        given = (self._oldest(), *values)
        async with self._turn:
            return await self._in_thread(lambda db: db.execute(query, given).fetchall(), [])

    def _oldest(self) -> float:
        """Return the time before which events are too old to be kept."""
        return time.monotonic() - self.keep_seconds

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        database = self._database
        if database is None:  # not open yet, or already closed
            return otherwise
        try:
            return await anyio.to_thread.run_sync(work, database)
        except sqlite3.Error as error:
            logger.error("events of streams are not kept, so they cannot be resumed: %s", error)
            return otherwise

    def _store(
        self, database: sqlite3.Connection, batch: Sequence[_Event], ended: Sequence[str]
    ) -> bool:
        now = time.monotonic()
        with database:
            database.executemany(
                "INSERT INTO events (session, number, stream, at, sealed) VALUES (?, ?, ?, ?, ?)",
                [
                    (one.session, one.number, one.stream, now, sealed)
                    for one in batch
                    if (sealed := self._sealed(one)) is not None
                ],
            )
            database.executemany("DELETE FROM events WHERE session = ?", [(one,) for one in ended])
            database.execute(_FORGET_OLD, (self._oldest(),))
            while _bytes_used(database) > self._most_bytes:
                if not database.execute(_MAKE_ROOM).rowcount:
                    break
        return True

    def _sealed(self, event: _Event) -> bytes | None:
        """Return the stored form of a message; None if it cannot be written."""
        message = event.message
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True) if message else ""
        except ValueError as error:
            logger.error("a message of a stream cannot be written, so it is not kept: %s", error)
            return None
        nonce = os.urandom(_NONCE_BYTES)
        place = f"{event.session} {event.number} {event.stream}".encode()
        return nonce + self._cipher.encrypt(nonce, text.encode(), place)

    def _opened(self, session: str, number: int, stream: str, sealed: bytes) -> _Event:
        place = f"{session} {number} {stream}".encode()
        text = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        message = jsonrpc_message_adapter.validate_json(text, by_name=False) if text else None
        return _Event(session, number, stream, message)


class SessionEvents(EventStore):
    """The events of one session, which nobody else can read.

    A resumed stream is served from here until its end. The SDK's own way, which switches from
    stored to live events, could lose events that arrive in between.

    Attributes:
        has_answered: Whether a request of the session has had a result.
    """

    def __init__(self, log: EventLog) -> None:
        self.has_answered = False
        self._log = log
        self._id = new_id("evt")
        self._count = 0
        self._news = anyio.Event()
        self._readers: dict[str, object] = {}
        self._has_ended = False

    def end(self) -> None:
        """Delete all events, and end resumed streams; may be called twice."""
        if not self._has_ended:
            self._has_ended = True
            self._readers.clear()
            self._stir()
            self._log.forget(self._id)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message, or None for a position to resume from; return its event id."""
        self.has_answered = self.has_answered or isinstance(message, JSONRPCResponse)
        self._count += 1
        event = _Event(self._id, self._count, stream_id, message)
        if not self._has_ended:
            await self._log.add(event)
        self._stir()
        return self._event_id(event.number)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send the events of a stream after an event, and new ones, until the stream's end.

        If the event belongs to another session, or is no longer kept, nothing is sent. If several
        readers resume one stream, only the last one stays.

        Returns:
            None: nothing is left for the SDK to send.
        """
        number = self._number(last_event_id)
        stream = None if number is None else await self._log.find_stream(self._id, number)
        if number is None or stream is None or self._has_ended:
            return None
        reader = self._readers[stream] = object()
        self._stir()
        try:
            with anyio.move_on_after(self._log.keep_seconds):
                await self._send(stream, number, reader, send_callback)
        finally:
            if self._readers.get(stream) is reader:
                del self._readers[stream]
        return None

    async def _send(self, stream: str, number: int, reader: object, send: EventCallback) -> None:
        sent = number
        while self._readers.get(stream) is reader:
            news = self._news
            # The client has the first event; it is read again to see whether it was the last one.
            page = await self._log.page(self._id, stream, number)
            for event in page:
                if event.message is not None and event.number > sent:
                    await send(EventMessage(event.message, self._event_id(event.number)))
                if event.ends_stream:
                    return
                number, sent = event.number + 1, event.number
            if not page:
                await news.wait()

    def _stir(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def _event_id(self, number: int) -> str:
        return f"{self._id}_{number}"

    def _number(self, event_id: str) -> int | None:
        found = _EVENT_ID.fullmatch(event_id)
        return int(found[2]) if found is not None and found[1] == self._id else None


def _new_database() -> sqlite3.Connection:
    database = sqlite3.connect("", check_same_thread=False)
    database.execute(_SCHEMA)
    return database


def _bytes_used(database: sqlite3.Connection) -> int:
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return (pages - free) * size
