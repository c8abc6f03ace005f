"""Sessions of the handshake era with real servers: their runs go on, and so do their streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from benchmarks.replica_trio import Fleet, Replica
from tests.databases import Database, made_database
from tests.e2e.raw_sessions import Raw, Stream, raw
from tests.e2e.servers import call
from tests.replicas.servers import journal_url, serving
from tests.replicas.session_replicas import Switch

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

FORMS = {"elicitation": {}}
NAMES = (f"victim{number}" for number in count())


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with serving(
        tmp_path_factory.mktemp("fleet"), journal_url(database), names=("a", "b")
    ) as fleet:
        yield fleet


@pytest.fixture
def a(fleet: Fleet) -> Replica:
    return fleet.all["a"]


@pytest.fixture
def b(fleet: Fleet) -> Replica:
    return fleet.all["b"]


@pytest.fixture
def victim(fleet: Fleet) -> Iterator[Replica]:
    """A replica that a test may kill."""
    one = fleet.begin(next(NAMES))
    yield one
    one.end()


@asynccontextmanager
async def task(client: Raw, goal: str) -> AsyncIterator[Stream]:
    """Begin a task and read up to its first message."""
    params = {"name": "task", "arguments": {"goal": goal}, "_meta": {"progressToken": 1}}
    async with client.post("tools/call", params, 5) as stream:
        await stream.read(2)
        yield stream


async def test_a_task_of_a_killed_server_is_answered_on_its_stream_by_another(
    fleet: Fleet, a: Replica, victim: Replica
) -> None:
    async with (
        raw(victim.url) as client,
        task(client, "work 2 nap 2 work 2") as cut,
        client.at(a.url).resume(cut.ids[0]) as rest,
    ):
        await rest.read(1)
        victim.kill()
        assert await rest.read()
    assert rest.messages[-1]["id"] == 5
    assert rest.answer["status"] == "done", rest.answer
    assert rest.answer["answer"] == "Finished work 2 nap 2 work 2."
    assert len(fleet.effects.begun("pay", pid=victim.process.pid)) < 4
    assert not fleet.effects.repeated("pay")


async def test_an_answer_to_a_question_of_a_killed_server_counts(
    fleet: Fleet, a: Replica, b: Replica, victim: Replica
) -> None:
    async with raw(victim.url, **FORMS) as client, task(client, "work 1 ask work 1") as first:
        while first.messages[-1].get("method") != "elicitation/create":
            await first.read(len(first.ids) + 1)
        question = first.messages[-1]
        async with client.at(a.url).resume(first.ids[-2]) as rest:
            await rest.read(1)
            victim.kill()
            result = {"action": "accept", "content": {"decision": "approve"}}
            assert await client.at(b.url).tell(id=question["id"], result=result) == 202
            assert await rest.read()
    assert rest.answer["status"] == "done", rest.answer
    assert rest.answer["answer"] == "Finished work 1 ask work 1."
    assert not fleet.effects.repeated("pay")


async def test_the_official_client_goes_on_with_its_thread_from_server_to_server(
    a: Replica, b: Replica, victim: Replica
) -> None:
    switch = Switch(victim.url)
    async with switch.open(), Client(switch.url, mode="legacy") as client:
        made = await call(client, "write_todos", todos=[{"content": "x", "status": "pending"}])
        thread = made["thread_id"]
        victim.kill()
        for at in (a, b):
            switch.to(at.url)
            # It names no thread: its session has one, wherever it is served.
            done = await call(client, "task", goal="work 1")
            assert (done["status"], done["thread_id"]) == ("done", thread)
        named = await call(client, "task", goal="work 1", thread_id="release-notes")
        switch.to(a.url)
        shown = await call(client, "threads", thread_id="release-notes")
        assert shown["thread_id"] == named["thread_id"] != thread


async def test_a_standing_stream_tells_of_what_is_done_through_other_servers(
    a: Replica, b: Replica, victim: Replica
) -> None:
    async with raw(a.url) as client, client.listen() as standing:
        made = await structured(client.at(b.url), "write_todos", todos=[])
        uri = f"thread://{made['thread_id']}/todos"
        async with client.at(b.url).post("resources/subscribe", {"uri": uri}, 2) as stream:
            await stream.read()
        todos = [{"content": "look", "status": "pending"}]
        there = client.at(victim.url)
        await structured(there, "write_todos", todos=todos, thread_id=made["thread_id"])
        told: dict[str, Any] = {}
        while told.get("params") != {"uri": uri}:
            await standing.read(len(standing.ids) + 1)
            told = standing.messages[-1]
    assert told["method"] == "notifications/resources/updated"


async def structured(client: Raw, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    async with client.post("tools/call", params, 9) as stream:
        await stream.read()
    return stream.answer


async def test_a_standing_stream_goes_on_at_another_server_after_a_restart(
    a: Replica, b: Replica, victim: Replica
) -> None:
    async with raw(victim.url) as client:
        made = await structured(client, "write_todos", todos=[])
        uri = f"thread://{made['thread_id']}/todos"
        updated = {"method": "notifications/resources/updated", "params": {"uri": uri}}

        async def change(text: str) -> None:
            todos = [{"content": text, "status": "pending"}]
            there = client.at(b.url)
            await structured(there, "write_todos", todos=todos, thread_id=made["thread_id"])

        async with client.post("resources/subscribe", {"uri": uri}, 2) as stream:
            await stream.read()
        async with client.listen() as standing:
            await change("while it listens")
            await standing.read(1)
            await anyio.to_thread.run_sync(victim.end)
        await change("while nobody listens")
        async with client.at(a.url).resume(standing.ids[-1]) as standing:
            await standing.read(1)
            await change("while it listens again")
            while sum({**one, **updated} == one for one in standing.messages) < 2:
                await standing.read(len(standing.ids) + 1)
