"""Events of streams: each session has its own, they are bounded, and readable only in memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator

import anyio
import pytest
from mcp.server.streamable_http import EventMessage
from mcp.types import JSONRPCNotification, JSONRPCResponse

from deep_agent_mcp.server.transports import event_store
from deep_agent_mcp.server.transports.event_store import EventLog, SessionEvents

pytestmark = pytest.mark.anyio


def note(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/x", params={"text": text})


def answer(request_id: int) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result={})


@pytest.fixture
async def log() -> AsyncGenerator[EventLog]:
    log = EventLog()
    with anyio.fail_after(60):
        async with log.open():
            yield log


class Heard:
    """What a resumed stream brought, in order."""

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[str](1_000)
        self.ids: list[str] = []

    async def __call__(self, event: EventMessage) -> None:
        assert event.event_id is not None
        self.ids.append(event.event_id)
        message = event.message
        text = message.params["text"] if isinstance(message, JSONRPCNotification) else "answer"  # type: ignore[index]
        await self.send.send(text)

    def all(self) -> list[str]:
        found: list[str] = []
        while self.receive.statistics().current_buffer_used:
            found.append(self.receive.receive_nowait())
        return found

    def close(self) -> None:
        self.send.close()
        self.receive.close()


async def resumed(session: SessionEvents, event_id: str) -> list[str]:
    """Return what follows an event on a stream that has ended."""
    heard = Heard()
    assert await session.replay_events_after(event_id, heard) is None
    found = heard.all()
    heard.close()
    return found


async def test_what_was_missed_comes_in_order_and_the_answer_ends_the_stream(
    log: EventLog,
) -> None:
    session = log.new_session()
    first = await session.store_event("1", None)
    await session.store_event("2", note("of another call"))
    second = await session.store_event("1", note("a"))
    last = await session.store_event("1", note("b"))
    ended = await session.store_event("1", answer(1))
    assert await resumed(session, first) == ["a", "b", "answer"]
    assert await resumed(session, second) == ["b", "answer"]
    assert await resumed(session, last) == ["answer"]
    assert await resumed(session, ended) == []


async def test_a_resumed_stream_goes_on_with_what_comes(log: EventLog) -> None:
    session = log.new_session()
    first = await session.store_event("1", None)
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.replay_events_after, first, heard)
        for number in range(100):
            await session.store_event("1", note(str(number)))
            if number % 10 == 0:
                assert await heard.receive.receive() is not None
        await session.store_event("1", answer(1))
    rest = heard.all()
    assert len(rest) == 91 and rest[-2:] == ["99", "answer"]
    assert heard.ids == sorted(heard.ids, key=lambda one: int(one.rpartition("_")[2]))
    heard.close()


async def test_sessions_with_the_same_streams_do_not_see_each_others_events(
    log: EventLog,
) -> None:
    ann, ben = log.new_session(), log.new_session()
    hers = await ann.store_event("1", None)
    his = await ben.store_event("1", None)
    await ann.store_event("1", note("hers"))
    await ann.store_event("1", answer(1))
    await ben.store_event("1", note("his"))
    await ben.store_event("1", answer(1))
    assert await resumed(ann, hers) == ["hers", "answer"]
    assert await resumed(ben, his) == ["his", "answer"]
    assert await resumed(ben, hers) == []


@pytest.mark.parametrize(
    "event_id",
    ["", "x", "1", "evt_0123456789abcdef_1", "{}_0", "{}_99", "{}_²", "{}_" + "9" * 5_000],
)
async def test_an_event_that_does_not_exist_is_followed_by_nothing(
    log: EventLog, event_id: str
) -> None:
    session = log.new_session()
    own = (await session.store_event("1", note("a"))).rpartition("_")[0]
    assert await resumed(session, event_id.replace("{}", own)) == []


async def test_of_two_readers_of_a_stream_the_later_one_stays(log: EventLog) -> None:
    session = log.new_session()
    first = await session.store_event("GET", note("a"))
    one, other = Heard(), Heard()
    ended = anyio.Event()

    async def read_first() -> None:
        await session.replay_events_after(first, one)
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_first)
        await session.store_event("GET", note("b"))
        assert await one.receive.receive() == "b"
        tasks.start_soon(session.replay_events_after, first, other)
        await ended.wait()
        await session.store_event("GET", note("c"))
        assert [await other.receive.receive() for _ in range(2)] == ["b", "c"]
        tasks.cancel_scope.cancel()
    assert one.all() == []
    one.close()
    other.close()


async def test_events_are_not_kept_longer_than_they_may_be(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = log.new_session(), log.new_session()
    first = await session.store_event("1", None)
    await session.store_event("1", answer(1))
    assert await resumed(session, first) == ["answer"]
    monkeypatch.setattr(log, "_oldest", lambda: time.monotonic() + 60)  # an hour later
    assert await resumed(session, first) == []
    assert await kept(log) == 2
    other.end()
    await resumed(session, first)  # which writes what has been collected
    assert await kept(log) == 0


async def kept(log: EventLog) -> int:
    """Return how many events the database holds."""
    database = log._database  # pyright: ignore[reportPrivateUsage]
    assert database is not None
    (count,) = database.execute("SELECT count(*) FROM events").fetchone()
    return int(count)


async def test_beyond_the_most_bytes_the_oldest_events_go() -> None:
    log = EventLog(most_bytes=400_000)
    with anyio.fail_after(60):
        async with log.open():
            session = log.new_session()
            first = await session.store_event("1", note("x"))
            for _ in range(600):
                last = await session.store_event("2", note("x" * 2_000))
            await session.store_event("2", answer(2))
            assert await resumed(session, last) == ["answer"]
            assert await resumed(session, first) == []
            database = log._database  # pyright: ignore[reportPrivateUsage]
            assert database is not None
            (kept,) = database.execute("SELECT sum(length(sealed)) FROM events").fetchone()
    assert 100_000 < kept < 400_000


@pytest.mark.parametrize(("stream", "text"), [("2", "x" * 2_000), ("2" * 2_000, "x")])
async def test_a_session_that_floods_takes_no_room_from_another_one(stream: str, text: str) -> None:
    log = EventLog(most_bytes=400_000)
    with anyio.fail_after(60):
        async with log.open():
            quiet, loud = log.new_session(), log.new_session()
            first = await quiet.store_event("1", note("x" * 100_000))
            await quiet.store_event("1", answer(1))
            for _ in range(600):
                await loud.store_event(stream, note(text))
            assert await resumed(quiet, first) == ["answer"]


async def test_events_are_sealed_and_in_no_file_with_a_name(log: EventLog) -> None:
    session = log.new_session()
    first = await session.store_event("1", note("a secret"))
    await session.store_event("1", answer(1))
    assert await resumed(session, first) == ["answer"]
    database = log._database  # pyright: ignore[reportPrivateUsage]
    assert database is not None
    assert not any(b"secret" in row[0] for row in database.execute("SELECT sealed FROM events"))
    assert database.execute("PRAGMA database_list").fetchall()[0][2] == ""


async def test_a_message_that_cannot_be_written_is_left_out_and_serving_goes_on(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    session, other = log.new_session(), log.new_session()
    first, theirs = await session.store_event("1", None), await other.store_event("1", None)
    await session.store_event("1", note("half a letter: \ud800"))
    for one in (session, other):
        await one.store_event("1", answer(1))
    await anyio.sleep(2 * event_store.COLLECT_SECONDS)  # written along, not by who reads
    assert await resumed(session, first) == ["answer"]
    assert await resumed(other, theirs) == ["answer"]
    assert "is not kept" in caplog.text


async def test_a_session_that_ends_leaves_nothing_and_ends_its_resumed_streams(
    log: EventLog,
) -> None:
    session, other = log.new_session(), log.new_session()
    first, theirs = await session.store_event("GET", note("a")), await other.store_event("1", None)
    await session.store_event("GET", note("b"))
    await other.store_event("1", answer(1))
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.replay_events_after, first, heard)
        assert await heard.receive.receive() == "b"
        session.end()
        session.end()
    await session.store_event("GET", note("too late"))
    assert await resumed(session, first) == []
    assert await resumed(other, theirs) == ["answer"]
    heard.close()
    database = log._database  # pyright: ignore[reportPrivateUsage]
    assert database is not None
    assert database.execute("SELECT count(*) FROM events").fetchone() == (2,)


async def test_without_room_nothing_is_kept_and_serving_goes_on(
    log: EventLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(database: sqlite3.Connection) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(event_store, "_bytes_used", full)
    session = log.new_session()
    first = await session.store_event("1", None)
    await session.store_event("1", answer(1))
    assert await resumed(session, first) == []
    assert "cannot be resumed: database or disk is full" in caplog.text


async def test_a_session_that_ends_while_there_is_no_room_leaves_nothing_later(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(database: sqlite3.Connection) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    session, other = log.new_session(), log.new_session()
    first = await session.store_event("1", answer(1))
    assert await resumed(session, first) == []
    assert await kept(log) == 1
    with monkeypatch.context() as disk:
        disk.setattr(event_store, "_bytes_used", full)
        session.end()
        await resumed(other, await other.store_event("1", answer(1)))
        assert await kept(log) == 1
    await resumed(other, await other.store_event("1", answer(2)))
    assert await kept(log) == 1
