"""The events of all streams in the database, so that any replica can resume any stream.

Events are collected for a moment and written together. A replica that is killed loses its last
events; clients get their answers without waiting for the database.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypeAlias

import anyio
from cryptography.exceptions import InvalidTag
from mcp.types import (
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

from ....harness._internal.records import changed, record
from ....harness.databases.postgres import AsyncConnection, PostgresDatabase
from ....harness.errors import HarnessError
from .store import Seal, message_text

__all__ = ["KEEP_SECONDS", "Event", "EventKind", "EventLog"]

KEEP_SECONDS: Final = 3_600.0
"""How long events are available, and the longest time that a resumed stream stays open."""

MOST_BYTES: Final = 8 << 20
"""The most bytes of one session's events; beyond it, the oldest are deleted."""

COLLECT_SECONDS: Final = 0.05
"""How long events are collected before they are written together."""

MOST_COLLECTED: Final = 256
"""The most collected events; beyond it, adding one waits."""

MOST_WAITING: Final = 10_000
"""The most events that wait for an unavailable database; beyond it, the oldest are lost."""

RETRY_SECONDS: Final = 1.0
_PAGE: Final = 8
_LATELY: Final = 500
"""Among how many events of a session a question is looked for."""

_ROW_BYTES: Final = 200

EventKind: TypeAlias = Literal["request", "message", "last", "standing"]
"""`request`: the client's request, which is not sent; `last`: the end of the stream; `standing`: a
message of the stream to which several replicas write."""

_FORGET_OLD: Final = (
    "DELETE FROM {stream_events} WHERE stored_at < now() - %s * interval '1 second'"
)
_TRIM: Final = (
    "DELETE FROM {stream_events} WHERE session = %s AND id <= (SELECT max(id) FROM "
    "(SELECT id, sum(length(body) + %s) OVER (ORDER BY id DESC) AS bytes "
    "FROM {stream_events} WHERE session = %s) AS sizes WHERE bytes > %s)"
)
_NOTHING: Final = JSONRPCNotification(jsonrpc="2.0", method="")

logger = logging.getLogger(__name__)


@record
class Event:
    """An event of a stream.

    Attributes:
        session: The session's name in the tables.
        stream: The stream's name in the tables.
        replica: The replica that stored it.
        number: Its number among the session's events that this replica stored.
        kind: Its kind.
        message: The message to the client, or its request.
        position: Its position in its stream; 0 if it is not stored yet.
    """

    session: str
    stream: str
    replica: str
    number: int
    kind: EventKind
    message: JSONRPCMessage
    position: int = 0

    @property
    def place(self) -> str:
        """The place that its encryption is bound to."""
        return f"event {self.session} {self.stream} {self.replica} {self.number}"


