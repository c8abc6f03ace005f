"""A thread that goes takes its background tasks along, and pruning reaches them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import HarnessError, ThreadBusy
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.subagents.background.engine import delete_with_tasks, task_threads
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.threads.admin import ThreadAdmin
from tests.loop.models import says
from tests.subagents import family as deep
from tests.subagents.background.support import Gate, family, start, view

pytestmark = pytest.mark.anyio


async def threads_of(journal: Checkpointer) -> list[str]:
    return sorted(one.thread_id for one in await journal.threads(limit=100))


async def test_the_threads_of_tasks_go_with_their_thread_and_no_other(
    journal: MemoryCheckpointer,
) -> None:
    main = [says("", start("c1"), start("c2")), says("Begun.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("dug")]})
            for name in ("t", "t.task-x", "t2"):
                result = await agent.ainvoke("go", thread_id=name)
                for call_id in ("c1", "c2"):
                    await view(background, result, call_id)
        assert len(await task_threads(journal, "t")) == 2
        await delete_with_tasks(journal, "t")
    left = await threads_of(journal)
    assert len(left) == 6
    assert not [one for one in left if one == "t" or one.startswith("t.task-0")]
    assert {one.thread_id for one in await journal.find_runs()} == {*left}


async def test_tasks_at_work_are_cancelled_before_they_go(journal: MemoryCheckpointer) -> None:
    gate = Gate(says("dug"))
    main = [says("", start("c1"), start("c2")), says("Begun.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=1) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            await agent.ainvoke("go", thread_id="t")
            await gate.reached.wait()
            await background.delete("t")
            assert gate.running == 0
            assert await threads_of(journal) == []
            assert await journal.find_runs() == []


async def test_middleware_is_told_of_deleted_threads_and_cannot_prevent_it(
    journal: MemoryCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    class Keeper(AgentMiddleware):
        told: list[str] = []

        async def thread_deleted(self, thread_id: str) -> None:
            self.told.append(thread_id)
            raise RuntimeError("cannot let go")

    main = [says("", start("c1")), says("Begun.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            turns = {"main": main, "digger": [says("dug")]}
            agent = family(background, turns, middleware=[Keeper()])
            task = await view(background, await agent.ainvoke("go", thread_id="t"), "c1")
            await background.delete("t")
            assert await threads_of(journal) == []
    assert Keeper.told == [task.run.thread_id, "t"]
    assert "Keeper.thread_deleted raised" in caplog.text


async def test_middleware_of_subagents_is_told_of_deleted_threads_once(
    journal: MemoryCheckpointer,
) -> None:
    class Keeper(AgentMiddleware):
        def __init__(self, name: str) -> None:
            self._name = name

        @property
        def name(self) -> str:
            return self._name

        async def thread_deleted(self, thread_id: str) -> None:
            told.append((self._name, thread_id))

    told: list[tuple[str, str]] = []
    ours, added = Keeper("ours"), Keeper("added")
    inner = deep.family({"inner": []}, name="inner", middleware=[Keeper("below")])
    below = CompiledSubAgent("inner", "Works further below.", inner)
    ready = deep.family(
        {"ready": []}, name="ready", middleware=[Keeper("ready")], subagents=[below]
    )
    agent = deep.family(
        {"main": [says("Done.")]},
        checkpointer=journal,
        middleware=[ours],
        subagents=[
            CompiledSubAgent("ready", "Is ready.", ready),
            SubAgent("made", "Is made.", middleware=[ours, added]),
        ],
    )
    await agent.ainvoke("go", thread_id="t")
    await delete_with_tasks(journal, "t", agent)
    assert sorted(told) == [(name, "t") for name in ("added", "below", "ours", "ready")]


async def test_nothing_is_deleted_while_another_process_works_on_a_task(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [gate]})
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            await gate.reached.wait()
            async with BackgroundSubAgents(journal) as other:
                family(other, {"digger": [gate]})
                with pytest.raises(HarnessError, match="another process"):
                    await other.delete("t")
            assert await threads_of(journal) == ["t.task-00000001"]


# --- the command line ------------------------------------------------------------------------


async def work(state: StateDir) -> Run:
    """Work on a thread whose task ends; return the task's run."""
    main = [says("", start("c1")), says("Begun.")]
    async with (
        SqliteCheckpointer(state.journal) as journal,
        BackgroundSubAgents(journal) as background,
    ):
        agent = family(background, {"main": main, "digger": [says("dug")]})
        result = await agent.ainvoke("go", thread_id="t")
        return (await view(background, result, "c1")).run


async def test_threads_delete_takes_tasks_along(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    task = await work(state)
    async with ThreadAdmin.open(Settings(state_dir=state.path)) as admin:
        await admin.delete(["t"])
    async with SqliteCheckpointer(state.journal) as journal:
        assert await threads_of(journal) == []
        assert await journal.run(task.id) is None


@pytest.mark.parametrize("change", [{"status": "running"}, {"status": "paused", "attempt": 1}])
async def test_threads_delete_is_refused_while_a_server_has_a_task_of_the_thread(
    change: dict[str, object], tmp_path: Path
) -> None:
    state = StateDir.open(tmp_path / "state")
    task = await work(state)
    with state.claim() as owner:
        async with SqliteCheckpointer(state.journal) as journal:
            held = replace(task, id="run_next", owner=owner, **change)
            await journal.commit(Batch(held.thread_id, runs=[held]))
        async with ThreadAdmin.open(Settings(state_dir=state.path)) as admin:
            with pytest.raises(ThreadBusy, match=f"{task.thread_id}; nothing was done"):
                await admin.delete(["t"])
    async with SqliteCheckpointer(state.journal) as journal:
        assert await threads_of(journal) == ["t", task.thread_id]


async def test_threads_prune_of_a_thread_reaches_its_tasks(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    task = await work(state)
    async with ThreadAdmin.open(Settings(state_dir=state.path)) as admin:
        await admin.prune("t", keep_latest=1, older_than=None)
    async with SqliteCheckpointer(state.journal) as journal:
        assert len(await journal.history(task.thread_id)) == 1
