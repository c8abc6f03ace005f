"""Background tasks as runs of the server: `wait` waits for them from their start."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.server.engine import Bounds
from deep_agent_mcp.server.runs.background import ServedTasks
from deep_agent_mcp.server.runs.cancellation import ServerProcesses
from deep_agent_mcp.server.runs.runs import RunManager
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.loop.models import says
from tests.server.same_agent import SameAgent
from tests.subagents.background.support import Gate, family

pytestmark = pytest.mark.anyio


def changed(thread_id: str, **_: object) -> None:
    pass


async def test_a_task_that_waits_for_its_turn_is_waited_for(tmp_path: Path) -> None:
    journal, gate = MemoryCheckpointer(), Gate(says("dug"))
    tasks = ServedTasks(journal)
    agent = family(tasks.launcher, {"digger": [gate]})
    servers = ServerProcesses(StateDir.open(tmp_path))
    found: list[str] = []
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
                for number in range(9):  # one more than may work at a time
                    new = NewTask("t", f"task-0000000{number}", "digger", "dig", {})
                    last = await launcher.start(new)
                assert last.status == "pending"
                assert (await runs.wait(last.run.id, 0)).run.status == "running"

                async def wait() -> None:
                    found.append(str((await runs.wait(last.run.id, 20)).run.answer))

                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    assert not found
                    gate.open.set()
    assert found == ["dug"]
