"""Threads whose commits are cancelled again and again, while others prune, rewrite and copy them.

What became of a cancelled commit its caller does not know; committing the step again settles it.
So every thread must come out with each of its steps once, whatever the journal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import create_task_group, fail_after, move_on_after

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    FileChange,
    RunEvent,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.redis import RedisCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread, UnknownThread
from tests.checkpoint.records import loaded, step_batch
from tests.databases import Database
from tests.redis_server import SERVER, keys

pytestmark = pytest.mark.anyio

THREADS = tuple(f"thread {number}" for number in range(5))
STEPS = 14
LARGE = b"held by all threads " * 400
DELAYS = (0.0, 0.0005, 0.001, 0.002, 0.005)

Journals = Sequence[Checkpointer]


@asynccontextmanager
async def opened(kind: str, path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Journals]:
    """Open a journal, twice where several processes may."""
    async with AsyncExitStack() as stack:
        match kind:
            case "memory":
                make, times = MemoryCheckpointer, 1
            case "sqlite":
                make, times = partial(SqliteCheckpointer, path), 2
            case "postgres":
                database: Database = request.getfixturevalue("database")
                schema = database.new_schema()
                make, times = partial(PostgresCheckpointer, database.conninfo, schema=schema), 2
            case _:
                prefix = stack.enter_context(keys()).prefix
                make, times = partial(RedisCheckpointer, SERVER, prefix=prefix), 2
        yield [await stack.enter_async_context(make()) for _ in range(times)]


def step(thread: str, parent: str | None, number: int) -> Batch:
    """Return a step with something of everything that could be lost or stored twice."""
    made = step_batch(parent, str(number), thread=thread, step=number, run_id=thread)
    large = TaskWrites(step_id(parent), "large", 1, (StoredWrite("files", LARGE),))
    return replace(
        made,
        writes=[*made.writes, large],
        file_changes=[FileChange(thread, thread, f"/{number}", LARGE, None)],
        events=[RunEvent(thread, "tasks", (), {"number": number})],
    )


async def interrupted(work: Callable[[], Awaitable[None]], chance: random.Random) -> bool:
    """Do something that may be cancelled at any moment; return whether it was not."""
    delay = chance.choice(DELAYS)
    match chance.randrange(3):
        case 0:
            await work()
        case 1:
            with move_on_after(delay) as scope:
                await work()
            return not scope.cancelled_caught
        case _:
            try:
                async with asyncio.timeout(delay):  # which knows nothing of shields
                    await work()
            except TimeoutError:
                return False
    return True


async def drive(journals: Journals, thread: str, chance: random.Random) -> None:
    parent: str | None = None
    for number in range(STEPS):
        batch = step(thread, parent, number)
        stored = False
        while not stored:
            commit = partial(chance.choice(journals).commit, batch)
            try:
                stored = await interrupted(commit, chance)
            except StaleThread:
                stored = True  # by an earlier try
            except CheckpointError as error:
                assert "not known whether it was stored" in str(error)
        parent = step_id(parent)


async def tidy(journals: Journals, chance: random.Random, done: anyio.Event) -> None:
    while not done.is_set():
        await anyio.sleep(chance.choice(DELAYS))
        journal, thread = chance.choice(journals), chance.choice(THREADS)
        match chance.randrange(3):
            case 0:
                await journal.prune(keep_latest=chance.randint(2, 6))
            case 1:
                await journal.rewrite(thread, lambda record: record)
            case _:
                try:
                    await journal.copy_thread(thread, "copy")
                    await journal.delete_thread("copy")
                except UnknownThread:
                    continue  # it has not begun


async def check(journal: Checkpointer, thread: str) -> None:
    found = await loaded(journal, thread=thread)
    assert found.checkpoint.step == STEPS - 1
    texts = [one.value for one in found.writes if one.channel == "messages"]
    assert texts == [b"%d" % number for number in range(STEPS)]
    assert [one.value for one in found.writes if one.channel == "files"] == [LARGE] * STEPS
    events = await journal.events(thread)
    assert [one.data["number"] for one in events] == list(range(STEPS))
    assert [one.seq for one in events] == list(range(1, STEPS + 1))
    left = [one.step for one in await journal.history(thread)]
    changed = [one.path for one in await journal.file_changes(thread, 0)]
    assert left == list(range(STEPS - 1, STEPS - 1 - len(left), -1))
    assert changed == [f"/{number}" for number in left]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
async def test_each_step_of_an_interrupted_thread_is_there_once(
    kind: str, path: Path, request: pytest.FixtureRequest
):
    seed = random.randrange(1_000_000)
    print("seed", seed)
    done = anyio.Event()
    async with opened(kind, path, request) as journals:
        with fail_after(45):
            async with create_task_group() as tidying:
                tidying.start_soon(tidy, journals, random.Random(seed), done)
                async with create_task_group() as group:
                    for number, thread in enumerate(THREADS, 1):
                        group.start_soon(drive, journals, thread, random.Random(seed + number))
                done.set()
            for thread in THREADS:
                await check(journals[-1], thread)
            assert {one.thread_id for one in await journals[0].threads()} == {*THREADS}
