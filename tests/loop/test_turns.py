"""Several runs on one thread: refused, queued or making way, never interleaved."""

from itertools import groupby
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, ThreadSlice
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import RunEnded, Superseded, ThreadBusy
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Journal(MemoryCheckpointer):
    """A journal that takes its time to read, as a disk does, and notes what was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Batch] = []

    async def load(self, *args: Any, **options: Any) -> ThreadSlice | None:
        found = await super().load(*args, **options)
        await anyio.lowlevel.checkpoint()
        return found

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        self.stored.append(batch)


class Gated:
    """An agent whose model waits for a gate, and what came of its runs, in the order they ended."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.model = Turns(*(says(f"answer {n}") for n in range(60)))
        self.gate = self.model.gate = anyio.Event()
        self.agent = create_agent(self.model, [], checkpointer=journal or Journal())
        self.results: dict[str, RunResult] = {}

    async def run(self, text: str, when_busy="queue", control: RunControl | None = None) -> None:
        options = RunOptions(when_busy=when_busy, run_id=f"run_{text}", control=control)
        self.results[text] = await self.agent.ainvoke(text, thread_id="t", options=options)

    async def said(self) -> list[str]:
        state = await self.agent.get_state("t")
        return [one.text for one in state.values["messages"] if isinstance(one, HumanMessage)]


async def settled() -> None:
    """Let every task go on until it waits."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


async def owners(agent: Agent) -> list[str | None]:
    """Return the runs that made the thread's checkpoints, oldest first, without repetition."""
    history = await agent.get_state_history("t", limit=1000)
    return [run for run, _ in groupby(one.run_id for one in reversed(history))]


async def test_fifty_queued_runs_get_their_turn_in_the_order_they_came():
    runs = Gated()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for n in range(50):
                group.start_soon(runs.run, str(n))
                await anyio.lowlevel.checkpoint()
            await runs.model.asked.wait()
            assert runs.results == {}
            runs.gate.set()
    assert list(runs.results) == [str(n) for n in range(50)]
    assert await runs.said() == list(runs.results)
    assert await owners(runs.agent) == [f"run_{n}" for n in range(50)]
    assert {one.run.status for one in runs.results.values()} == {"done"}


async def test_who_stops_waiting_leaves_the_queue_and_nothing_is_stored():
    runs = Gated()
    control = RunControl()
    torn = anyio.CancelScope()

    async def to_be_torn_down() -> None:
        with torn:
            await runs.run("torn down")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "first")
            await runs.model.asked.wait()
            group.start_soon(runs.run, "stopped", "queue", control)
            group.start_soon(to_be_torn_down)
            group.start_soon(runs.run, "last")
            await settled()
            control.cancel("not needed any more")
            torn.cancel()
            await settled()
            # It does not have to wait for its turn to hear that it is not needed.
            assert list(runs.results) == ["stopped"]
            assert runs.results["stopped"].run.status == "cancelled"
            runs.gate.set()
    assert list(runs.results) == ["stopped", "first", "last"]
    assert await runs.said() == ["first", "last"]
    assert await owners(runs.agent) == ["run_first", "run_last"]


async def test_a_run_that_is_interrupted_is_paused_before_the_other_begins():
    runs = Gated()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            group.start_soon(runs.run, "urgent", "interrupt")
            await settled()
            assert list(runs.results) == ["long"]
            runs.gate.set()
    paused = runs.results["long"].run
    assert (paused.status, paused.reason) == ("paused", "run run_urgent took over the thread")
    assert runs.results["urgent"].run.status == "done"
    assert await runs.said() == ["long", "urgent"]
    assert await owners(runs.agent) == ["run_long", "run_urgent"]
    with pytest.raises(RunEnded, match="moved on"):
        await runs.agent.aresume("run_long")


async def test_a_run_interrupted_by_one_that_is_stopped_can_be_resumed():
    runs = Gated()
    control = RunControl()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            group.start_soon(runs.run, "urgent", "interrupt", control)
            await anyio.lowlevel.checkpoint()
            control.cancel("changed my mind")
    runs.gate.set()
    assert runs.results["long"].run.status == "paused"
    assert runs.results["urgent"].run.status == "cancelled"
    done = await runs.agent.aresume("run_long")
    assert (done.run.status, done.run.attempt) == ("done", 2)
    assert await runs.said() == ["long"]


