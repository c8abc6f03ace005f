"""A session of the handshake era is served by every replica, and outlives the one it began on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, types

from deep_agent_mcp.server.auth.tokens import TokenFile
from deep_agent_mcp.server.replicas.database import open_database
from deep_agent_mcp.server.replicas.sessions.store import Seal, SessionStore, name_of
from tests.databases import Database, made_database
from tests.e2e.raw_sessions import Raw, Stream, raw
from tests.replicas.session_replicas import Replica, Switch, replica
from tests.replicas.session_server import KEY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

URI = "thread://t/todos"
FORMS = {"elicitation": {}}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module")
def a(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with replica(database.conninfo, "a", tmp_path_factory.mktemp("a")) as one:
        yield one


@pytest.fixture(scope="module")
def b(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with replica(database.conninfo, "b", tmp_path_factory.mktemp("b")) as one:
        yield one


@pytest.fixture
def victim(database: Database, tmp_path: Path) -> Iterator[Replica]:
    """A replica that a test may kill."""
    with replica(database.conninfo, f"v{abs(hash(tmp_path))}", tmp_path) as one:
        yield one


@asynccontextmanager
async def work(client: Raw, path: Path, **more: str) -> AsyncIterator[Stream]:
    """Begin a call that lasts until a file is there, and read up to its first progress."""
    params = {
        "name": "work",
        "arguments": {"path": str(path), **more},
        "_meta": {"progressToken": "p"},
    }
    async with client.post("tools/call", params, 7) as stream:
        await stream.read(2)  # the place to resume from, and the first progress
        yield stream


async def test_the_official_client_goes_from_replica_to_replica_and_outlives_one(
    a: Replica, b: Replica, victim: Replica
) -> None:
    switch, seen = Switch(victim.url), list[str]()
    async with switch.open(), Client(switch.url, mode="legacy") as client:
        for at in (victim, a, b, a):
            switch.to(at.url)
            result = await client.call_tool("where", {})
            seen.append(result.content[0].text.partition(":")[0])  # type: ignore[union-attr]
        victim.kill()
        for at in (a, b):
            switch.to(at.url)
            result = await client.call_tool("where", {})
            seen.append(result.content[0].text.partition(":")[0])  # type: ignore[union-attr]
    assert seen == [victim.name, a.name, b.name, a.name, a.name, b.name]


async def test_a_session_that_is_deleted_anywhere_has_ended_everywhere(
    a: Replica, b: Replica, tmp_path: Path
) -> None:
    async with raw(a.url) as client:
        async with work(client, tmp_path / "never") as open_call:
            ended = await client.http.delete(b.url, headers=client.headers)
            assert ended.status_code == 200
            await open_call.read()  # to its end, which the session's end brings
        for at in (a, b):
            assert await client.at(at.url).tell(id=1, method="ping") == 404
        again = await client.http.delete(b.url, headers=client.headers)
        assert again.status_code == 404


async def test_an_answer_finds_its_way_to_the_replica_that_asked(a: Replica, b: Replica) -> None:
    async with raw(a.url, **FORMS) as client:
        params = {"name": "ask", "arguments": {}}
        async with (
            client.post("tools/call", params, 1) as at_a,
            client.at(b.url).post("tools/call", params, 2) as at_b,
        ):
            for stream in (at_a, at_b):
                await stream.read(2)
            questions = [stream.messages[-1] for stream in (at_a, at_b)]
            assert [one["method"] for one in questions] == ["elicitation/create"] * 2
            assert questions[0]["id"] != questions[1]["id"]
            for question, through, colour in zip(questions, (b, a), ("red", "blue"), strict=True):
                answer = {"action": "accept", "content": {"colour": colour}}
                there = client.at(through.url)
                assert await there.tell(id=question["id"], result=answer) == 202
            assert await at_a.read() and await at_b.read()
    assert at_a.text.startswith(a.name) and '"red"' in at_a.text
    assert at_b.text.startswith(b.name) and '"blue"' in at_b.text


async def test_the_official_client_answers_forms_wherever_it_is_led(a: Replica, b: Replica) -> None:
    switch = Switch(a.url)

    async def answer(_ctx: Any, _params: Any) -> types.ElicitResult:
        switch.to(b.url)
        return types.ElicitResult(action="accept", content={"colour": "green"})

    async with (
        switch.open(),
        Client(switch.url, mode="legacy", elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("ask", {})
    text = result.content[0].text  # type: ignore[union-attr]
    assert text.startswith(a.name) and '"green"' in text


async def test_a_call_is_cancelled_through_another_replica(
    a: Replica, b: Replica, tmp_path: Path
) -> None:
    async with raw(a.url) as client, work(client, tmp_path / "never") as stream:
        params = {"requestId": 7, "reason": "changed my mind"}
        there = client.at(b.url)
        assert await there.tell(method="notifications/cancelled", params=params) == 202
        assert await stream.read()
    assert stream.messages[-1]["error"]["code"] == -32800
    assert (tmp_path / "never.cancelled").exists()


async def test_a_stream_is_resumed_on_another_replica_and_goes_on_there(
    a: Replica, b: Replica, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    async with raw(a.url) as client:
        async with work(client, done) as cut:
            pass
        async with client.at(b.url).resume(cut.ids[0]) as rest:
            await rest.read(1)
            done.write_text("well done")
            assert await rest.read(), "the answer did not end the stream"
        async with client.at(b.url).resume(rest.ids[-2]) as again:
            await again.read()
        async with client.at(b.url).resume(rest.ids[-1]) as nothing:
            assert await nothing.read()
    assert [one.get("method", "result") for one in rest.messages] == [
        "notifications/progress",
        "notifications/progress",
        "result",
    ]
    assert rest.text == f"{a.name}: well done" and rest.messages[-1]["id"] == 7
    assert rest.ids[0] == cut.ids[1]
    assert again.messages == rest.messages[-1:] and nothing.messages == []


async def test_what_a_dead_replica_was_asked_is_answered_by_another(
    a: Replica, victim: Replica, tmp_path: Path
) -> None:
    async with (
        raw(victim.url) as client,
        work(client, tmp_path / "never") as cut,
        client.at(a.url).resume(cut.ids[0]) as rest,
    ):
        await rest.read(1)  # so it was stored
        victim.kill()
        assert await rest.read()
    assert rest.messages[0] == cut.messages[0]
    assert rest.messages[-1]["id"] == 7
    assert "stopped before it answered" in rest.messages[-1]["error"]["message"]


async def test_a_call_that_can_be_repeated_is_served_to_its_end_by_another_replica(
    a: Replica, b: Replica, victim: Replica, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    async with (
        raw(victim.url) as client,
        work(client, done, text="again") as cut,
        client.at(a.url).resume(cut.ids[0]) as rest,
    ):
        await rest.read(1)
        victim.kill()
        async with client.at(b.url).resume(cut.ids[-1]) as other:
            await rest.read(2)
            await other.read(1)  # the same beginning: one of both serves it
            done.write_text("well done")
            assert await rest.read() and await other.read()
    assert rest.messages[1] == cut.messages[0]  # with the key of the first time
    assert rest.messages[1:] == other.messages
    assert rest.text in (f"{a.name}: well done", f"{b.name}: well done")
    assert rest.messages[-1]["id"] == 7


@pytest.mark.parametrize("is_early", [True, False])
async def test_an_answer_to_a_dead_replica_is_one_to_the_replica_that_goes_on(
    a: Replica, b: Replica, victim: Replica, is_early: bool
) -> None:
    params = {"name": "ask", "arguments": {"text": "again"}}
    async with (
        raw(victim.url, **FORMS) as client,
        client.post("tools/call", params, 3) as first,
        client.at(a.url).resume((await first.read(2), first.ids[0])[1]) as rest,
    ):
        await rest.read(1)
        question = rest.messages[0]
        assert question == first.messages[-1]
        there, result = client.at(b.url), {"action": "accept", "content": {"colour": "grey"}}
        await there.call("where", 4)  # so that it has a part of the session
        if is_early:
            victim.kill()
        else:
            victim.kill()
            await rest.read(2)  # the same question again
            assert rest.messages[-1]["params"] == question["params"]
        assert await there.tell(id=question["id"], result=result) == 202
        assert await rest.read()
    assert rest.text.startswith(a.name) and '"grey"' in rest.text


async def test_an_answer_that_waits_for_a_dead_replica_is_found(
    database: Database, a: Replica, victim: Replica
) -> None:
    params = {"name": "ask", "arguments": {"text": "again"}}
    async with raw(victim.url, **FORMS) as client:
        async with client.post("tools/call", params, 3) as first:
            await first.read(2)
        async with client.at(a.url).resume(first.ids[0]) as rest:
            await rest.read(1)
            victim.kill()
            await rest.read(2)  # the same question again
            result = {"action": "accept", "content": {"colour": "pink"}}
            answer = types.JSONRPCResponse(jsonrpc="2.0", id=rest.messages[0]["id"], result=result)
            tables = open_database(database.conninfo)
            # As whoever receives it leaves it, before anybody knows of the death.
            session = name_of(client.headers["Mcp-Session-Id"])
            await SessionStore(tables, Seal(KEY)).send(session, [victim.name], answer)
            await tables.close()
            assert await rest.read()
    assert rest.text.startswith(a.name) and '"pink"' in rest.text


async def test_while_the_database_is_away_a_session_goes_on_where_it_is(
    database: Database, a: Replica, b: Replica
) -> None:
    async with raw(a.url) as client:
        database.execute("ALTER TABLE deep_agent_replicas.sessions RENAME TO away")
        try:
            assert (await client.call("where", 2)).startswith(a.name)
            body = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
            refused = await client.http.post(b.url, json=body, headers=client.headers)
        finally:
            database.execute("ALTER TABLE deep_agent_replicas.away RENAME TO sessions")
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
        assert (await client.at(b.url).call("where", 4)).startswith(b.name)


def updated(uri: str) -> dict[str, Any]:
    method = "notifications/resources/updated"
    return {"jsonrpc": "2.0", "method": method, "params": {"uri": uri}}


async def test_a_change_is_told_once_on_the_standing_stream_wherever_it_hangs(
    a: Replica, b: Replica, victim: Replica
) -> None:
    async with raw(a.url) as client, client.listen() as standing:
        for uri in (URI, "thread://mark"):
            async with client.at(b.url).post("resources/subscribe", {"uri": uri}) as stream:
                await stream.read()
        for heard, through in enumerate((victim, b, a), start=1):
            await client.at(through.url).call("change", text="thread://other")
            await client.at(through.url).call("change", text=URI)
            await standing.read(heard)
        assert standing.messages == [updated(URI)] * 3
        async with client.at(victim.url).post("resources/unsubscribe", {"uri": URI}) as stream:
            await stream.read()
        # The replica that tells hears of it in a moment.
        while standing.messages[-2:] != [updated("thread://mark")] * 2:
            for uri in (URI, "thread://mark"):
                await client.at(b.url).call("change", text=uri)
            await standing.read(len(standing.ids) + 1)


async def test_after_the_death_of_its_replica_a_standing_stream_goes_on_elsewhere(
    a: Replica, b: Replica, victim: Replica
) -> None:
    async with raw(victim.url) as client:
        async with client.post("resources/subscribe", {"uri": URI}) as stream:
            await stream.read()
        async with client.listen() as first:
            await client.call("change", text=URI)
            await first.read(1)
            victim.kill()
        await client.at(b.url).call("change", text=URI)  # while nobody listens
        async with client.at(a.url).resume(first.ids[-1]) as rest:
            await rest.read(4)
            before = list(rest.messages)
            await client.at(b.url).call("change", text=URI)
            await rest.read(5)
    missed = {one["method"].removeprefix("notifications/") for one in before}
    lists = {f"{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
    assert missed == {*lists, "resources/updated"}
    assert rest.messages[-1]["params"] == {"uri": URI}


async def test_who_listens_elsewhere_is_not_told_twice(a: Replica, b: Replica) -> None:
    async with raw(a.url) as client, client.listen() as first:
        async with client.post("resources/subscribe", {"uri": URI}) as stream:
            await stream.read()
        async with client.at(b.url).listen() as second:
            assert await first.read(), "the older of two standing streams ends"
            for heard, through in enumerate((a, b), start=1):
                await client.at(through.url).call("change", text=URI)
                await second.read(heard)
    assert first.messages == [] and len(second.messages) == 2


@pytest.fixture(scope="module")
def guarded(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Replica, Replica, TokenFile]]:
    """Two replicas that know the same tokens."""
    place = tmp_path_factory.mktemp("guarded")
    flags = ("auth=token", f"state_dir={place}")
    with (
        replica(database.conninfo, "g1", place, *flags) as one,
        replica(database.conninfo, "g2", place, *flags) as two,
    ):
        yield one, two, TokenFile(place / "tokens.json")


async def test_somebody_elses_session_does_not_exist_on_any_replica(
    guarded: tuple[Replica, Replica, TokenFile],
) -> None:
    one, two, tokens = guarded
    ann, ben = (tokens.create(name, ("drive",))[1] for name in ("ann", "ben"))
    async with raw(one.url, ann) as hers, raw(one.url, ben) as his:
        assert (await hers.at(two.url).call("where")).startswith(two.name)
        session = {"Mcp-Session-Id": hers.headers["Mcp-Session-Id"]}
        for url in (one.url, two.url):
            for method in ("GET", "POST", "DELETE"):
                headers = {**his.headers, **session}
                body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                sent = httpx2.Request(method, url, headers=headers, json=body)
                refused = await his.http.send(sent)
                assert (refused.status_code, method) == (404, method)
        async with his.at(two.url).resume("evt_replica-g1_1_" + "0" * 32) as nothing:
            assert await nothing.read() and nothing.messages == []
        assert (await hers.call("where")).startswith(one.name)
