"""Replicas whose runs an engine hands out: what clients see, and what its tables are for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg
import pytest

from benchmarks.replica_trio import Fleet, replicas
from deep_agent_mcp.server.runs.queue.losses import MOST_LOSSES
from tests.databases import Database, made_database
from tests.e2e.servers import call
from tests.replicas.servers import clients, journal_url, serving, start, until, waited

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


async def _one_line_whose_engine_loses(loss: str, database: Database, tmp_path: Path) -> None:
    url = journal_url(database)
    flags = ("--engine", "dbos", "--max-runs", "1", "--drain-seconds", "0")
    with serving(tmp_path, url, ("a", "b"), flags) as fleet:
        a, b = fleet.all.values()
        async with clients(a, b) as (one, two):
            first = await call(one, "task", goal="nap 600", wait_seconds=0)
            await until(lambda: bool(fleet.effects.begun("nap")))
            second = await call(two, "task", goal="work 1", wait_seconds=0)
            assert (second["status"], second["doing"]) == ("queued", "waits for a free place")
            with psycopg.connect(database.conninfo, autocommit=True) as conn:
                conn.execute(loss.format(f"{url.rpartition('=')[2]}_engine").encode())
            await call(two, "cancel", run_id=first["run_id"])
            assert (await waited(one, second["run_id"]))["status"] == "done"


async def _a_run_that_kills_five_servers(engine: str, database: Database, tmp_path: Path) -> None:
    flags = ("--engine", engine, "--drain-seconds", "0")
    url, agent = journal_url(database), "tests.replicas.poison:agent"
    with replicas(tmp_path, url, ("a", "b"), start=start, flags=flags, agent=agent) as fleet:
        run_id = await _begun(fleet)
        dead: set[str] = set()
        while len(dead) < MOST_LOSSES:
            fallen = {name for name, one in fleet.all.items() if one.process.poll() is not None}
            for name in fallen - dead:
                await anyio.to_thread.run_sync(fleet.begin, f"{name}+")
            dead |= fallen
            await anyio.sleep(0.05)
        living = [one for one in fleet.all.values() if one.process.poll() is None]
        async with clients(living[0]) as (client,):
            given = {"run_id": run_id, "events_after": 0}
            ended = (await client.call_tool("wait", given)).structured_content or {}
            assert ended["status"] == "failed"
            assert "5 servers died while they worked on this run" in ended["reason"]
            lost = [one for one in ended["events"] if one.get("event") == "carrier_lost"]
            assert [one["losses"] for one in lost] == [1, 2, 3, 4, 5]
        assert len(dead) == MOST_LOSSES


async def _begun(fleet: Fleet) -> str:
    """Start the run; the server that is asked may die before it answers."""
    while True:
        living = [one for one in fleet.all.values() if one.process.poll() is None]
        with suppress(Exception):
            async with clients(living[0]) as (client,):
                given = {"goal": "go", "idempotency_key": "poison", "wait_seconds": 0}
                return (await call(client, "task", **given))["run_id"]


async def _a_clock_is_an_hour_ahead(database: Database, tmp_path: Path) -> None:
    with _one_and_another(tmp_path, journal_url(database), CLOCK_AHEAD="3600") as fleet:
        a, b = fleet.all.values()
        async with clients(a) as (on_a,):
            async with clients(b) as (on_b,):
                held = await call(on_b, "task", goal="nap 600", wait_seconds=0)
                await until(lambda: bool(fleet.effects.begun("nap")))
                given = {"thread_id": held["thread_id"], "on_busy": "interrupt", "wait_seconds": 0}
                urgent = await call(on_a, "task", goal="work 1", **given)
                assert (await waited(on_b, urgent["run_id"]))["status"] == "done"
                assert (await waited(on_a, held["run_id"]))["status"] == "cancelled"
                runs = [
                    await call(one, "task", goal="work 20", wait_seconds=0)
                    for one in (on_a, on_b, on_a, on_b)
                ]
                ended = [await waited(on_a, one["run_id"]) for one in runs]
                assert [one["status"] for one in ended] == ["done"] * 4
                at = {one["run_id"]: set[int]() for one in runs}
                for one in fleet.effects.begun():
                    at.get(one.run_id, set()).add(one.pid)
                assert [*map(len, at.values())] == [1] * 4  # nobody was taken for dead
                last = await call(on_b, "task", goal="work 60", wait_seconds=0)
                await until(
                    lambda: any(one.run_id == last["run_id"] for one in fleet.effects.begun())
                )
                b.kill()
            assert (await waited(on_a, last["run_id"]))["status"] == "done"
            assert not fleet.effects.repeated("pay")


async def _legs_mean_something_else_to_one(database: Database, tmp_path: Path) -> None:
    flags = ("--max-runs", "1")
    with _one_and_another(tmp_path, journal_url(database), flags, LEGS="legs-2") as fleet:
        a, b = fleet.all.values()
        async with clients(b) as (on_b,):
            async with clients(a) as (on_a,):
                for one in (on_a, on_b):
                    assert (await call(one, "task", goal="work 1"))["status"] == "done"
                asks = await call(on_a, "task", goal="ask work 1")
                held = await call(on_a, "task", goal="nap 600", wait_seconds=0)
                await until(lambda: bool(fleet.effects.begun("nap")))
                given = {"run_id": asks["run_id"], "decision": "approve", "wait_seconds": 0}
                await call(on_a, "reply", **given)
                a.kill()  # with a leg in line that it has offered
            ended = [await waited(on_b, one["run_id"]) for one in (asks, held)]
            assert [one["status"] for one in ended] == ["done"] * 2
            assert not fleet.effects.repeated("pay")


@contextmanager
def _one_and_another(
    place: Path, url: str, flags: Sequence[str] = (), **env: str
) -> Generator[Fleet]:
    """Start a replica as usual, and one with further variables."""
    flags, agent = (
        ("--engine", "dbos", "--drain-seconds", "0", *flags),
        "tests.replicas.apart:agent",
    )
    with replicas(place, url, ("a",), start=start, flags=flags, agent=agent) as fleet:
        fleet.env = env
        fleet.begin("b")
        yield fleet


Scenario = Callable[[Database, Path], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {
    "its rows are lost": partial(
        _one_line_whose_engine_loses, 'TRUNCATE "{}".workflow_status CASCADE'
    ),
    "its tables are lost": partial(_one_line_whose_engine_loses, 'DROP SCHEMA "{}" CASCADE'),
    "a clock is an hour ahead": _a_clock_is_an_hour_ahead,
    "legs mean something else to one": _legs_mean_something_else_to_one,
    "a run kills five servers": partial(_a_run_that_kills_five_servers, "dbos"),
    "a run kills five servers, no engine": partial(_a_run_that_kills_five_servers, "local"),
}


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_run_ends_and_says_how(
    database: Database, tmp_path: Path, scenario: str
) -> None:
    await SCENARIOS[scenario](database, tmp_path)
