"""Several carriers of one run: whoever begins the last attempt wins, and nobody else is heard."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import OPEN, Batch, Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import HarnessError, JournalAway, RunEnded, Superseded
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

STEPS = 4
CARRIERS = 3


class Interleaved:
    """A journal behind which every commit takes a generated number of turns of the loop."""

    def __init__(self, journal: Checkpointer, chance: Random) -> None:
        self._journal = journal
        self._chance = chance

    async def commit(self, batch: Batch) -> None:
        await pause(self._chance)
        await self._journal.commit(batch)
        await pause(self._chance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def pause(chance: Random) -> None:
    for _ in range(chance.randrange(8)):
        await anyio.lowlevel.checkpoint()


class Carriers:
    """Processes with an agent each, over one journal."""

    def __init__(self, journal: Checkpointer, seed: int) -> None:
        self.chance = Random(seed)
        self.journal = journal
        self.effects: Counter[str] = Counter()
        self.results: list[RunResult] = []
        self.refusals: list[HarnessError] = []

    def agent(self, carrier: int):
        @tool(once=True)
        async def act(name: str) -> str:
            """Do what must not be done twice."""
            self.effects[name] += 1
            await pause(self.chance)
            return f"{name} by {carrier}"

        @tool
        async def look(name: str) -> str:
            """Look."""
            await pause(self.chance)
            return f"{name} by {carrier}"

        turns = [
            says("", call(f"a{n}", "act", name=f"a{n}"), call(f"b{n}", "look", name=f"b{n}"))
            for n in range(STEPS)
        ]
        journal = Interleaved(self.journal, self.chance)
        return create_agent(Turns(*turns, says("end")), [act, look], checkpointer=journal)

    async def begin(self) -> None:
        options = RunOptions(run_id="run_1", owner="process 0")
        await self._carried(self.agent(0).ainvoke("go", thread_id="t", options=options))

    async def take_over(self, carrier: int) -> None:
        for _ in range(self.chance.randrange(10, 120)):
            await anyio.lowlevel.checkpoint()
        options = RunOptions(owner=f"process {carrier}")
        await self._carried(self.agent(carrier).aresume("run_1", options=options))

    async def _carried(self, carrying: Any) -> None:
        try:
            self.results.append(await carrying)
        except (Superseded, RunEnded) as error:
            self.refusals.append(error)


@pytest.mark.parametrize("seed", range(30))
async def test_however_carriers_of_a_run_interleave_one_history_is_left(seed: int, tmp_path: Path):
    kind = MemoryCheckpointer if seed % 2 else SqliteCheckpointer
    async with kind(*([] if seed % 2 else [tmp_path / "journal.db"])) as journal:
        carriers = Carriers(journal, seed)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(carriers.begin)
                while await journal.run("run_1") is None:
                    await anyio.lowlevel.checkpoint()
                for carrier in range(1, CARRIERS):
                    group.start_soon(carriers.take_over, carrier)
        run = await journal.run("run_1")
        assert run is not None
        assert (run.status, run.answer) == ("done", "end")
        (winner,) = carriers.results
        assert winner.run == run
        assert len(carriers.refusals) == CARRIERS - 1
        state = await carriers.agent(9).get_state("t")
        assert [*state.values["messages"]] == [*winner.state["messages"]]
        assert max(carriers.effects.values()) == 1
        results = Counter(
            one.tool_call_id for one in winner.state["messages"] if isinstance(one, ToolMessage)
        )
        assert results == Counter(f"{kind}{n}" for n in range(STEPS) for kind in "ab")


async def test_a_carrier_that_was_superseded_starts_no_call_that_must_run_once():
    """It slept between its model's answer and its call, while another one finished the run."""
    journal = MemoryCheckpointer()
    ran: list[str] = []

    async def taken_over(runtime: ToolRuntime) -> str:
        ran.append("first")
        other = create_agent(Turns(says(""), says("done by another")), [], checkpointer=journal)
        await other.ainvoke(
            "hurry", thread_id="t", options=RunOptions(when_busy="interrupt", run_id="run_2")
        )
        return "late"

    @tool
    async def sleeps(runtime: ToolRuntime) -> str:
        """Sleep through the takeover."""
        return await taken_over(runtime)

    @tool(once=True)
    async def act() -> str:
        """Act once."""
        ran.append("act")
        return "acted"

    model = Turns(says("", call("1", "sleeps")), says("", call("2", "act")), says("end"))
    agent = create_agent(model, [sleeps, act], checkpointer=journal)
    with pytest.raises(Superseded):
        await agent.ainvoke("go", thread_id="t", options=RunOptions(run_id="run_1"))
    assert ran == ["first"]
    assert len(model.requests) == 1
    ended = await journal.run("run_1")
    assert ended is not None
    assert ended.status == "cancelled"
    open_runs = [one for status in OPEN for one in await journal.find_runs(status=status)]
    assert open_runs == []


class Away(MemoryCheckpointer):
    """A journal that cannot be reached for a while."""

    away = False

    async def commit(self, batch: Batch) -> None:
        if self.away:
            raise JournalAway("the journal cannot be reached; nothing was stored")
        await super().commit(batch)


async def test_a_run_is_left_while_the_journal_is_away_and_goes_on_when_it_is_back():
    journal = Away()
    ran: list[str] = []

    @tool
    async def step(name: str) -> str:
        """Take a step."""
        ran.append(name)
        journal.away = name == "b" and ran.count("b") == 1
        return f"did {name}"

    turns = [says("", call(name, "step", name=name)) for name in "abc"]
    agent = create_agent(Turns(*turns, says("end")), [step], checkpointer=journal)
    options = RunOptions(run_id="run_1", owner="process 1")
    with pytest.raises(JournalAway):
        await agent.ainvoke("go", thread_id="t", options=options)
    left = await journal.run("run_1")
    assert left is not None
    assert (left.status, left.attempt) == ("running", 1)
    journal.away = False
    result = await agent.aresume("run_1")
    assert (result.run.status, result.run.attempt, result.run.answer) == ("done", 2, "end")
    assert ran == ["a", "b", "b", "c"]  # what was not stored is done again
