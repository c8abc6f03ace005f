"""Steering: a caller sends a message to a run at work."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import InvalidUpdate, RunEnded, UnknownInterrupt, UnknownRun
from deep_agent_mcp.harness.loop import thread_input
from deep_agent_mcp.harness.loop.run.commit_buffer import Durability
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

OPTIONS = RunOptions(run_id="run_1", log_events=True)


class Stop:
    """A tool at which a run can be held."""

    def __init__(self) -> None:
        self.reached, self.leave = anyio.Event(), anyio.Event()

        @tool(name="stop")
        async def stop() -> str:
            """Stop."""
            self.reached.set()
            await self.leave.wait()
            return "stopped"

        self.tool = stop


@tool
async def ask(runtime: ToolRuntime) -> str:
    """Ask."""
    return f"they said {runtime.interrupt('Sure?')}"


@asynccontextmanager
async def running(agent: Agent, options: RunOptions = OPTIONS) -> AsyncGenerator[list[RunResult]]:
    results: list[RunResult] = []

    async def run() -> None:
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield results


async def said(agent: Agent) -> list[str]:
    messages = (await agent.get_state("t")).values["messages"]
    return [one.text for one in messages if isinstance(one, HumanMessage)]


async def events(agent: Agent, *names: str) -> list[dict[str, object]]:
    found = await agent.events("run_1")
    return [{**one.data} for one in found if one.data.get("event") in names]


async def test_a_message_reaches_the_run_before_its_next_model_call():
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    agent = create_agent(model, [stop.tool], checkpointer=MemoryCheckpointer())
    async with running(agent) as results:
        await stop.reached.wait()
        sent = await agent.asteer("run_1", "only the north")
        assert (sent.status, sent.checkpoint_id) == ("queued", None)
        again = await agent.asteer("run_1", "only the north")
        assert again == sent
        stop.leave.set()
    assert results[0].run.answer == "done"
    assert [one.text for one in model.requests[1].messages][-1] == "only the north"
    assert await said(agent) == ["go", "only the north"]
    (taken,) = await agent.amessages("run_1")
    assert (taken.id, taken.status) == (sent.id, "taken")
    step = next(one for one in await agent.get_state_history("t") if one.id == taken.checkpoint_id)
    assert (step.author, step.summary, step.next) == ("caller", "only the north", "model")
    about = {"name": "caller", "message_id": sent.id, "text": "only the north"}
    assert await events(agent, "message_queued", "message_taken") == [
        {"event": "message_queued", **about},
        {"event": "message_taken", **about, "checkpoint_id": taken.checkpoint_id},
    ]


async def test_a_message_that_comes_with_the_last_answer_makes_the_run_go_on():
    model = Turns(says("first answer"), says("second answer"))
    agent = create_agent(model, [], checkpointer=MemoryCheckpointer())
    model.gate = anyio.Event()
    async with running(agent) as results:
        await model.asked.wait()
        await agent.asteer("run_1", "and the south?")
        model.gate.set()
    assert results[0].run.answer == "second answer"
    assert await said(agent) == ["go", "and the south?"]


class Recording(MemoryCheckpointer):
    """A journal that remembers what was stored together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        self.batches.append(batch)


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_a_message_is_taken_once_and_stored_with_its_step_whatever_the_durability(
    durability: Durability, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(thread_input, "_LOOK_SECONDS", 0)  # as if each answer took a while
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    journal = Recording()
    agent = create_agent(model, [stop.tool], checkpointer=journal)
    async with running(agent, replace(OPTIONS, durability=durability)) as results:
        await stop.reached.wait()
        await agent.asteer("run_1", "only the north")
        stop.leave.set()
    assert (results[0].run.answer, results[0].run.reason) == ("done", None)
    assert await said(agent) == ["go", "only the north"]
    assert len(model.requests) == 2
    (taken,) = [one for one in journal.batches if one.answers]
    assert "caller" in [one.author for one in taken.checkpoints]


async def test_messages_keep_their_order_and_are_taken_together():
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    agent = create_agent(model, [stop.tool], checkpointer=MemoryCheckpointer())
    async with running(agent):
        await stop.reached.wait()
        for text in ("one", "two", "three"):
            await agent.asteer("run_1", text)
        stop.leave.set()
    assert await said(agent) == ["go", "one", "two", "three"]
    assert len(model.requests) == 2


async def test_a_message_survives_the_death_of_the_process_and_is_taken_once(tmp_path: Path):
    stop, control = Stop(), RunControl()
    turns = (says("", call("1", "stop")), says("done"))
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        agent = create_agent(Turns(*turns), [stop.tool], checkpointer=journal)
        options = RunOptions(run_id="run_1", log_events=True, control=control)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t", options=options))
            await stop.reached.wait()
            await agent.asteer("run_1", "only the north")
            control.leave()
    for _ in range(2):  # the second time nothing is left
        stop.leave.set()
        async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
            agent = create_agent(Turns(*turns), [stop.tool], checkpointer=journal)
            run = await journal.run("run_1")
            assert run is not None
            if run.status == "running":
                await agent.aresume("run_1")
            assert await said(agent) == ["go", "only the north"]
            assert [one.status for one in await agent.amessages("run_1")] == ["taken"]


async def test_a_message_of_another_process_is_found(tmp_path: Path):
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as mine, SqliteCheckpointer(path) as theirs:
        agent = create_agent(model, [stop.tool], checkpointer=mine)
        other = create_agent(Turns(), [], checkpointer=theirs)
        async with running(agent):
            await stop.reached.wait()
            await anyio.to_thread.run_sync(other.steer, "run_1", "from afar")
            stop.leave.set()
        assert await said(agent) == ["go", "from afar"]


async def test_a_message_answers_nothing_and_is_taken_once_the_run_goes_on():
    model = Turns(says("", call("1", "ask")), says("done"))
    agent = create_agent(model, [ask], checkpointer=MemoryCheckpointer())
    paused = await agent.ainvoke("go", thread_id="t", options=OPTIONS)
    sent = await agent.asteer("run_1", "yes, do it all")
    (question,) = await agent.open_questions("t")
    assert question.id == paused.interrupts[0].id
    with pytest.raises(UnknownInterrupt, match="no question"):
        await agent.aresume("run_1", {sent.id: "yes"})
    still = await agent.aresume("run_1")
    assert still.run.status == "needs_approval"
    done = await agent.aresume("run_1", {question.id: "no"})
    assert done.run.answer == "done"
    assert await said(agent) == ["go", "yes, do it all"]
    texts = [one.text for one in model.requests[-1].messages]
    assert texts[-2:] == ["they said no", "yes, do it all"]


async def test_pruning_keeps_messages_that_wait():
    model = Turns(says("", call("1", "ask")), says("done"))
    agent = create_agent(model, [ask], checkpointer=MemoryCheckpointer())
    paused = await agent.ainvoke("go", thread_id="t", options=OPTIONS)
    await agent.asteer("run_1", "wait for me")
    await agent.checkpointer.prune("t", keep_latest=1)
    await agent.aresume("run_1", {paused.interrupts[0].id: "no"})
    assert await said(agent) == ["go", "wait for me"]


async def test_what_cannot_take_a_message_says_so():
    stop = Stop()
    stop.leave.set()
    agent = create_agent(Turns(says("done")), [stop.tool], checkpointer=MemoryCheckpointer())
    await agent.ainvoke("go", thread_id="t", options=OPTIONS)
    with pytest.raises(RunEnded, match="run_1 is done; start a new one on t"):
        await agent.asteer("run_1", "too late")
    with pytest.raises(UnknownRun):
        await agent.asteer("run_2", "who?")
    assert await agent.amessages("run_1") == []


class Ending(MemoryCheckpointer):
    """A journal in which a run ends just before a message for it is stored."""

    async def commit(self, batch):
        if any(one.kind == "message" for one in batch.interrupts):
            self.stop.leave.set()
            await self.ended.wait()
        await super().commit(batch)


async def test_a_message_that_came_too_late_is_said_to_be_missed():
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    journal: Checkpointer = Ending()
    journal.stop, journal.ended = stop, anyio.Event()
    agent = create_agent(model, [stop.tool], checkpointer=journal)

    async def run() -> None:
        await agent.ainvoke("go", thread_id="t", options=OPTIONS)
        journal.ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await stop.reached.wait()
            assert (await agent.asteer("run_1", "hello?")).status == "missed"


async def test_personal_data_in_a_message_is_redacted_before_it_is_stored():
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    agent = create_agent(
        model, [stop.tool], middleware=[PIIMiddleware("email")], checkpointer=MemoryCheckpointer()
    )
    async with running(agent):
        await stop.reached.wait()
        sent = await agent.asteer("run_1", "write to ann@example.com")
        assert "ann@" not in sent.text
        stop.leave.set()
    assert await said(agent) == ["go", sent.text]


async def test_an_empty_message_is_refused():
    stop = Stop()
    model = Turns(says("", call("1", "stop")), says("done"))
    agent = create_agent(model, [stop.tool], checkpointer=MemoryCheckpointer())
    async with running(agent):
        await stop.reached.wait()
        with pytest.raises(InvalidUpdate, match="empty; nothing was stored"):
            await agent.asteer("run_1", "  ")
        stop.leave.set()


class Overtaken(MemoryCheckpointer):
    """A journal in which another process moves the thread just before a message is taken."""

    async def commit(self, batch):
        if any(key.startswith("msg_") for key in batch.answers):
            self.other, other = None, self.other
            if other is not None:
                (first, *_) = await self.history("t")
                await other.fork("t", first.id)
        await super().commit(batch)


async def test_a_message_whose_step_was_refused_is_not_said_to_be_taken():
    stop, model = Stop(), Turns(says("", call("1", "stop")), says("done"))
    journal = Overtaken()
    journal.other = create_agent(Turns(), [stop.tool], checkpointer=journal)
    agent = create_agent(model, [stop.tool], checkpointer=journal)
    async with running(agent) as results:
        await stop.reached.wait()
        sent = await agent.asteer("run_1", "only the north")
        stop.leave.set()
    assert journal.other is None and results[0].run.status == "failed"
    (found,) = await agent.amessages("run_1")
    assert (found.id, found.status) == (sent.id, "missed")
    assert await events(agent, "message_taken") == []
