"""Replicas that die, stand still or lose the database: others go on, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from mcp import Client

from benchmarks.replica_trio import Fleet, Replica
from tests.databases import Database, made_database
from tests.e2e.servers import call
from tests.replicas.lines import SilentLine
from tests.replicas.servers import clients, journal_url, serving, until, waited

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


def begun_in(fleet: Fleet, replica: Replica) -> int:
    return len(fleet.effects.begun(pid=replica.process.pid))


def begun_elsewhere(fleet: Fleet, replica: Replica) -> int:
    return len(fleet.effects.begun()) - begun_in(fleet, replica)


async def begun(client: Client, goal: str) -> dict[str, Any]:
    return await call(client, "task", goal=goal, wait_seconds=0)


async def finished_calls_ran_once(client: Client, run_id: str) -> bool:
    """Whether no call of a run was begun again after its result was stored."""
    stored: set[object] = set()
    after = 0
    while True:
        page = await call(client, "wait", run_id=run_id, events_after=after, wait_seconds=0)
        for one in page.get("events", ()):
            if one.get("event") == "tool_start" and one.get("tool_call_id") in stored:
                return False
            if one.get("event") == "tool_end":
                stored.add(one.get("tool_call_id"))
        if not page.get("events_more"):
            return bool(stored)
        after = page["events_next"]


async def works_again(client: Client) -> None:
    """Wait until a replica is there again, and takes work."""
    with anyio.fail_after(60):
        while True:
            with suppress(AssertionError):
                assert (await call(client, "task", goal="work 1"))["status"] == "done"
                return
            await anyio.sleep(0.2)


async def test_runs_of_a_killed_replica_go_on_elsewhere(database: Database, tmp_path: Path) -> None:
    with serving(tmp_path, journal_url(database)) as fleet:
        a, b, c = fleet.all.values()
        async with clients(b, c) as (on_b, on_c):
            async with clients(a) as (on_a,):
                runs = [await begun(on_a, "work 8") for _ in range(6)]
                held = await begun(on_a, "think 600")
                asks = await begun(on_a, "ask work 1")
                await waited(on_b, asks["run_id"])
                told = await begun(on_a, "nap 600")
                await until(lambda: bool(fleet.effects.begun("nap")))
                await call(on_b, "reply", run_id=told["run_id"], message="work 1", wait_seconds=0)
                await until(lambda: begun_in(fleet, a) > 20)
                a.kill()
                died = time.monotonic()
            await until(lambda: begun_elsewhere(fleet, a) > 0)
            taken = time.monotonic() - died
            # Cancelled while nobody, or somebody new, works on it.
            gone = await call(on_c, "cancel", run_id=held["run_id"])
            ended = [await waited(on_b, one["run_id"]) for one in runs]
            assert [one["status"] for one in ended] == ["done"] * 6
            assert gone["status"] == "cancelled"
            assert taken < 5
            assert not fleet.effects.repeated("pay")
            for one in runs:
                assert await finished_calls_ran_once(on_c, one["run_id"])
            # A message that the dead one had not taken reaches the run all the same.
            assert (await waited(on_b, told["run_id"]))["answer"] == "Finished work 1."
            # What waited for an answer, waits on.
            await call(on_c, "reply", run_id=asks["run_id"], decision="approve")
            assert (await waited(on_b, asks["run_id"]))["status"] == "done"
            # A replica that is started again is one of them.
            async with clients(fleet.begin("a again")) as (again,):
                assert (await waited(again, asks["run_id"]))["status"] == "done"


async def test_a_replica_that_stood_still_changes_nothing_when_it_wakes_up(
    database: Database, tmp_path: Path
) -> None:
    with serving(tmp_path, journal_url(database), ("a", "b")) as fleet:
        a, b = fleet.all.values()
        async with clients(a, b) as (on_a, on_b):
            runs = [await begun(on_a, "work 60") for _ in range(3)]
            await until(lambda: begun_in(fleet, a) > 10)
            a.stop()
            stood = time.monotonic()
            await until(lambda: begun_elsewhere(fleet, a) > 0)
            assert time.monotonic() - stood < 20
            before = begun_in(fleet, a)
            a.go_on()
            ended = [await waited(on_b, one["run_id"]) for one in runs]
            assert [one["status"] for one in ended] == ["done"] * 3
            # A call that had passed all checks when its process stood still begins on waking up.
            late = begun_in(fleet, a) - before
            assert late <= len(runs)
            assert not fleet.effects.repeated("pay")
            for one in runs:
                assert await finished_calls_ran_once(on_b, one["run_id"])
            await works_again(on_a)
        assert begun_in(fleet, a) > before + late


async def test_a_replica_that_is_cut_off_from_the_database_leaves_its_runs(
    database: Database, tmp_path: Path
) -> None:
    url = journal_url(database)
    with SilentLine.listening(database.conninfo) as line, serving(tmp_path, url, ("b",)) as fleet:
        port = psycopg.conninfo.conninfo_to_dict(database.conninfo).get("port", 5432)
        a = fleet.begin("a", url=url.replace(f":{port}/", f":{line.port}/"))
        b = fleet.all["b"]
        async with clients(a, b) as (on_a, on_b):
            runs = [await begun(on_a, "work 2 nap 600"), await begun(on_a, "work 60")]
            await until(lambda: bool(fleet.effects.begun("nap")))
            line.cut()
            cut = time.monotonic()
            await until(lambda: begun_elsewhere(fleet, a) > 0)
            assert time.monotonic() - cut < 25
            second = await waited(on_b, runs[1]["run_id"])
            assert second["status"] == "done"
            before = begun_in(fleet, a)
            line.mend()
            await call(on_b, "cancel", run_id=runs[0]["run_id"])
            for one in runs:
                assert await finished_calls_ran_once(on_b, one["run_id"])
            # A call of an attempt that is about to end may get as far as its first await.
            assert begun_in(fleet, a) - before <= len(runs)
            assert not fleet.effects.repeated("pay")
            await works_again(on_a)


async def test_nobody_is_taken_for_dead_when_the_database_drops_all_connections(
    database: Database, tmp_path: Path
) -> None:
    with serving(tmp_path, journal_url(database), ("a", "b")) as fleet:
        a, b = fleet.all.values()
        async with clients(a, b) as (on_a, on_b):
            runs = [await begun(one, "work 10") for one in (on_a, on_b)]
            await until(lambda: len(fleet.effects.begun()) > 10)
            database.terminate()
            ended = [await waited(on_b, one["run_id"]) for one in runs]
            assert [one["status"] for one in ended] == ["done"] * 2
            assert not fleet.effects.repeated("pay")
            processes = {
                one.run_id: {two.pid for two in fleet.effects.begun() if two.run_id == one.run_id}
                for one in fleet.effects.begun()
            }
            assert [*map(len, processes.values())] == [1, 1]


async def test_a_replica_that_is_stopped_hands_its_runs_over(
    database: Database, tmp_path: Path
) -> None:
    url = journal_url(database)
    with serving(tmp_path, url, ("a", "b"), ("--drain-seconds", "20")) as fleet:
        a, b = fleet.all.values()
        async with clients(b) as (on_b,):
            async with clients(a) as (on_a,):
                runs = [await begun(on_a, "work 30") for _ in range(3)]
                await until(lambda: begun_in(fleet, a) > 10)
                with anyio.fail_after(30):
                    await anyio.to_thread.run_sync(a.end)
            ended = [await waited(on_b, one["run_id"]) for one in runs]
            assert [one["status"] for one in ended] == ["done"] * 3, ended
            assert not fleet.effects.repeated()
            assert len(fleet.effects.ended()) == len(fleet.effects.begun()) == 3 * 60
