"""Background tasks stay findable, and nothing is kept for ever, however much has happened."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from tests.loop.models import says
from tests.subagents.background.support import Cast, Gate, family

pytestmark = pytest.mark.anyio

THREAD = "t.task-00000001"
TASK = NewTask("t", "task-00000001", "digger", "dig", {})


async def test_a_task_is_found_behind_any_number_of_driven_calls(
    journal: MemoryCheckpointer,
) -> None:
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("dug")]})
            await background.start(TASK)
            (done,) = await background.wait([THREAD], 20)
            later = done.run.created_at + 1
            driven = [
                replace(done.run, id=f"drive_{number}", kind="drive", created_at=later)
                for number in range(1_200)
            ]
            await journal.commit(Batch(THREAD, runs=driven))
            assert (await background.look(THREAD)).run == done.run


async def test_a_task_is_gone_on_with_whatever_else_is_open() -> None:
    journal, never = MemoryCheckpointer(), Gate(says("never"))
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [never]})
            await background.start(TASK)
            await never.reached.wait()
        (left,) = await journal.find_runs(thread_id=THREAD)
        for number in range(1_001):
            other = Run(f"run_{number}", f"u{number}", "delegate", "main", status="running")
            await journal.commit(Batch(other.thread_id, runs=[other]))
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("dug")]})
            while (await background.look(THREAD)).status != "success":
                await background._tasks.next_change(THREAD).wait()  # nobody asks for it
    (run,) = await journal.find_runs(thread_id=THREAD)
    assert (run.id, run.answer) == (left.id, "dug")


class Unlistable(MemoryCheckpointer):
    """A journal whose runs cannot be listed at first."""

    failures = 0

    async def find_runs(self, **wanted: object) -> list[Run]:  # type: ignore[override]
        if self.failures and wanted.get("status"):
            self.failures -= 1
            raise CheckpointError("the disk is busy")
        return [*await super().find_runs(**wanted)]  # type: ignore[arg-type]


async def test_a_journal_that_fails_at_the_start_strands_no_task() -> None:
    journal, never = Unlistable(), Gate(says("never"))
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [never]})
            await background.start(TASK)
            await never.reached.wait()
        journal.failures = 2
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("dug")]})
            while (seen := await background.look(THREAD)).status != "success":
                await background._tasks.next_change(THREAD).wait()  # nobody asks for it
    assert seen.run.answer == "dug"


async def test_agents_of_definitions_that_were_replaced_are_let_go(
    journal: MemoryCheckpointer,
) -> None:
    def agent() -> Agent:
        return create_agent(Cast(digger=[says("dug")]), name="digger")

    now = agent()
    background = BackgroundSubAgents(journal)
    background.bind(lambda _: now, ("main",))
    first = weakref.ref(now)
    background.agent("digger")
    now = agent()
    made = background.agent("digger")
    gc.collect()
    assert first() is None
    assert background.agent("digger") is made


async def test_waiting_leaves_nothing_behind(journal: MemoryCheckpointer) -> None:
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [says("dug")]})
            await background.start(TASK)
            await background.wait([THREAD], 20)
            await background.wait([THREAD], 20)
            gc.collect()
            assert not background._tasks._changes
