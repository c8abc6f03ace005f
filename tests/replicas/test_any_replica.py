"""Any replica takes any request: a run of one is waited for, answered and ended through others."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client

from benchmarks.replica_trio import Fleet
from deep_agent_mcp.server.agenda.postgres_tables import PostgresTables
from deep_agent_mcp.server.agenda.schedules import ScheduleBook, Work
from deep_agent_mcp.server.replicas.sealed_values import ValueSealer
from tests.databases import Database, made_database
from tests.e2e.servers import call, refused
from tests.replicas.servers import clients, journal_url, serving, until, waited

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    flags = ("--drain-seconds", "0", "--schedules")
    with serving(tmp_path_factory.mktemp("fleet"), journal_url(database), flags=flags) as fleet:
        yield fleet


async def begun(client: Client, goal: str, **more: Any) -> dict[str, Any]:
    return await call(client, "task", goal=goal, wait_seconds=0, **more)


async def at_work(fleet: Fleet, tool: str, before: int = 0) -> None:
    """Wait until a tool has been begun once more than before."""
    await until(lambda: count(fleet, tool) > before)


def count(fleet: Fleet, tool: str) -> int:
    return len(fleet.effects.begun(tool))


async def test_a_run_of_one_is_waited_for_and_answered_through_others(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        run = await begun(a, "work 2 ask work 1")
        found = await waited(b, run["run_id"])
        assert found["status"] == "needs_approval"
        answered = await call(c, "reply", run_id=run["run_id"], decision="approve")
        assert answered["status"] in ("running", "done")
        done = await waited(a, run["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Finished work 2 ask work 1.")
        page = await call(b, "wait", run_id=run["run_id"], events_after=0)
        names = [one.get("name") for one in page["events"] if one.get("event") == "tool_end"]
        assert names.count("pay") == 3
    assert not fleet.effects.repeated()


async def test_a_schedule_fires_on_one_of_them(fleet: Fleet) -> None:
    made = ScheduleBook(tables := PostgresTables(fleet.url), ValueSealer(None))
    try:
        schedule = await made.add("work", Work("", "0 7 1 1 *", "UTC", "work 1"))
        await made.trigger(schedule)
        with anyio.fail_after(30):
            while not (await made.find("work", "")).last_run:  # noqa: ASYNC110  they do it
                await anyio.sleep(0.02)
        run_id = (await made.find("work", "")).last_run
        async with clients(fleet.all["b"]) as (b,):
            assert (await waited(b, run_id))["answer"] == "Finished work 1."
            shown = await b.read_resource("schedules://all")
            assert run_id in str(shown)
        await made.remove(schedule)
    finally:
        await tables.close()


async def test_a_message_through_another_replica_reaches_the_run(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        before = count(fleet, "nap")
        run = await begun(a, "nap 1 work 9")
        await at_work(fleet, "nap", before)
        told = await call(b, "reply", run_id=run["run_id"], message="work 1", wait_seconds=0)
        assert [one["status"] for one in told["messages"]] == ["queued"]
        done = await waited(c, run["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Finished work 1.")


async def test_who_waits_elsewhere_is_woken_at_once_and_hears_what_happens(fleet: Fleet) -> None:
    heard: list[str] = []

    async def hear(_: float, __: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with clients(*fleet.all.values()) as (a, b, c):
        run = await begun(a, "work 1 nap 0.3 work 12")
        ended: dict[str, float] = {}

        async def wait(name: str, client: Client) -> None:
            result = await client.call_tool(
                "wait", {"run_id": run["run_id"]}, progress_callback=hear
            )
            assert (result.structured_content or {})["status"] == "done"
            ended[name] = time.monotonic()

        async with anyio.create_task_group() as group:
            for name, client in (("a", a), ("b", b), ("c", c)):
                group.start_soon(wait, name, client)
    assert max(ended.values()) - min(ended.values()) < 3  # a look without a signal takes 5 s
    assert any("nap" in one for one in heard)


async def test_a_run_is_cancelled_through_another_replica(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        before = count(fleet, "nap")
        run = await begun(a, "nap 60")
        await at_work(fleet, "nap", before)
        begin = time.monotonic()
        ended = await call(b, "cancel", run_id=run["run_id"])
        assert ended["status"] == "cancelled"
        assert time.monotonic() - begin < 4  # less than a look without a signal
        found = await waited(c, run["run_id"])
        assert found["status"] == "cancelled"


async def test_a_busy_thread_names_its_run_on_every_replica(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        before = count(fleet, "nap")
        run = await begun(a, "nap 60")
        await at_work(fleet, "nap", before)
        thread = run["thread_id"]
        for tool, args in (
            ("task", {"goal": "work 1"}),
            ("write_todos", {"todos": []}),
            ("rewind", {"checkpoint_id": "cp_1"}),
        ):
            text = await refused(b, tool, thread_id=thread, **args)
            assert run["run_id"] in text, (tool, text)
        await call(c, "cancel", run_id=run["run_id"])
        again = await call(b, "task", goal="work 1", thread_id=thread)
        assert again["status"] == "done"


async def test_starts_with_one_key_begin_one_run(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as those:
        found: list[str] = []

        async def start(client: Client) -> None:
            run = await begun(client, "work 1", idempotency_key="one for all")
            found.append(run["run_id"])

        async with anyio.create_task_group() as group:
            for client in those:
                group.start_soon(start, client)
        assert len(found) == 3
        assert len({*found}) == 1


async def test_calls_on_one_thread_wait_for_each_other_across_replicas(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as those:
        made = await call(those[0], "write_file", path="/n0.txt", content="0")
        thread = made["thread_id"]

        async def write(number: int) -> None:
            args = {"path": f"/n{number}.txt", "content": str(number), "thread_id": thread}
            await call(those[number % 3], "write_file", **args)

        async with anyio.create_task_group() as group:
            for number in range(1, 13):
                group.start_soon(write, number)
        listed = await call(those[1], "ls", path="/", thread_id=thread)
        assert {*re.findall(r"n\d+", str(listed))} >= {f"n{number}" for number in range(13)}


async def test_a_thread_is_rewound_through_another_replica(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, _):
        made = await call(a, "write_file", path="/kept.txt", content="one")
        thread = made["thread_id"]
        history = await call(b, "threads", thread_id=thread)
        point = history["checkpoints"][0]["checkpoint_id"]
        await call(a, "write_file", path="/gone.txt", content="two", thread_id=thread)
        await call(b, "rewind", thread_id=thread, checkpoint_id=point)
        listed = str(await call(a, "ls", path="/", thread_id=thread))
        assert "kept.txt" in listed and "gone.txt" not in listed


async def test_listeners_of_a_replica_hear_of_changes_made_through_others(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, _):
        made = await call(a, "write_file", path="/one.txt", content="one")
        thread = made["thread_id"]
        uri = f"thread://{thread}/todos"
        async with b.listen(resource_subscriptions=[uri]) as events:
            with anyio.fail_after(30):
                await call(a, "write_todos", todos=[{"content": "x"}], thread_id=thread)
                async for event in events:
                    if str(getattr(event, "uri", "")) == uri:
                        break


async def test_the_page_of_a_replica_answers_and_probes_say_that_it_works(fleet: Fleet) -> None:
    async with httpx2.AsyncClient() as http:
        for one in fleet.all.values():
            base = f"http://127.0.0.1:{one.port}"
            assert (await http.get(f"{base}/ui")).status_code == 200
            assert (await http.get(f"{base}/readyz")).status_code == 200
