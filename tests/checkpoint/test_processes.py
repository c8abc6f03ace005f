"""Real processes on one journal: killed in the middle of commits, and two at the same time."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after
from anyio.abc import Process

from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from tests.checkpoint.committer import TASKS
from tests.checkpoint.records import values
from tests.pipe_client import line, spawned

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
COUNT = 40
committer = partial(spawned, "tests.checkpoint.committer")


async def killed_after(path: Path, acknowledgements: int) -> dict[str, int]:
    """Kill a committer at some moment; return the last step each thread was told is stored."""
    last: dict[str, int] = {}
    async with committer("drive", str(path)) as (process, out):
        for _ in range(acknowledgements):
            thread, step = (await line(out)).split()
            last[thread] = int(step)
        process.kill()
        await process.wait()
        rest = out.buffer
        assert process.stdout is not None
        async for chunk in process.stdout:
            rest += chunk
    for text in rest.decode().splitlines(keepends=True):
        if text.endswith("\n"):
            thread, step = text.split()
            last[thread] = int(step)
    return last


async def test_a_killed_process_loses_no_acknowledged_commit_and_tears_none(path: Path):
    with fail_after(50):
        for acknowledgements in (1, 150, 333):
            last = await killed_after(path, acknowledgements)
            async with SqliteCheckpointer(path) as journal:
                for thread in {each.thread_id for each in await journal.threads()} | set(last):
                    await check_whole(journal, thread, at_least=last.get(thread, 0))
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    other.close()


async def check_whole(journal: SqliteCheckpointer, thread: str, at_least: int) -> None:
    found = await journal.load(thread)
    assert found is not None
    head = found.checkpoint.step
    assert head >= at_least
    assert values(found.writes) == [
        f"{step}.{number}.{part}"
        for step in range(head + 1)
        for number in range(TASKS)
        for part in "ab"
    ]
    assert list(found.pending) == []
    history = await journal.history(thread, limit=10_000)
    assert [each.step for each in history] == list(range(head, -1, -1))
    stored = await journal.run(f"run_{thread}")
    assert stored is not None
    assert stored.goal == str(head)
    changes = await journal.file_changes(thread, 0)
    assert [each.path for each in changes] == [f"/{step}" for step in range(head, -1, -1)]


async def test_two_processes_may_move_one_journal(path: Path):
    async def take_part(name: str) -> None:
        async with committer("race", str(path), name, str(COUNT)) as (
            process,
            out,
        ):
            assert await line(out) == "ready"
            started[name] = process
            if len(started) == 2:  # both open the file, which neither has made yet, at once
                for each in started.values():
                    assert each.stdin is not None
                    await each.stdin.send(b"go\n")
            assert await line(out) == "done"
            assert await process.wait() == 0

    started: dict[str, Process] = {}
    with fail_after(50):
        async with create_task_group() as group:
            for name in ("left", "right"):
                group.start_soon(take_part, name)

    async with SqliteCheckpointer(path) as journal:
        for name in ("left", "right"):
            await check_whole(journal, name, at_least=COUNT - 1)
        shared = await journal.load("shared")
        assert shared is not None
        assert shared.checkpoint.step == 2 * COUNT - 1
        claimed = values(shared.writes)
        for name in ("left", "right"):
            mine = [value for value in claimed if value.startswith(name)]
            assert mine == [f"{name} {step}" for step in range(COUNT)]
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    other.close()


async def test_a_program_that_forgets_to_close_still_ends(path: Path):
    with fail_after(20):
        async with committer("forget", str(path), forked=False) as (
            process,
            _out,
        ):
            assert await process.wait() == 0
    async with SqliteCheckpointer(path) as journal:
        await check_whole(journal, "forgotten", at_least=0)
