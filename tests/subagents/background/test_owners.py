"""Two processes never carry one task, and what a dead one left is found."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.run_executor import RunOptions
from deep_agent_mcp.harness.subagents.background import local_tasks as owners
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.local_tasks import (
    WorkerLock,
    is_worker_alive,
    new_worker,
)
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from tests.loop.models import says
from tests.subagents.background.support import Gate, family

pytestmark = pytest.mark.anyio

THREAD = "t.task-00000001"
HOLD = """
import sys
from deep_agent_mcp.harness.subagents.background.local_tasks import WorkerLock, new_worker
owner = new_worker()
lock = WorkerLock(owner)
lock.hold()
print(owner, flush=True)
sys.stdin.read(1)
"""


async def left_by(journal: MemoryCheckpointer, owner: str) -> None:
    """Leave a task that a carrier of that id has in line."""
    async with BackgroundSubAgents(journal) as background:
        family(background, {"digger": [Gate(says("never"))]})
        run = (await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))).run
    (run,) = await journal.find_runs(thread_id=run.thread_id)
    assert run.owner is None  # left in good order, so it is anybody's
    left = Run(run.id, THREAD, "delegate", "digger", status="running", owner=owner)
    await journal.commit(Batch(THREAD, runs=[left]))


async def status_after(journal: MemoryCheckpointer, seconds: float, **options: Any) -> str:
    async with BackgroundSubAgents(journal, **options) as background:
        family(background, {"digger": [says("dug")]})
        (seen,) = await background.wait([THREAD], seconds)
    return seen.status


@pytest.mark.parametrize("owner", ["worker-7", "background-0123456789ab-1-0123456789abcdef"])
async def test_a_task_of_an_unknown_process_is_left_alone_unless_it_is_said_to_be_gone(
    owner: str, journal: MemoryCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(60):
        await left_by(journal, owner)
        assert await status_after(journal, 0.1) == "running"
        assert caplog.text.count(f"is left to {owner}, of which nothing is known here") == 1
        assert await status_after(journal, 0.1, is_alive=lambda _: True) == "running"
        assert await status_after(journal, 20, is_alive=lambda _: False) == "success"


async def test_a_check_that_fails_leaves_a_task_alone_and_ends_nothing(
    journal: MemoryCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    threads: set[int] = set()

    def broken(owner: str) -> bool:
        threads.add(get_ident())
        raise OSError("no such host")

    with anyio.fail_after(60):
        await left_by(journal, "worker-7")
        async with BackgroundSubAgents(journal, is_alive=broken) as background:
            family(background, {"digger": [says("never")]})
            while "is_alive" not in caplog.text:  # noqa: ASYNC110  no event tells of it
                await anyio.sleep(0.01)
            (seen,) = await background.wait([THREAD], 0.1)
            assert seen.status == "running"
    assert caplog.text.count("is_alive('worker-7') failed") == 1
    assert threads and get_ident() not in threads


@asynccontextmanager
async def another_process() -> AsyncGenerator[str]:
    """Yield the owner of a carrier in a process that is killed at the end."""
    command = [sys.executable, "-c", HOLD]
    root = Path(__file__).parents[3]
    async with await anyio.open_process(command, cwd=root, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(60):
            yield (await process.stdout.receive()).decode().strip()
        process.kill()


async def test_a_process_of_this_machine_is_at_work_until_it_ends() -> None:
    async with another_process() as owner:
        assert is_worker_alive(owner) is True
    assert is_worker_alive(owner) is False
    assert is_worker_alive(owner) is False  # also once its lock has been cleared away


async def test_a_lock_that_somebody_cleared_away_does_not_make_a_living_process_dead() -> None:
    async with another_process() as owner:
        owners._path(owner).unlink()
        assert is_worker_alive(owner) is True
    assert is_worker_alive(owner) is False


def test_carriers_of_this_process_are_known_and_leave_no_lock() -> None:
    owner = new_worker()
    lock = WorkerLock(owner)
    assert is_worker_alive(owner) is False
    lock.hold()
    assert is_worker_alive(owner) is True
    lock.release()
    assert is_worker_alive(owner) is False
    assert not owners._path(owner).exists()


async def test_a_process_gives_up_its_tasks_although_the_journal_stands_still_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Still(MemoryCheckpointer):
        async def find_runs(self, **_: Any) -> list[Run]:
            return await anyio.sleep_forever()

    def no_agent(name: str) -> NoReturn:
        raise AssertionError(name)

    monkeypatch.setattr(owners, "_CLOSE_SECONDS", 0.01)
    owner = new_worker()
    runs = owners.LocalTasks(Still(), no_agent, RunOptions(owner=owner))
    with anyio.fail_after(60):
        await runs.open()
        assert is_worker_alive(owner) is True
        await runs.close()
    assert is_worker_alive(owner) is False
    assert not owners._path(owner).exists()
    assert "did not answer within 0.01 s" in caplog.text
