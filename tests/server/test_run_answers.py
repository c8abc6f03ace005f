"""`runs approve` and `runs reply`: their answers to runs that servers work on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.runtime import ToolRuntime
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.operations import retries
from deep_agent_mcp.server.operations.run_admin import RunAdmin
from deep_agent_mcp.server.runs.contracts import PolledRunChanges
from deep_agent_mcp.server.runs.runs import RunManager
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.threads.journal_servers import ReplicaServers
from deep_agent_mcp.server.threads.journals import Beside
from tests.loop.models import Turns
from tests.loop.models import call as use
from tests.loop.models import says as turn
from tests.server.test_replies import carrying

pytestmark = pytest.mark.anyio


class Alive:
    """Replicas that are all alive."""

    may_work = True

    async def is_alive(self, owner: str) -> bool:
        return True

    def was_killed(self, owner: str) -> bool:
        return False


class Signals:
    """Signals to replicas: keeps which were sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []

    async def tell(self, *words: str) -> None:
        self.sent.append(words)


def replicas(signals: Signals) -> ReplicaServers:
    return ReplicaServers(Alive(), cast("Any", signals), PolledRunChanges())


class LivingServers(ServerProcesses):
    """Server processes of which all are alive."""

    async def is_alive(self, owner: str) -> bool:
        return True


async def asked(runs: RunManager, run_id: str) -> Interrupt:
    """Return the question of a run that has paused, once its server has let go of it."""
    (question,) = (await runs.wait(run_id, 10)).questions
    while runs._supervisor.goes_on(run_id):
        await anyio.lowlevel.checkpoint()
    return question


@tool
async def paint(runtime: ToolRuntime) -> str:
    """Paint."""
    return str(runtime.interrupt("Which colour?"))


@pytest.mark.parametrize("shared", [False, True])
async def test_an_answer_leaves_a_run_whose_other_calls_still_work_with_its_server(
    shared: bool, tmp_path: Path
) -> None:
    begun, go_on = list[str](), anyio.Event()

    @tool(once=True)
    async def pay() -> str:
        """Pay."""
        begun.append("pay")
        await go_on.wait()
        return "paid"

    model = Turns(turn("", use("1", "paint"), use("2", "pay")), turn("Both."))
    journal, signals, state = MemoryCheckpointer(), Signals(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint, pay], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        servers = replicas(signals) if shared else LivingServers(state)
        admin = RunAdmin(Beside(state, "command", journal, servers))
        run_id = await runs.start("anything")
        while not (begun and await runs.questions(run_id)):
            await anyio.lowlevel.checkpoint()
        (question,) = await admin.questions(run_id)
        answer = await admin.answer(run_id, {question.id: "blue"})
        assert "still works on other calls" in answer.text
        assert answer.data is not None and answer.data["taken"] is True
        run = await journal.run(run_id)
        assert run is not None and (run.owner, run.attempt) == ("me", 1)
        assert not signals.sent
        go_on.set()
        assert (await runs.wait(run_id, 10)).run.answer == "Both."
    said = model.requests[-1].messages
    results = {one.name: one.text for one in said if isinstance(one, ToolMessage)}
    assert (begun, results) == (["pay"], {"paint": "blue", "pay": "paid"})


