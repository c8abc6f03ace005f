"""Tokens of replicas: made and revoked on the command line, for all replicas at once."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from deep_agent_mcp.server.auth import http, shared_database
from deep_agent_mcp.server.auth.caller import AGENTS_CLAIM
from deep_agent_mcp.server.auth.shared_database import DatabaseTokens
from deep_agent_mcp.server.auth.tokens import TokenError, TokenVerifier, new_token
from deep_agent_mcp.server.replicas.database import open_database
from deep_agent_mcp.server.replicas.sealed_values import ValueSealer
from deep_agent_mcp.server.settings.settings import Settings
from tests.databases import Database, made_database
from tests.replicas.test_shared_state import Replicas

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture
def replicas(database: Database, tmp_path: Path) -> Replicas:
    return Replicas(database, tmp_path)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_database, "_LOOK_SECONDS", 0.0)


async def made(replicas: Replicas, *args: str) -> dict[str, Any]:
    done = await replicas.command("token", "create", *args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


async def test_a_token_of_the_command_line_holds_on_all_replicas(replicas: Replicas) -> None:
    token = await made(replicas, "ann", "--scope", "drive", "--agents", "scout")
    for machine in "ab":
        async with replicas.shared(machine) as shared:
            access = await TokenVerifier(shared.tokens).verify_token(token["token"])
            assert access is not None
            assert (access.subject, access.scopes) == ("ann", ["drive"])
            assert access.claims == {AGENTS_CLAIM: ["scout"]}
    assert not list(replicas.place.rglob("tokens.json"))
    listed = await replicas.command("token", "list")
    assert f"{token['id']}  ann  drive  never ends" in listed.stdout


async def test_a_revoked_token_ends_on_all_replicas_within_a_second(replicas: Replicas) -> None:
    token = await made(replicas, "ann")
    async with replicas.shared("a") as a, replicas.shared("b") as b:
        verifiers = [TokenVerifier(one.tokens) for one in (a, b)]
        assert all([await one.verify_token(token["token"]) for one in verifiers])
        done = await replicas.command("token", "revoke", token["id"])
        assert done.exit_code == 0 and "of ann is revoked" in done.stdout
        with anyio.fail_after(30):
            while any([await one.verify_token(token["token"]) for one in verifiers]):  # noqa: ASYNC110  no event tells
                await anyio.sleep(0.02)
    assert shared_database._LOOK_SECONDS < 1  # how long it takes here says more of the machine
    again = await replicas.command("token", "revoke", token["id"])
    assert again.exit_code == 1 and "nothing was done" in again.stderr


@pytest.mark.usefixtures("at_once")
async def test_a_guessed_token_and_that_of_another_are_refused(replicas: Replicas) -> None:
    ann, ben = await made(replicas, "ann"), await made(replicas, "ben")
    async with replicas.shared("a") as shared:
        verifier = TokenVerifier(shared.tokens)
        assert await verifier.verify_token(ann["token"].replace(ann["id"], ben["id"])) is None
        assert await verifier.verify_token("dam_" + "0" * 12 + "_" + "x" * 43) is None
        assert await verifier.verify_token(ann["token"]) is not None


@pytest.mark.parametrize("wrong", [-3_600, 3_600])
@pytest.mark.usefixtures("at_once")
async def test_no_clock_but_the_databases_decides_when_a_token_ends(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    right = time.time
    kept, token = new_token("ann", ("drive",), lifetime=60)
    ended, late = new_token("ann", ("drive",), lifetime=-1)
    async with replicas.shared("a") as a, replicas.shared("b") as b:
        await a.tokens.add(kept)
        await a.tokens.add(ended)
        monkeypatch.setattr(time, "time", lambda: right() + wrong)
        verifier = TokenVerifier(b.tokens)
        access = await verifier.verify_token(token)
        assert access is not None and access.expires_at is not None
        assert 50 < access.expires_at - time.time() <= 60
        assert await verifier.verify_token(late) is None
        expired = {one.id: one.is_expired for one in await b.tokens.all()}
        assert expired == {kept.id: False, ended.id: True}


async def test_many_requests_with_unknown_tokens_cost_few_look_ups(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    async with replicas.shared("a") as shared:
        tokens = shared.tokens
        assert isinstance(tokens, DatabaseTokens)
        look = DatabaseTokens._look

        async def counted(self: DatabaseTokens, looks: Any) -> None:
            asked.append(len(looks.ids))
            await look(self, looks)

        monkeypatch.setattr(DatabaseTokens, "_look", counted)
        record, token = new_token("ann", ("drive",))
        await tokens.add(record)
        found: list[bool] = []

        async def check(one: str) -> None:
            found.append(await TokenVerifier(tokens).verify_token(one) is not None)

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(check, f"dam_{number:012x}_" + "x" * 43)
            for _ in range(10):
                group.start_soon(check, token)
    assert sum(asked) == 201 and len(asked) <= 2
    assert (found.count(True), found.count(False)) == (10, 200)


async def test_who_is_cancelled_while_it_looks_leaves_the_others_nothing_wrong(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, token = new_token("ann", ("drive",))
    async with replicas.shared("a") as shared:
        tokens = shared.tokens
        assert isinstance(tokens, DatabaseTokens)
        await tokens.add(record)
        rows, begun = DatabaseTokens._rows, [anyio.Event(), anyio.Event()]
        first_may_end, looked = anyio.Event(), 0

        async def slow(self: DatabaseTokens, text: str, parameters: Any) -> Any:
            nonlocal looked
            looked += 1
            if looked <= len(begun):
                begun[looked - 1].set()
                await (first_may_end.wait() if looked == 1 else anyio.sleep_forever())
            return await rows(self, text, parameters)

        monkeypatch.setattr(DatabaseTokens, "_rows", slow)
        found: list[Any] = []

        async def check() -> None:
            found.append(await TokenVerifier(tokens).verify_token(token))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(tokens.find, "another")
                await begun[0].wait()
                async with anyio.create_task_group() as doomed:
                    for number, tasks in enumerate((doomed, group), 1):
                        tasks.start_soon(check)
                        while tokens._turn.statistics().tasks_waiting < number:
                            await anyio.lowlevel.checkpoint()
                    first_may_end.set()
                    await begun[1].wait()
                    doomed.cancel_scope.cancel()
    assert looked == 3
    assert [one.subject for one in found] == ["ann"]


@pytest.mark.usefixtures("at_once")
async def test_a_damaged_record_is_not_accepted_and_named(replicas: Replicas) -> None:
    bad, good = await made(replicas, "ann"), await made(replicas, "ben")
    replicas.execute(f"UPDATE \"TABLES\".tokens SET body = '\\x007b7d' WHERE id = '{bad['id']}'")
    async with replicas.shared("a") as shared:
        verifier = TokenVerifier(shared.tokens)
        with pytest.raises(TokenError, match=f"token {bad['id']} is damaged"):
            await verifier.verify_token(bad["token"])
        assert await verifier.verify_token(good["token"]) is not None


def test_while_the_database_is_away_clients_are_asked_to_come_again(tmp_path: Path) -> None:
    async def inside(_: Request) -> Response:
        raise AssertionError("nobody may get here")

    away = open_database("postgresql://postgres@127.0.0.1:1/none", timeout=2)
    settings = Settings(transport="http", auth=("token",), state_dir=tmp_path)
    tokens = DatabaseTokens(away, ValueSealer(None))
    middleware = http.auth_middleware(settings, lambda _tool: (), tokens)
    app = Starlette(routes=[Route("/mcp", inside)], middleware=middleware)
    _, token = new_token("ann", ("drive",))
    with TestClient(app) as client:
        answer = client.get("/mcp", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert "Nothing was done" in answer.json()["error_description"]
        assert "127.0.0.1" not in answer.text
        # What is no token of ours is refused without asking.
        wrong = client.get("/mcp", headers={"Authorization": "Bearer nonsense"})
        assert wrong.status_code == 401


async def test_a_stream_outlives_a_database_that_is_away_but_no_revoked_token(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "RECHECK_SECONDS", 0.01)
    monkeypatch.setattr(shared_database, "_LOOK_SECONDS", 0.0)
    reached, ended = anyio.Event(), anyio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            yield b"first"
            reached.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def stream(_: Request) -> Response:
        return StreamingResponse(parts())

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110  no event tells
            await anyio.sleep(0.01)

    def failed_checks() -> int:
        return caplog.text.count("tokens cannot be checked")

    record, token = new_token("ann", ("drive",))
    settings = Settings(transport="http", auth=("token",), state_dir=replicas.place)
    async with replicas.shared("a") as shared:
        assert isinstance(shared.tokens, DatabaseTokens)
        tokens = shared.tokens
        await tokens.add(record)
        middleware = http.auth_middleware(settings, lambda _tool: (), tokens)
        app = Starlette(routes=[Route("/mcp", stream)], middleware=middleware)
        asked = {"type": "http", "method": "GET", "path": "/mcp", "query_string": b""}
        asked["headers"] = [(b"authorization", f"Bearer {token}".encode())]

        async def receive() -> Any:
            return await anyio.sleep_forever()

        async def send(_: Any) -> None:
            await anyio.lowlevel.checkpoint()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(app, asked, receive, send)
                await reached.wait()
                away = open_database("postgresql://postgres@127.0.0.1:1/none", timeout=2)
                database, tokens._database = tokens._database, away
                await until(lambda: failed_checks() >= 3)
                assert not ended.is_set()
                tokens._database = database
                await tokens.revoke(record.id)
                await ended.wait()
