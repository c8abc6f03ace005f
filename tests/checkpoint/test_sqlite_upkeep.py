"""Upkeep of the journal on disk beside other processes: pruning in turns, vacuum beside readers."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import create_task_group, fail_after, open_process
from anyio.streams.buffered import BufferedByteReceiveStream

from deep_agent_mcp.harness.checkpoint import sqlite as journal
from deep_agent_mcp.harness.checkpoint.base import Batch, StoredWrite, TaskWrites
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer, connections
from deep_agent_mcp.harness.checkpoint.sqlite.connections import open_writer
from deep_agent_mcp.harness.errors import CheckpointError
from tests.checkpoint.records import THREAD, grow, loaded, step_batch, values
from tests.checkpoint.test_processes import line

pytestmark = pytest.mark.anyio

READER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN")
print(conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0], flush=True)
sys.stdin.readline()
"""


@asynccontextmanager
async def reader(path: Path) -> AsyncGenerator[None]:
    """Have another process read the journal meanwhile, in one transaction."""
    async with await open_process([sys.executable, "-c", READER, str(path)]) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            with fail_after(20):
                await line(BufferedByteReceiveStream(process.stdout))
            yield
            await process.stdin.send(b"\n")
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let journals wait for other processes for a moment only."""
    kind: Any = open_writer.__self__  # type: ignore[attr-defined]
    monkeypatch.setattr(connections, "open_writer", replace(kind, busy_seconds=0.2).open_writer)


# Pruning


async def test_of_all_threads_each_is_pruned_by_itself_and_an_error_names_its_thread(
    path: Path, sqlite: SqliteCheckpointer
):
    for thread in ("before", "damaged", "after"):
        await grow(sqlite, "a", "b", "c", thread=thread)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(
            "DELETE FROM checkpoints WHERE step = 1 AND scope = (SELECT scope FROM scopes"
            " JOIN threads USING (thread) WHERE thread_id = 'damaged')"
        )
    with pytest.raises(CheckpointError, match="ancestor of a checkpoint of thread 'damaged'"):
        await sqlite.prune(keep_latest=1)
    assert len(await sqlite.history("before")) == 1
    assert len(await sqlite.history("after")) == 3
    with pytest.raises(CheckpointError, match="ancestor of a checkpoint of thread 'damaged'"):
        await sqlite.copy_thread("damaged", "copy")
    with pytest.raises(CheckpointError, match="ancestor of a checkpoint of thread 'damaged'"):
        await sqlite.load("damaged")


async def test_another_process_can_write_while_all_threads_are_pruned(
    path: Path, sqlite: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journal, "_WORK_SECONDS", 0.0)
    for number in range(6):
        await grow(sqlite, "a", "b", thread=f"t{number}")
    written: list[float] = []

    def write() -> None:
        with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as other:
            for _ in range(3):
                other.execute("BEGIN IMMEDIATE")
                other.execute("COMMIT")
                written.append(time.monotonic())

    async with create_task_group() as group:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")  # both begin to wait, for the same lock
            group.start_soon(partial(anyio.to_thread.run_sync, write))
            group.start_soon(partial(sqlite.prune, keep_latest=1))
            await anyio.wait_all_tasks_blocked()
        while len(written) < 3:  # noqa: ASYNC110  a thread gives no event
            await anyio.sleep(0.01)
        left = [len(await sqlite.history(f"t{number}")) for number in range(6)]
        assert 2 in left  # the pruning was not over
    assert [len(await sqlite.history(f"t{number}")) for number in range(6)] == [1] * 6


async def test_pruning_touches_only_checkpoints_whose_parent_has_gone(
    path: Path, sqlite: SqliteCheckpointer
):
    await grow(sqlite, *"abcdefgh")
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE moved (seq INTEGER)")
        other.execute(
            "CREATE TRIGGER note AFTER UPDATE OF parent ON checkpoints"
            " BEGIN INSERT INTO moved VALUES (new.seq); END"
        )
    assert await sqlite.prune(keep_latest=5) == 3
    oldest = (await sqlite.history(THREAD))[-1]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT seq FROM moved").fetchall() == [(oldest.seq,)]


@pytest.mark.parametrize("removal", ["prune all", "prune one", "delete runs"])
async def test_large_values_that_nothing_holds_after_a_removal_are_gone(
    path: Path, sqlite: SqliteCheckpointer, removal: str
):
    for number, value in enumerate((b"x" * SHARED_FROM, b"y")):
        parent = (await loaded(sqlite)).checkpoint.id if number else None
        batch = step_batch(parent, thread=THREAD, run_id="run_1")
        large = TaskWrites(batch.checkpoints[0].id, "f", 1, (StoredWrite("files", value, True),))
        await sqlite.commit(Batch(THREAD, "", [large], batch.checkpoints))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
        match removal:
            case "prune all":
                await sqlite.prune(keep_latest=1)
            case "prune one":
                await sqlite.prune(THREAD, keep_latest=1)
            case _:
                await sqlite.delete_for_runs(["run_1"])
        assert other.execute("SELECT count(*) FROM blobs").fetchone() == (0,)


# Vacuum


async def test_a_vacuum_beside_a_reader_says_what_is_left_and_succeeds_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    impatient(monkeypatch)
    log = Path(f"{path}-wal")
    async with SqliteCheckpointer(path) as sqlite:
        await grow(sqlite, "a", "secret " * 1000)
        async with reader(path):
            await grow(sqlite, "b", thread="other")
            with pytest.raises(
                CheckpointError, match=r"log still holds what was removed.*another process"
            ):
                await sqlite.vacuum()
            assert log.stat().st_size > 0
            await grow(sqlite, "still usable", thread="more")
        await sqlite.vacuum()
        assert log.stat().st_size == 0
        assert values((await loaded(sqlite)).writes) == ["a", "secret " * 1000]
        assert len(await sqlite.threads()) == 3