async def test_an_answer_to_a_run_that_another_replica_has_just_continued_is_no_error(
    tmp_path: Path,
) -> None:
    class Overtaken(MemoryCheckpointer):
        """A journal in which another replica continues a run just before a command does."""

        async def commit(self, batch: Batch) -> None:
            if batch.fences and is_slow:
                is_slow.clear()
                (run,) = batch.runs
                await super().commit(replace(batch, runs=[replace(run, owner="another")]))
            await super().commit(batch)

    is_slow = list[str]()
    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal, signals, state = Overtaken(), Signals(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        admin = RunAdmin(Beside(state, "command", journal, replicas(signals)))
        run_id = await runs.start("anything")
        question = await asked(runs, run_id)
        is_slow.append("the command")
        answer = await admin.answer(run_id, {question.id: "blue"})
        assert "continues, as attempt 2" in answer.text
        assert not signals.sent


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("moment", ["before", "during"])
async def test_an_answer_does_not_revive_a_run_that_somebody_else_has_cancelled(
    moment: str, shared: bool, tmp_path: Path
) -> None:
    class Cancelled(MemoryCheckpointer):
        """A journal in which somebody else cancels the run just after a command has answered."""

        async def commit(self, batch: Batch) -> None:
            await super().commit(batch)
            if batch.answers and moment == "during":
                await runs.cancel(run_id, "not needed any more")

    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal, signals, state = Cancelled(), Signals(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        servers = replicas(signals) if shared else LivingServers(state)
        admin = RunAdmin(Beside(state, "command", journal, servers))
        run_id = await runs.start("anything")
        question = await asked(runs, run_id)
        if moment == "before":
            await runs.cancel(run_id, "not needed any more")
            with pytest.raises(HarnessError, match="is cancelled and asks nothing"):
                await admin.answer(run_id, {question.id: "blue"})
        else:
            answer = await admin.answer(run_id, {question.id: "blue"})
            assert answer.text == f"Run {run_id} has ended meanwhile: cancelled."
        run = await journal.run(run_id)
        assert run is not None and run.status == "cancelled"
        assert not signals.sent


async def test_a_run_that_is_cancelled_as_a_command_continues_it_is_not_said_to_continue(
    tmp_path: Path,
) -> None:
    class Cancelled(MemoryCheckpointer):
        """A journal in which somebody cancels a run just before a command hands it over."""

        async def commit(self, batch: Batch) -> None:
            if batch.fences and is_slow:
                is_slow.clear()
                await runs.cancel(run_id, "not needed any more")
            await super().commit(batch)

    is_slow = list[str]()
    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal, signals, state = Cancelled(), Signals(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        admin = RunAdmin(Beside(state, "command", journal, replicas(signals)))
        run_id = await runs.start("anything")
        question = await asked(runs, run_id)
        is_slow.append("the command")
        answer = await admin.answer(run_id, {question.id: "blue"})
        assert answer.text == f"Run {run_id} has ended meanwhile: cancelled."
        assert not signals.sent


async def test_an_answer_that_comes_after_another_one_is_not_said_to_be_stored(
    tmp_path: Path,
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @tool
    async def varnish() -> str:
        """Varnish."""
        begun.set()
        await go_on.wait()
        return "varnished"

    model = Turns(turn("", use("1", "paint")), turn("", use("2", "varnish")), turn("Painted."))
    journal, state = MemoryCheckpointer(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint, varnish], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        admin = RunAdmin(Beside(state, "command", journal, LivingServers(state)))
        run_id = await runs.start("anything")
        question = await asked(runs, run_id)
        await runs.reply(run_id, {question.id: "red"})
        await begun.wait()
        with pytest.raises(HarnessError, match=r"is running and asks nothing\. Nothing was stored"):
            await admin.answer(run_id, {question.id: "blue"})
        go_on.set()
        await runs.wait(run_id, 10)


async def test_a_retry_that_comes_before_its_run_has_stopped_is_carried_out_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.01)
    resume, tried = RunSupervisor.resume, anyio.Event()

    async def watched(*args: Any, **options: Any) -> None:
        try:
            await resume(*args, **options)
        finally:
            tried.set()

    def flaky(_: ChatRequest) -> AIMessage:
        if failures:
            raise failures.pop()
        return turn("It works now.")

    monkeypatch.setattr(RunSupervisor, "resume", watched)
    failures = [RuntimeError("flaky")]
    model, journal, state = Turns(flaky), MemoryCheckpointer(), StateDir.open(tmp_path)
    model.gate = anyio.Event()
    agent = create_agent(model, [], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs, anyio.create_task_group() as group:
        run_id = await runs.start("anything")
        await model.asked.wait()
        run = await journal.run(run_id)
        assert run is not None
        retries.RetryRequests(state).store(run)
        group.start_soon(retries.take_retries, runs, journal, state, "me")
        await tried.wait()
        model.gate.set()
        assert (await runs.wait(run_id, 10)).run.status == "failed"
        while (await runs.wait(run_id, 10)).run.status == "failed":  # noqa: ASYNC110  no event tells of it
            await anyio.sleep(0.01)
        assert (await runs.wait(run_id, 10)).run.answer == "It works now."
        group.cancel_scope.cancel()


async def test_a_retry_is_kept_while_its_run_is_about_to_continue_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.01)
    goes_on, looked, is_about_to = RunSupervisor.goes_on, anyio.Event(), [True]

    def watched(supervisor: RunSupervisor, run_id: str) -> bool:
        looked.set()
        return any(is_about_to) or goes_on(supervisor, run_id)

    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal, state = MemoryCheckpointer(), StateDir.open(tmp_path)
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs, anyio.create_task_group() as group:
        run_id = await runs.start("anything")
        question = await asked(runs, run_id)
        await journal.commit(Batch(question.thread_id, answers={question.id: "blue"}))
        run = await journal.run(run_id)
        assert run is not None
        retries.RetryRequests(state).store(run)
        monkeypatch.setattr(RunSupervisor, "goes_on", watched)
        group.start_soon(retries.take_retries, runs, journal, state, "me")
        await looked.wait()
        looked = anyio.Event()
        await looked.wait()  # it is asked for again
        assert (await journal.run(run_id)) == run
        is_about_to.clear()
        while (now := await journal.run(run_id)) is None or now.status != "done":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert now.answer == "Painted."
        group.cancel_scope.cancel()
