"""Many committers on the journal on disk: shared transactions, cancellation, room."""

from __future__ import annotations

import random
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked

from deep_agent_mcp.harness.checkpoint import base
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpoint,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import StaleThread
from tests.checkpoint.conftest import locked
from tests.checkpoint.records import (
    THREAD,
    checkpoint,
    grow,
    step_batch,
    values,
)

pytestmark = pytest.mark.anyio


async def test_concurrent_runs_share_transactions(path: Path, sqlite: SqliteCheckpointer):
    async with create_task_group() as group:
        with locked(path):
            for number in range(100):
                group.start_soon(sqlite.commit, step_batch(None, "a", thread=f"t{number}"))
            await wait_all_tasks_blocked()
    # One by one they would write some 10 pages of 4 KiB each.
    assert Path(f"{path}-wal").stat().st_size < 100 * 4096 * 3
    assert len(await sqlite.threads(limit=200)) == 100


async def test_a_hundred_runs_keep_their_threads_apart(sqlite: SqliteCheckpointer):
    async with create_task_group() as group:
        for number in range(100):
            contents = [f"{number}.{step}" for step in range(4)]

            async def drive(thread: str, contents: list[str]) -> None:
                await grow(sqlite, *contents, thread=thread)

            group.start_soon(drive, f"t{number}", contents)
    for number in range(100):
        found = await sqlite.load(f"t{number}")
        assert found is not None
        assert values(found.writes) == [f"{number}.{step}" for step in range(4)]


async def test_a_stale_batch_fails_alone(path: Path, sqlite: SqliteCheckpointer):
    outcomes: dict[str, str] = {}

    async def attempt(name: str, batch: Batch) -> None:
        try:
            await sqlite.commit(batch)
            outcomes[name] = "stored"
        except StaleThread:
            outcomes[name] = "stale"

    async with create_task_group() as group:
        with locked(path):
            for number in range(10):
                group.start_soon(attempt, f"good {number}", step_batch(None, thread=f"t{number}"))
                again = step_batch("ckpt_none", "lost", thread=f"t{number}")
                group.start_soon(attempt, f"stale {number}", again)
            await wait_all_tasks_blocked()
    assert outcomes == {
        f"{name} {number}": outcome
        for number in range(10)
        for name, outcome in (("good", "stored"), ("stale", "stale"))
    }
    assert len(await sqlite.threads()) == 10


async def test_what_is_stored_beside_a_refused_batch_comes_back_from_its_page(
    path: Path, sqlite: SqliteCheckpointer
):
    contents = [b64encode(random.Random(step).randbytes(3_000)).decode() for step in range(30)]
    parent: str | None = None

    async def be_refused() -> None:
        with pytest.raises(StaleThread):
            await sqlite.commit(step_batch("ckpt_none", "lost", thread="t0"))

    for step, content in enumerate(contents):
        async with create_task_group() as group:
            with locked(path):
                for thread in ("t0", "t1"):
                    group.start_soon(sqlite.commit, step_batch(parent, content, thread=thread))
                if step % 20 == 5:  # a page has begun, and the next ones fill
                    group.start_soon(be_refused)
                await wait_all_tasks_blocked()
        parent = step_id(parent)
    await sqlite.close()
    async with SqliteCheckpointer(path) as again:
        for thread in ("t0", "t1"):
            found = await again.load(thread)
            assert found is not None
            assert values(found.writes) == contents
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM pages").fetchone()[0] >= 2


async def test_a_batch_whose_caller_is_cancelled_in_the_queue_is_withdrawn(
    path: Path, sqlite: SqliteCheckpointer
):
    async with create_task_group() as others, create_task_group() as cancelled:
        with locked(path):
            # Something that is not a commit keeps the writer busy, so commits stay in the queue.
            others.start_soon(sqlite.delete_thread, "nobody")
            await wait_all_tasks_blocked()
            others.start_soon(sqlite.commit, step_batch(None, "a", thread="before"))
            cancelled.start_soon(sqlite.commit, step_batch(None, "b", thread="cancelled"))
            others.start_soon(sqlite.commit, step_batch(None, "c", thread="after"))
            await wait_all_tasks_blocked()
            cancelled.cancel_scope.cancel()
            with fail_after(5):
                await wait_all_tasks_blocked()
    assert {each.thread_id for each in await sqlite.threads()} == {"before", "after"}


async def test_cancelled_committers_tear_nothing(sqlite: SqliteCheckpointer):
    finished: set[str] = set()
    scopes: list[anyio.CancelScope] = []

    async def commit(thread: str, scope: anyio.CancelScope) -> None:
        with scope:
            await sqlite.commit(step_batch(None, "a", "b", thread=thread))
            finished.add(thread)

    async with create_task_group() as group:
        for number in range(120):
            scopes.append(anyio.CancelScope())
            group.start_soon(commit, f"t{number}", scopes[-1])
            if number % 3 == 0:
                await anyio.lowlevel.checkpoint()
                scopes[number // 2].cancel()
    assert len(finished) >= 40
    listed = {each.thread_id for each in await sqlite.threads(limit=200)}
    assert finished <= listed
    for thread in listed:
        found = await sqlite.load(thread)
        assert found is not None
        assert values(found.writes) == ["a", "b"]
    await grow(sqlite, "still usable")


async def test_a_reader_elsewhere_blocks_no_commit(path: Path, sqlite: SqliteCheckpointer):
    await grow(sqlite, "a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    with fail_after(5):
        await sqlite.commit(step_batch(step_id(None), "b"))
    assert other.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    other.close()


WORDS = Path(base.__file__).read_text(encoding="utf-8").split()


def prose(step: int) -> bytes:
    return " ".join(random.Random(step).choices(WORDS, k=200))[:1000].encode()


def noise(step: int) -> bytes:
    """The least compressible thing that JSON text can hold."""
    return b64encode(random.Random(step).randbytes(750))


@pytest.mark.parametrize(("make", "factor"), [(prose, 1.0), (noise, 1.5)])
async def test_a_thousand_steps_take_room_in_proportion_to_their_data(
    path: Path, make: Callable[[int], bytes], factor: float
):
    async with SqliteCheckpointer(path) as journal:
        parent: str | None = None
        for first in range(0, 1000, 50):
            writes: list[TaskWrites] = []
            made: list[Checkpoint] = []
            for step in range(first, first + 50):
                made.append(checkpoint(parent, step=step, run_id="run_0123456789abcdef"))
                parent = made[-1].id
                stored = StoredWrite("messages", make(step))
                writes.append(TaskWrites(parent, f"toolu_{step:024d}", 0, (stored,)))
            await journal.commit(Batch(THREAD, writes=writes, checkpoints=made))
    assert path.stat().st_size <= factor * 1_000_000