async def test_of_two_that_interrupt_the_later_has_the_thread_and_the_other_says_it_never_began():
    runs = Gated()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            group.start_soon(runs.run, "second", "interrupt")
            group.start_soon(runs.run, "third", "interrupt")
            await settled()
            runs.gate.set()
    second = runs.results["second"].run
    assert (second.status, second.reason) == (
        "cancelled",
        "run run_third took over the thread; its input was not accepted",
    )
    assert await runs.said() == ["long", "third"]
    with pytest.raises(RunEnded, match="cancelled"):
        await runs.agent.aresume("run_second")


async def test_a_run_can_be_interrupted_by_its_own_resume():
    runs = Gated()

    async def resume() -> None:
        options = RunOptions(when_busy="interrupt")
        runs.results["resumed"] = await runs.agent.aresume("run_long", options=options)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            group.start_soon(resume)
            await settled()
            runs.gate.set()
    assert runs.results["long"].run.status == "paused"
    resumed = runs.results["resumed"].run
    assert (resumed.id, resumed.status, resumed.attempt) == ("run_long", "done", 2)
    assert len(runs.model.requests) == 2


async def test_a_resume_that_waited_finds_the_run_as_it_is_now():
    runs = Gated()
    errors: list[RunEnded] = []
    control = RunControl()

    async def resume(options: RunOptions) -> None:
        try:
            await runs.agent.aresume("run_long", options=options)
        except RunEnded as error:
            errors.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            with pytest.raises(ThreadBusy):
                await runs.agent.aresume("run_long")
            group.start_soon(resume, RunOptions(when_busy="queue"))
            group.start_soon(resume, RunOptions(when_busy="queue", control=control))
            await settled()
            control.cancel("not needed")
            await settled()
            stored = await runs.agent.checkpointer.run("run_long")
            assert stored is not None
            assert (stored.status, stored.attempt) == ("running", 1)
            runs.gate.set()
    assert len(errors) == 1
    assert "is done" in str(errors[0])
    assert runs.results["long"].run.attempt == 1


async def test_a_driven_call_that_is_stopped_before_it_begins_does_nothing():
    ran: list[str] = []

    @tool
    async def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return what

    agent = create_agent(Turns(), [act])
    await agent.adrive([call("1", "act", what="a")], thread_id="t")
    control = RunControl()
    control.cancel("too late")
    options = RunOptions(control=control, trust_cache=True)
    stopped = await agent.adrive([call("2", "act", what="b")], thread_id="t", options=options)
    assert (stopped.run.status, ran) == ("cancelled", ["a"])
    assert len(await agent.get_state_history("t")) == 2


async def test_runs_on_other_threads_do_not_wait():
    runs = Gated()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, "long")
            await runs.model.asked.wait()
            runs.model.gate = None
            other = await runs.agent.ainvoke("hi", thread_id="u")
            assert other.run.status == "done"
            runs.gate.set()


@given(st.lists(st.sampled_from(["refuse", "queue", "interrupt", "cancel", "open"]), max_size=8))
def test_whatever_comes_runs_never_interleave_and_the_thread_stays_usable(plan: list[str]):
    async def scenario() -> None:
        runs = Gated()
        refused: list[str] = []
        controls: list[RunControl] = []

        async def one(text: str, when_busy: str) -> None:
            try:
                await runs.run(text, when_busy, controls[-1])
            except ThreadBusy:
                refused.append(text)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for n, move in enumerate(plan):
                    if move == "open":
                        runs.gate.set()
                    elif move == "cancel" and controls:
                        controls[-1].cancel("stopped")
                    elif move != "cancel":
                        controls.append(RunControl())
                        group.start_soon(one, str(n), move)
                    await settled()
                runs.gate.set()
            await runs.run("end", "refuse")
        seen = await owners(runs.agent)
        assert len(seen) == len(set(seen))
        assert seen == [f"run_{text}" for text in await runs.said()]
        for text, result in runs.results.items():
            stored = await runs.agent.checkpointer.run(result.run.id)
            assert stored == result.run
            began = "was not accepted" not in (stored.reason or "")
            assert began == (f"run_{text}" in seen)
        assert not set(refused) & set(runs.results)

    anyio.run(scenario)


# --- two agents, one journal ------------------------------------------------------------------


async def test_of_two_processes_that_begin_at_once_one_is_refused_and_stores_nothing():
    journal = Journal()
    both = [Gated(journal), Gated(journal)]
    refused: list[ThreadBusy] = []

    async def begin(name: str, runs: Gated) -> None:
        try:
            await runs.run(name)
        except ThreadBusy as error:
            refused.append(error)
            for one in both:  # the other one works until then, however slow this one was
                one.gate.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for name, runs in zip("ab", both, strict=True):
                group.start_soon(begin, name, runs)
    (winner,) = [name for runs in both for name in runs.results]
    assert [error.run_id for error in refused] == [f"run_{winner}"]
    assert {run.id for batch in journal.stored for run in batch.runs} == {f"run_{winner}"}
    assert await both[0].said() == [winner]
    await both[1].run("next")
    assert await both[0].said() == [winner, "next"]


