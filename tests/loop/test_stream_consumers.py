"""Consumers of streams: slow ones, those that leave or fail, and what goes wrong at the start."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.errors import InvalidUpdate, ThreadBusy, UnknownThread
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from tests.loop.models import Turns, call, says
from tests.loop.streaming import Seen, Typing, family, look, noting, read

pytestmark = pytest.mark.anyio


class Endless(Turns):
    """Streams so many pieces before its answer, and counts them."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces, self.produced, self.closed = pieces, 0, False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        try:
            while self.produced < self.pieces:
                self.produced += 1
                yield Delta("text", str(self.produced))
            yield says("end")
        finally:
            self.closed = True


async def test_a_consumer_that_stops_reading_stops_the_model():
    model = Endless(1_000)
    agent = create_agent(model, [])
    with anyio.fail_after(5):
        async with aclosing(agent.astream("go", thread_id="t", modes=("messages",))) as stream:
            await anext(stream)
            await anyio.wait_all_tasks_blocked()
            waiting = model.produced
            assert waiting < 300
            for _ in range(100):
                await anext(stream)
            await anyio.wait_all_tasks_blocked()
            assert model.produced <= waiting + 101
        assert model.closed
    (run,) = await agent.checkpointer.find_runs(thread_id="t")
    assert run.status == "paused"


async def test_all_that_wait_for_a_slow_consumer_go_on_when_it_reads():
    class Chatty(Typing):
        async def stream(self, request):
            for n in range(200):
                yield Delta("text", str(n))
            yield says("report")

    calls = [call(f"p{n}", "task", description="x") for n in range(4)]
    agent = family(Chatty(), Turns(says("", *calls), says("ok")))
    with anyio.fail_after(5):
        async with aclosing(agent.astream("go", modes=("messages",))) as stream:
            await anext(stream)
            await anyio.wait_all_tasks_blocked()
            rest = [one async for one in stream]
    assert rest[-1].run.answer == "ok"


async def test_a_run_that_waits_for_its_consumer_can_be_cancelled():
    model, control = Endless(1_000), RunControl()
    agent = create_agent(model, [])
    options = RunOptions(control=control)
    with anyio.fail_after(5):
        stream = agent.astream("go", thread_id="t", modes=("messages",), options=options)
        async with aclosing(stream):
            await anext(stream)
            await anyio.wait_all_tasks_blocked()
            control.cancel("enough")
            items = [one async for one in stream]
    assert items[-1].run.status == "cancelled"
    assert model.closed
    again = await agent.ainvoke("go", thread_id="t")
    assert again.run.status == "done"


@dataclass
class _Left(Exception):
    where: str


@pytest.mark.parametrize("how", ["leaves", "raises", "cancelled"])
async def test_a_consumer_that_goes_away_harms_nothing(how):
    model, held = Turns(says("", call("1", "look")), says("ok")), anyio.Event()
    other_model = Turns(says("other"))
    model.gate = other_model.gate = held
    agent = create_agent(model, [look], state_schema=Seen)
    others: list[RunResult] = []

    async def other() -> None:
        others.append(await create_agent(other_model, []).ainvoke("go"))

    async def consume() -> None:
        async with aclosing(agent.astream("go", thread_id="t", modes=("messages",))) as stream:
            async for _ in stream:
                if how == "raises":
                    raise _Left("here")
                if how == "cancelled":
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
                break

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await other_model.asked.wait()
            with anyio.CancelScope() as scope:
                if how == "raises":
                    with pytest.raises(_Left):
                        await consume()
                else:
                    await consume()
            (run,) = await agent.checkpointer.find_runs(thread_id="t")
            assert run.status == ("running" if how == "cancelled" else "paused")
            held.set()
            result = await agent.aresume(run.id)
    assert result.run.status == "done"
    assert [one.run.status for one in others] == ["done"]


async def test_leaving_after_the_result_changes_nothing():
    agent = noting()
    async with aclosing(agent.astream("go", thread_id="t", modes=("updates",))) as stream:
        async for one in stream:
            if isinstance(one, RunResult):
                break
    (run,) = await agent.checkpointer.find_runs(thread_id="t")
    assert run.status == "done"


async def test_what_goes_wrong_before_a_run_begins_comes_out_as_itself():
    agent = noting()
    with pytest.raises(InvalidUpdate, match="undeclared state 'nope'"):
        await read(agent, "values", given={"messages": [], "nope": 1})
    with pytest.raises(UnknownThread):
        await read(agent, "values", given=None)
    model = Turns(says("ok"))
    model.gate = anyio.Event()
    agent = create_agent(model, [])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
            await model.asked.wait()
            with pytest.raises(ThreadBusy):
                async with aclosing(agent.astream("too", thread_id="t")) as stream:
                    await anext(stream)
            model.gate.set()


async def test_a_run_that_fails_ends_with_its_result():
    class Broken(AgentMiddleware):
        def after_model(self, state, runtime):
            raise ValueError("oops")

    agent = create_agent(Turns(says("a")), [], middleware=[Broken()])
    events, result = await read(agent, "updates")
    assert [[*one.data] for one in events] == [["input"], ["model"]]
    assert result.run.status == "failed"
    assert "Broken.after_model raised ValueError: oops" in str(result.error)
