"""Real processes on one store: several at once, and one that is killed."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after
from anyio.abc import Process

from deep_agent_mcp.harness.store import Get, SqliteStore, Store
from tests.pipe_client import line, spawned
from tests.store.writer import PAIR, made

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
COUNT = 30
writer = partial(spawned, "tests.store.writer")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "redis":
        return "redis", request.getfixturevalue("redis_keys").prefix
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "store.db")
    database = request.getfixturevalue("database")
    database.execute("DROP SCHEMA IF EXISTS processes CASCADE")
    return "postgres", database.conninfo


async def go(process: Process) -> None:
    assert process.stdin is not None
    await process.stdin.send(b"go\n")


async def pair(store: Store) -> list[Any]:
    results: list[Any] = list(await store.batch([Get(PAIR, "left"), Get(PAIR, "right")]))
    return [item and item.value for item in results]


async def test_two_processes_may_write_to_one_store(place: tuple[str, str]) -> None:
    async def take_part(name: str) -> None:
        async with writer(*place, name, str(COUNT)) as (process, out):
            assert await line(out) == "ready"
            waiting.append(process)
            if len(waiting) == 2:  # both make the store, which is not there yet, at once
                for each in waiting:
                    await go(each)
            for number in range(COUNT):
                assert await line(out) == str(number)
                left, right = await pair(store)
                assert left == right
            assert await line(out) == "done"

    waiting: list[Process] = []
    store = made(*place)
    with fail_after(60):
        async with create_task_group() as group:
            for name in ("one", "two"):
                group.start_soon(take_part, name)
        for name in ("one", "two"):
            found = await store.search((name,), query=name, limit=100)
            texts = [f"{name} {number}" for number in range(COUNT)]
            assert sorted(str(item.value["text"]) for item in found) == sorted(texts)
        await store.close()


async def test_a_killed_process_loses_nothing_that_was_stored_and_tears_no_batch(
    place: tuple[str, str],
) -> None:
    store = made(*place)
    with fail_after(60):
        for name, acknowledgements in (("early", 1), ("late", 40)):
            async with writer(*place, name, "0") as (process, out):
                assert await line(out) == "ready"
                await go(process)
                for number in range(acknowledgements):
                    assert await line(out) == str(number)
                process.kill()
                await process.wait()
            found = await store.search((name,), limit=10_000)
            assert len(found) >= acknowledgements
            assert [item.key for item in found] == [f"{n:05}" for n in range(len(found))]
            assert await pair(store) == [found[-1].value] * 2
            queried = await store.search((name,), query=name, limit=10_000)
            assert len(queried) == len(found)
        await store.close()
    if isinstance(store, SqliteStore):
        conn = sqlite3.connect(store.path)
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        conn.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        conn.close()


async def test_a_program_that_forgets_to_close_a_file_still_ends(tmp_path: Path) -> None:
    # A pool of Postgres connections has tasks of its own, which only `close()` ends for sure.
    place = ("sqlite", str(tmp_path / "store.db"))
    with fail_after(60):
        async with writer(*place, "forget", "1", forked=False) as (
            process,
            out,
        ):
            assert await line(out) == "ready"
            assert await line(out) == "0"
            assert await process.wait() == 0
        store = made(*place)
        assert await pair(store) == [{"text": "forget 0"}] * 2
        await store.close()
