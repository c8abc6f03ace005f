"""Background tasks as runs of the server: `wait` waits for them from their start."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.server.auth.caller import Caller, current_caller
from deep_agent_mcp.server.engine import Bounds, Leg
from deep_agent_mcp.server.runs.background import ServedTasks
from deep_agent_mcp.server.runs.runs import RunManager
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.loop.models import says
from tests.server.same_agent import SameAgent
from tests.subagents.background.support import Gate, family

pytestmark = pytest.mark.anyio


def changed(thread_id: str, **_: object) -> None:
    pass


@asynccontextmanager
async def serving(
    journal: MemoryCheckpointer, gate: Gate, place: Path
) -> AsyncGenerator[tuple[RunManager, BackgroundSubAgents]]:
    """Serve an agent whose tasks wait at a gate, eight at a time."""
    tasks = ServedTasks(journal)
    agent = family(tasks.launcher, {"digger": [gate]})
    servers = ServerProcesses(StateDir.open(place))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            who = SameAgent(agent)
            bounds = Bounds(max_runs=8)
            supervisor = RunSupervisor(
                who, journal, group, "me", servers, changed, Limits(), bounds=bounds
            )
            runs = RunManager(supervisor, who, journal, group)
            tasks.attach(supervisor)
            async with tasks.launcher as launcher:
                yield runs, launcher
            group.cancel_scope.cancel()  # the queue never ends by itself


async def begun(launcher: BackgroundSubAgents, number: int) -> Run:
    """Start a task of thread "t"."""
    new = NewTask("t", f"task-0000000{number}", "digger", "dig", {})
    return (await launcher.start(new)).run


async def test_a_task_that_waits_for_its_turn_is_waited_for(tmp_path: Path) -> None:
    gate = Gate(says("dug"))
    found: list[str] = []
    async with serving(MemoryCheckpointer(), gate, tmp_path) as (runs, launcher):
        for number in range(9):  # one more than may work at a time
            last = await begun(launcher, number)
        assert (await launcher.look(last.thread_id)).status == "pending"
        assert (await runs.wait(last.id, 0)).run.status == "running"

        async def wait() -> None:
            found.append(str((await runs.wait(last.id, 20)).run.answer))

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            gate.open.set()
    assert found == ["dug"]


async def test_no_more_tasks_work_at_once_than_may_even_if_all_begin_together(
    tmp_path: Path,
) -> None:
    gate = Gate(says("dug"))
    async with serving(MemoryCheckpointer(), gate, tmp_path) as (runs, launcher):
        tasks = [await begun(launcher, number) for number in range(10)]
        legs = [Leg(one.id, one.attempt) for one in tasks]
        while gate.running < 8 or (
            gate.running < 10 and len(await runs.queue.engine.offered(legs)) < 2
        ):
            await anyio.lowlevel.checkpoint()
        gate.open.set()
        for one in tasks:
            assert (await runs.wait(one.id, 20)).run.answer == "dug"
    assert gate.most == 8


async def stored(journal: MemoryCheckpointer, run: Run) -> Run:
    await journal.commit(Batch(run.thread_id, runs=[run]))
    return run


async def test_a_second_cancel_of_a_run_leaves_the_tasks_of_newer_runs(tmp_path: Path) -> None:
    journal, gate = MemoryCheckpointer(), Gate(says("dug"))
    async with serving(journal, gate, tmp_path) as (runs, launcher):
        run = await stored(journal, Run("run_1", "t", "delegate", "main", "needs_approval"))
        first = await begun(launcher, 1)
        assert (await runs.cancel(run.id, "enough")).status == "cancelled"
        assert (await launcher.look(first.thread_id)).status == "cancelled"
        newer = await begun(launcher, 2)
        assert (await runs.cancel(run.id, "again")).reason == "enough"
        assert (await runs.snapshot(newer.id)).run.status == "running"
        assert (await runs.cancel(newer.id, "by its own id")).status == "cancelled"


async def test_cancelling_a_driven_call_leaves_the_tasks_of_its_thread(tmp_path: Path) -> None:
    journal, gate = MemoryCheckpointer(), Gate(says("dug"))
    async with serving(journal, gate, tmp_path) as (runs, launcher):
        driven = await stored(journal, Run("run_1", "t", "drive", "main", "needs_approval"))
        task = await begun(launcher, 1)
        before = current_caller.set(Caller("", frozenset({"drive"})))
        try:
            with pytest.raises(HarnessError, match="needs the scope 'delegate'"):
                await runs.cancel(task.id, "not allowed")
            assert (await runs.cancel(driven.id, "enough")).status == "cancelled"
        finally:
            current_caller.reset(before)
        assert (await runs.snapshot(task.id)).run.status == "running"


async def test_a_repeated_cancel_ends_the_tasks_that_the_first_one_did_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, gate = MemoryCheckpointer(), Gate(says("dug"))
    async with serving(journal, gate, tmp_path) as (runs, launcher):
        run = await stored(journal, Run("run_1", "t", "delegate", "main", "needs_approval"))
        task = await begun(launcher, 1)

        async def fails(*_: object, **__: object) -> None:
            raise HarnessError("by the test")

        with monkeypatch.context() as broken:
            broken.setattr(launcher, "cancel_all", fails)
            with pytest.raises(HarnessError, match="by the test"):
                await runs.cancel(run.id, "enough")
        assert (await runs.snapshot(run.id)).run.status == "cancelled"
        assert (await runs.snapshot(task.id)).run.status == "running"
        await runs.cancel(run.id, "again")
        assert (await runs.snapshot(task.id)).run.status == "cancelled"