async def test_a_run_of_another_process_keeps_its_thread():
    journal = Journal()
    slow, quick = Gated(journal), Gated(journal)
    quick.gate.set()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(slow.run, "slow")
            await slow.model.asked.wait()
            with pytest.raises(ThreadBusy, match="run_slow") as refused:
                await quick.run("quick")
            slow.gate.set()
    assert refused.value.run_id == "run_slow"
    assert slow.results["slow"].run.status == "done"
    assert await quick.said() == ["slow"]
    assert await journal.run("run_quick") is None


async def test_a_run_that_another_process_interrupted_stores_and_says_nothing_more():
    journal = Journal()
    slow, quick = Gated(journal), Gated(journal)
    quick.gate.set()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def superseded() -> None:
                with pytest.raises(Superseded):
                    await slow.run("slow")

            group.start_soon(superseded)
            await slow.model.asked.wait()
            await quick.run("quick", "interrupt")
            slow.gate.set()
    assert await owners(quick.agent) == ["run_slow", "run_quick"]
    assert await quick.said() == ["slow", "quick"]
    ended = await journal.run("run_slow")
    assert ended is not None
    assert (ended.status, ended.attempt, ended.answer) == ("cancelled", 2, None)
    with pytest.raises(RunEnded, match="moved on"):
        await slow.agent.aresume("run_slow")


# --- drain ------------------------------------------------------------------------------------


async def test_a_drained_run_finishes_its_step_and_goes_on_when_resumed():
    entered, release = anyio.Event(), anyio.Event()
    ran: list[str] = []
    control = RunControl()

    @tool
    async def slow() -> str:
        """Take time."""
        entered.set()
        await release.wait()
        ran.append("slow")
        return "slow"

    @tool
    async def stop(runtime: ToolRuntime) -> str:
        """Drain from within."""
        runtime.request_drain()
        ran.append("stop")
        return "stopping"

    turns = says("", call("1", "slow"), call("2", "stop")), says("", call("3", "slow")), says("end")
    model = Turns(*turns)
    agent = create_agent(model, [slow, stop])
    results: list[RunResult] = []

    async def run() -> None:
        options = RunOptions(control=control)
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await entered.wait()
            control.drain()
            release.set()
    drained = results[0].run
    assert (drained.status, len(model.requests)) == ("paused", 1)
    assert sorted(ran) == ["slow", "stop"]
    assert (await agent.get_state("t")).next == "model"
    done = await agent.aresume(drained.id)
    assert (done.run.answer, len(model.requests)) == ("end", 3)
    assert sorted(ran) == ["slow", "slow", "stop"]


@pytest.mark.parametrize("when_busy", ["refuse", "queue", "interrupt"])
@pytest.mark.parametrize("write", ["add_input", "update_state", "fork"])
async def test_a_run_waits_for_what_is_being_written_from_outside(write: str, when_busy: Any):
    gated = Gated()
    gated.gate.set()
    agent = gated.agent
    await gated.run("first")
    head = (await agent.get_state("t")).checkpoint.id

    async def from_outside() -> None:
        values = {"messages": [HumanMessage("from outside")]}
        match write:
            case "add_input":
                await agent.add_input("t", values)
            case "update_state":
                await agent.update_state("t", values)
            case _:
                await agent.fork("t", head)

    for offset in range(1, 7):  # the write begins first, and is at another place each time
        name = f"run{offset}"
        async with anyio.create_task_group() as group:
            group.start_soon(from_outside)
            for _ in range(offset):
                await anyio.lowlevel.checkpoint()
            try:
                await gated.run(name, when_busy)
            except ThreadBusy:  # it has to be the write that makes way for a run, never this
                pytest.fail("the run was refused")
        assert gated.results[name].run.status == "done"
    if write != "fork":
        assert (await gated.said()).count("from outside") == 6


async def test_several_writes_from_outside_wait_for_each_other():
    agent = Gated().agent
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(agent.add_input, "t", {"messages": [HumanMessage(str(number))]})
    said = (await agent.get_state("t")).values["messages"]
    assert sorted(one.text for one in said) == ["0", "1", "2", "3", "4"]
