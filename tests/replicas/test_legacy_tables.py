"""What the database holds of sessions and their streams: sealed, bounded, and gone in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator

import pytest
from mcp.types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from psycopg import sql

from deep_agent_mcp.harness.databases.postgres import PostgresDatabase
from deep_agent_mcp.server.replicas.database import open_database
from deep_agent_mcp.server.replicas.sessions import event_log
from deep_agent_mcp.server.replicas.sessions.event_log import Event, EventKind, EventLog
from deep_agent_mcp.server.replicas.sessions.store import Seal, SessionStore, name_of
from tests.databases import Database, made_database

pytestmark = pytest.mark.anyio

SECRET = "a secret of the session"
HELLO = JSONRPCRequest(jsonrpc="2.0", id=0, method="initialize", params={"who": SECRET})
SESSION = name_of("0123456789")
STREAM = name_of("1")
SCHEMA = "deep_agent_replicas"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture
async def tables(server: Database) -> AsyncIterator[PostgresDatabase]:
    server.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    database = open_database(server.conninfo)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def store(tables: PostgresDatabase) -> SessionStore:
    return SessionStore(tables, Seal(b"k" * 32))


class Log(EventLog):
    """A log that notes which sessions it has told of."""

    def __init__(self, tables: PostgresDatabase, key: bytes = b"k" * 32) -> None:
        self.told: list[str] = []
        super().__init__(tables, Seal(key), self._note)
        self._numbers = iter(range(1, 1_000_000))

    def _note(self, sessions: Collection[str]) -> None:
        self.told += sessions

    async def put(self, text: str, kind: EventKind = "message", *, awaited: bool = False) -> Event:
        message = JSONRPCNotification(jsonrpc="2.0", method=text)
        event = Event(SESSION, STREAM, "a", next(self._numbers), kind, message)
        await self.add(event, awaited=awaited)
        return event

    async def kept(self) -> list[str]:
        texts, position = list[str](), 0
        while page := await self.page(SESSION, STREAM, position):
            position = page[-1].position
            texts += [getattr(one.message, "method", "") for one in page]
        return texts


@pytest.fixture
def log(tables: PostgresDatabase) -> Log:
    return Log(tables)


def rows(server: Database, table: str) -> list[tuple[object, ...]]:
    return server.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(SCHEMA, table)))


async def test_what_was_said_cannot_be_read_in_the_tables(
    server: Database, store: SessionStore, log: Log, tables: PostgresDatabase
) -> None:
    await store.begin(SESSION, "ann", HELLO)
    await store.watch(SESSION, SECRET)
    await store.send(SESSION, ["b"], HELLO)
    await log.put(SECRET)
    await log.flush()
    names = ("sessions", "watched_resources", "session_messages", "stream_events")
    stored = [row for name in names for row in rows(server, name)]
    assert len(stored) == 4
    assert SECRET not in repr(stored) and "0123456789" not in repr(stored)
    found = await store.find(SESSION)
    assert found is not None
    assert (found.owner, found.hello, found.watched) == ("ann", HELLO, frozenset({SECRET}))
    stranger = SessionStore(tables, Seal(b"x" * 32))
    assert await stranger.find(SESSION) is None


async def test_a_message_is_fetched_once_and_by_its_replica_only(store: SessionStore) -> None:
    await store.send(SESSION, ["b", "c"], HELLO)
    assert await store.fetch("a") == []
    (letter,) = await store.fetch("b")
    assert (letter.session, letter.message) == (SESSION, HELLO)
    assert await store.fetch("b") == []


async def test_a_session_that_nobody_uses_goes_with_all_that_is_its(
    server: Database, store: SessionStore, log: Log
) -> None:
    other = name_of("other")
    for name in (SESSION, other):
        await store.begin(name, "ann", HELLO)
        await store.watch(name, "thread://t")
    await log.put("kept as long as the session")
    await log.flush()
    server.execute(f"UPDATE {SCHEMA}.sessions SET seen_at = now() - interval '1 hour'")
    assert await store.keep([other], [SESSION, other, "gone"]) == {SESSION, other}
    await store.sweep()
    assert await store.find(SESSION) is None and await store.find(other) is not None
    assert len(rows(server, "watched_resources")) == 1
    assert rows(server, "stream_events") == []


async def test_only_its_owner_ends_a_session(store: SessionStore) -> None:
    await store.begin(SESSION, "ann", HELLO)
    assert not await store.end(SESSION, "ben")
    assert await store.end(SESSION, "ann")
    assert not await store.end(SESSION, "ann")


async def test_the_oldest_events_of_a_session_make_room(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MOST_BYTES", 40_000)
    texts = [f"{number} " + "x" * 1_000 for number in range(100)]
    for text in texts:
        await log.put(text)
        await log.flush()
    kept = await log.kept()
    assert 10 < len(kept) < 60
    assert kept == texts[-len(kept) :]


async def test_events_are_kept_for_an_hour(server: Database, log: Log) -> None:
    await log.put("old")
    await log.flush()
    server.execute(f"UPDATE {SCHEMA}.stream_events SET stored_at = now() - interval '2 hours'")
    await log.put("new")
    await log.flush()
    await log.sweep()
    assert await log.kept() == ["new"]


async def test_events_wait_for_a_database_that_is_away(
    server: Database, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    server.execute(f"ALTER TABLE {SCHEMA}.stream_events RENAME TO away")
    await log.put("first", awaited=True)
    assert not await log.flush()
    await log.put("second")
    assert "events of streams are not kept yet" in caplog.text
    server.execute(f"ALTER TABLE {SCHEMA}.away RENAME TO stream_events")
    assert await log.flush()
    assert await log.kept() == ["first", "second"]
    assert log.told == [SESSION]


async def test_a_place_is_found_as_long_as_something_of_its_stream_is_kept(
    server: Database, log: Log
) -> None:
    assert await log.cursor(SESSION, STREAM, "a", 3) is None
    for text in ("first", "lost", "third"):
        await log.put(text)
    first, lost, _ = await log.page(SESSION, STREAM, 0)
    server.execute(f"DELETE FROM {SCHEMA}.stream_events WHERE number = {lost.number}")
    assert await log.cursor(SESSION, STREAM, "a", lost.number) == first.position
    assert await log.cursor(SESSION, STREAM, "b", 1) == 0


async def test_what_a_dead_replica_was_asked_has_one_successor(
    store: SessionStore, log: Log
) -> None:
    await store.begin(SESSION, "ann", HELLO)
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
    await log.add(Event(SESSION, STREAM, "a", 1, "request", request), awaited=False)
    asked = await log.request(SESSION, STREAM)
    assert asked is not None and asked.replica == "a"
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    assert await log.succeed(Event(SESSION, STREAM, "b", 1, "request", request), asked)
    assert not await log.succeed(Event(SESSION, STREAM, "c", 1, "request", request), asked)
    assert not await log.succeed(Event(SESSION, STREAM, "c", 2, "last", answer), asked)
    again = await log.request(SESSION, STREAM)
    assert again is not None and (again.replica, again.message) == ("b", request)
    assert await log.succeed(Event(SESSION, STREAM, "c", 3, "last", answer), again)
    assert await log.cursor(SESSION, STREAM, "c", 3) == "ended"