class EventLog:
    """Stores and returns events; `run` writes them.

    Events that cannot be written are only missing when a client resumes: this is logged, and the
    server continues.

    Args:
        database: The tables.
        seal: Seals the messages.
        written: Called with the names of sessions whose written events another replica may wait
            for.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        seal: Seal,
        written: Callable[[Collection[str]], None],
    ) -> None:
        self._database = database
        self._seal = seal
        self._written = written
        self._collected: list[tuple[Event, bytes]] = []
        self._awaited: set[str] = set()
        self._grown: Counter[str] = Counter()
        self._fails = False
        self._turn = anyio.Lock()
        self._wake = anyio.Event()

    async def add(self, event: Event, *, awaited: bool) -> None:
        """Add an event; waits only if too many are not written yet.

        Args:
            event: The event.
            awaited: Whether another replica may be reading the stream.
        """
        try:
            text = message_text(event.message)
        except ValueError as error:
            logger.error("a message of a stream cannot be written, so it is not kept: %s", error)
            return
        self._collected.append((event, self._seal.close(text, event.place)))
        if awaited:
            self._awaited.add(event.session)
        self._wake.set()
        if len(self._collected) >= MOST_COLLECTED:
            await self.flush()

    async def run(self) -> None:
        """Write collected events repeatedly; never returns."""
        while True:
            await self._wake.wait()
            await anyio.sleep(COLLECT_SECONDS)
            self._wake = anyio.Event()
            if not await self.flush():
                await anyio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def flush(self) -> bool:
        """Write the events collected so far; return False if the database cannot be used."""
        async with self._turn:
            batch, self._collected = self._collected, []
            awaited, self._awaited = self._awaited, set()
            if not batch:
                return True
            with anyio.CancelScope(shield=True):  # the events may belong to other callers, too
                try:
                    await self._database.transact(lambda conn: self._write(conn, batch))
                except HarnessError as error:
                    self._collected = (batch + self._collected)[-MOST_WAITING:]
                    self._awaited |= awaited
                    if not self._fails:
                        logger.error("events of streams are not kept yet: %s", error)
                    self._fails = True
                    return False
                self._fails = False
                await self._trim(batch)
        if awaited:
            self._written(awaited)
        return True

    async def cursor(
        self, session: str, stream: str, replica: str, number: int
    ) -> int | Literal["ended"] | None:
        """Return the position of an event, or of the last stored one before it.

        Returns:
            "ended": It was the last event of the stream.
            None: No event of the stream is stored.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT id, kind, replica = %s AND number <= %s FROM {stream_events} "
            "WHERE session = %s AND stream = %s "
            "ORDER BY replica = %s AND number <= %s DESC, id DESC LIMIT 1",
            *(replica, number, session, stream, replica, number),
        )
        if not rows:
            return None
        position, kind, is_before = rows[0]
        if not is_before:
            return 0
        return "ended" if kind == "last" else int(position)

    async def newest(self, session: str) -> int:
        """Return the position of the newest event of a session; 0 if there is none.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT coalesce(max(id), 0) FROM {stream_events} WHERE session = %s", session
        )
        return int(rows[0][0])

    async def page(self, session: str, stream: str, after: int) -> Sequence[Event]:
        """Return the next events of a stream after a position.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT id, replica, number, kind, body FROM {stream_events} WHERE session = %s "
            f"AND stream = %s AND id > %s ORDER BY id LIMIT {_PAGE}",
            *(session, stream, after),
        )
        return [self._opened(session, stream, row) for row in rows]

    async def request(self, session: str, stream: str) -> Event | None:
        """Return the newest request that a stream answers; None if it is not stored.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT id, replica, number, kind, body FROM {stream_events} WHERE session = %s "
            "AND stream = %s AND kind = 'request' ORDER BY id DESC LIMIT 1",
            *(session, stream),
        )
        return self._opened(session, stream, rows[0]) if rows else None

    async def question(self, session: str, replica: str, question: str) -> JSONRPCRequest | None:
        """Return the replica's newest question to the client; None if it is not stored.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT id, replica, number, kind, body, stream FROM {stream_events} "
            "WHERE session = %s AND replica = %s AND kind IN ('message', 'standing') "
            f"ORDER BY id DESC LIMIT {_LATELY}",
            *(session, replica),
        )
        for *row, stream in rows:
            message = self._opened(session, stream, tuple(row)).message
            if isinstance(message, JSONRPCRequest) and str(message.id) == question:
                return message
        return None

    async def succeed(self, event: Event, asked: Event) -> bool:
        """Store an event in a stream of a dead replica, unless another replica was faster.

        Args:
            event: The request again, by the replica that continues it, or the last event.
            asked: The newest request in the form that the dead replica stored.

        Returns:
            False: Another replica continues it, or it has ended. Nothing was stored.

        Raises:
            HarnessError: The database cannot be used.
        """
        sealed = self._seal.close(message_text(event.message), event.place)
        statement = self._database.tables.statement

        async def work(conn: AsyncConnection) -> bool:
            lock = "SELECT 1 FROM {sessions} WHERE id = %s FOR UPDATE"
            await conn.execute(statement(lock), (event.session,))
            later = await conn.execute(
                statement(
                    "SELECT 1 FROM {stream_events} WHERE session = %s AND stream = %s "
                    "AND id > %s AND kind IN ('request', 'last')"
                ),
                (event.session, event.stream, asked.position),
            )
            if await later.fetchone() is not None:
                return False
            await self._store(conn, [(event, sealed)])
            return True

        return await self._database.transact(work)

    async def recent(self, sessions: Collection[str], seconds: float) -> set[str]:
        """Return those of these sessions that have had events in the last seconds.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._select(
            "SELECT DISTINCT session FROM {stream_events} "
            "WHERE session = ANY(%s) AND stored_at > now() - %s * interval '1 second'",
            *(sorted(sessions), seconds),
        )
        return {str(row[0]) for row in rows}

    async def sweep(self) -> None:
        """Remove events that are too old.

        Raises:
            HarnessError: The database cannot be used.
        """
        await self._change(_FORGET_OLD, KEEP_SECONDS)

    async def _write(self, conn: AsyncConnection, batch: Sequence[tuple[Event, bytes]]) -> None:
        # A crash of the database may take the last moment along, like one of this server.
        await conn.execute("SELECT set_config('synchronous_commit', 'off', true)")
        await self._store(conn, batch)

    async def _store(self, conn: AsyncConnection, batch: Sequence[tuple[Event, bytes]]) -> None:
        statement = self._database.tables.statement
        shared = sorted({event.session for event, _ in batch if event.kind == "standing"})
        if shared:  # their positions must become visible in order, whichever replica writes
            await conn.execute(
                statement("SELECT 1 FROM {sessions} WHERE id = ANY(%s) ORDER BY id FOR UPDATE"),
                (shared,),
            )
        columns = zip(
            *(
                (event.session, event.stream, event.replica, event.number, event.kind, sealed)
                for event, sealed in batch
            ),
            strict=True,
        )
        await conn.execute(
            statement(
                "INSERT INTO {stream_events} (session, stream, replica, number, kind, body) "
                "SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], "
                "%s::text[], %s::bytea[])"
            ),
            [list(column) for column in columns],
        )

    async def _trim(self, batch: Sequence[tuple[Event, bytes]]) -> None:
        """Remove the oldest events of sessions that have too many."""
        for event, sealed in batch:
            self._grown[event.session] += len(sealed) + _ROW_BYTES
        grown = [name for name, size in self._grown.items() if size > MOST_BYTES // 4]
        if len(self._grown) > MOST_WAITING:
            self._grown.clear()
        for name in grown:
            self._grown.pop(name, None)
            try:
                await self._change(_TRIM, name, _ROW_BYTES, name, MOST_BYTES)
            except HarnessError as error:
                logger.error("old events of a session were not removed: %s", error)

    async def _change(self, text: str, *values: object) -> None:
        statement = self._database.tables.statement(text)

        async def work(conn: AsyncConnection) -> None:
            await conn.execute(statement, values)

        await self._database.transact(work)

    async def _select(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        await self.flush()
        statement = self._database.tables.statement(text)

        async def work(conn: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await conn.execute(statement, values)).fetchall()

        return await self._database.read(work)

    def _opened(self, session: str, stream: str, row: tuple[Any, ...]) -> Event:
        position, replica, number, kind, body = row
        event = Event(session, stream, replica, number, kind, _NOTHING, position)
        try:
            text = self._seal.open(body, event.place)
        except InvalidTag as error:
            raise HarnessError(
                "a stream cannot be read: it was sealed with a key that this server does not have"
            ) from error
        return changed(event, message=jsonrpc_message_adapter.validate_json(text, by_name=False))
