"""Laws of the loop, over random agents, scripts, limits, crashes and cancellations.

Whatever happens, and once the thread has come to rest again: every call of every answer has
exactly one result, right after the answer and in call order; and a call whose result was stored
never runs again.
"""

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, ToolError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

APPROVE = {"decision": "approve"}
POLICY = Policy((Rule("deny", "denied"), Rule("ask", "gated")))


class Death(BaseException):
    """The process is gone."""


class Journal(MemoryCheckpointer):
    """A journal that knows which calls have a stored result, and fails at one commit."""

    def __init__(self, fails_at: int = 0, failure: type[BaseException] = Death) -> None:
        super().__init__()
        self.fails_at = fails_at
        self.failure = failure
        self.count = 0
        self.finished: set[str] = set()

    async def commit(self, batch: Batch) -> None:
        self.count += 1
        if self.count == self.fails_at:
            raise self.failure("no space left")
        await super().commit(batch)
        for task in batch.writes:
            for write in task.writes:
                if write.channel == "messages":
                    self.finished |= {
                        one["tool_call_id"]
                        for one in json.loads(write.value)
                        if one["type"] == "tool"
                    }


def making(kind: str, **options: Any) -> Tool:
    @tool(name=kind, **options)
    async def run(runtime: ToolRuntime, number: int = 0) -> str:
        """Do something."""
        await anyio.lowlevel.checkpoint()
        for place in range({"ask": 1, "twice": 2}.get(kind, 0)):
            runtime.interrupt(f"question {place}")
        runtime.context.ran[runtime.tool_call_id] += 1
        if kind == "drain":
            runtime.request_drain()
        await anyio.lowlevel.checkpoint()
        if kind == "boom":
            raise ToolError("boom")
        return f"{kind} {runtime.tool_call_id}"

    return run


@tool
async def task(description: str, runtime: ToolRuntime) -> ToolResult:
    """Delegate."""
    result = await runtime.run_subagent(runtime.context.child(), description)
    runtime.context.ran[runtime.tool_call_id] += 1
    return ToolResult(result.text, writes=result.writes)


OK = making("ok")
TOOLS = [task, OK, *map(making, ("boom", "ask", "twice", "denied", "gated", "drain"))]
TOOLS.append(making("direct", return_direct=True))


@dataclass
class World:
    """A script, its journal, and what ran."""

    answers: list[AIMessage]
    journal: Any = field(default_factory=Journal)
    ran: Counter[str] = field(default_factory=Counter[str])

    def child(self) -> Agent:
        inner = Turns(lambda ask: says("", call(f"{ask.messages[0].text}.c", "ok")), says("report"))
        return create_agent(inner, [OK], checkpointer=self.journal, name="child")

    def agent(self) -> Agent:
        """Return the agent as another process would build it."""
        model = Turns(*self.answers, *[says("the end")] * 9)
        return create_agent(model, TOOLS, checkpointer=self.journal, policy=POLICY)

    async def begin(self, limits: Limits | None = None) -> None:
        options = RunOptions(run_id="r", limits=limits, context=self)
        await self.agent().ainvoke("go", thread_id="t", options=options)

    async def resume(self, run_id: str, answers: Any = None) -> RunResult:
        return await self.agent().aresume(run_id, answers, options=RunOptions(context=self))

    async def open_questions(self, run_id: str = "r") -> list[Interrupt]:
        return [one for one in await self.journal.interrupts(run_id) if not one.answered]

    async def rest(self, way: str) -> list[Any]:
        """Bring the thread to rest in new processes, by resuming or by a new message."""
        if way == "message" or await self.journal.run("r") is None:
            options = RunOptions(run_id="m", context=self)
            await self.agent().ainvoke("never mind", thread_id="t", options=options)
        for run_id in ("r", "m"):
            for _ in range(20):
                run = await self.journal.run(run_id)
                if run is None or run.status == "done" or (run_id, way) == ("r", "message"):
                    break
                asked = await self.open_questions(run_id)
                answers = {one.id: APPROVE if one.kind == "approval" else "yes" for one in asked}
                await self.resume(run_id, answers)
            else:
                pytest.fail(f"{run_id} does not come to its end: {run}")
        state = await self.agent().get_state("t")
        assert state.next == "end"
        return list(state.values["messages"])


def assert_paired(messages: list[Any]) -> None:
    """Every answer's calls have their results right after it, one each, in call order."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        assert not isinstance(message, ToolMessage), "a result without its call"
        for one in message.tool_calls if isinstance(message, AIMessage) else ():
            assert isinstance(messages[place], ToolMessage), f"{one.id} has no result"
            assert messages[place].tool_call_id == one.id
            place += 1


KINDS = ["ok", "ok", "boom", "ask", "twice", "denied", "gated", "direct", "drain", "task"]


@st.composite
def scripts(draw, kinds=(*KINDS, "unknown", "invalid", "bad args", "extra")):
    answers = []
    for turn in range(draw(st.integers(1, 4))):
        chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
        calls = []
        for number, kind in enumerate(chosen):
            call_id = f"{turn}.{number}"
            match kind:
                case "invalid":
                    calls.append(ToolCall(call_id, "ok", invalid="{"))
                case "bad args":
                    calls.append(call(call_id, "ok", number="x"))
                case "task":
                    calls.append(call(call_id, "task", description=call_id))
                case _:
                    calls.append(call(call_id, kind))
        answers.append(says("", *calls))
    return answers


limited = st.builds(
    Limits, model_calls=st.integers(1, 5), tool_calls=st.integers(1, 6),
    parallel_tool_calls=st.integers(1, 4),
)  # fmt: skip
ways = st.sampled_from(["resume", "message"])


async def at_rest(world: World, way: str) -> None:
    world.journal.fails_at = 0
    before, finished = world.ran.copy(), set(world.journal.finished)
    messages = await world.rest(way)
    assert_paired(messages)
    assert {one: world.ran[one] for one in finished} == {one: before[one] for one in finished}
    assert isinstance(messages[-1], AIMessage | ToolMessage)


@given(scripts(), limited, ways)
def test_every_call_has_one_result_whatever_limits_questions_and_drains_do(answers, limits, way):
    async def law() -> None:
        world = World(answers)
        await world.begin(limits)
        await at_rest(world, way)

    anyio.run(law)


@given(scripts(), st.integers(1, 25), ways)
def test_a_journal_that_fails_once_loses_no_result_and_repeats_none(answers, fails_at, way):
    async def law() -> None:
        world = World(answers, Journal(fails_at, CheckpointError))
        try:
            await world.begin()
        except CheckpointError:
            assert world.journal.finished == set()
        await at_rest(world, way)

    anyio.run(law)


@given(scripts(), st.integers(1, 25), ways)
def test_a_process_that_dies_at_any_commit_is_continued_by_the_next(answers, dies_at, way):
    async def law() -> None:
        world = World(answers, Journal(dies_at))
        try:
            await world.begin()
        except (Death, BaseExceptionGroup) as end:
            assert isinstance(end, Death) or end.subgroup(Death) is not None
        await at_rest(world, way)

    anyio.run(law)


async def torn_down(work, ticks: int) -> bool:
    """Run something and cancel it after so many rounds of the event loop; say if it got done."""
    done = False

    async with anyio.create_task_group() as group:

        async def clock() -> None:
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

        group.start_soon(clock)
        await work()
        done = True
        group.cancel_scope.cancel()
    return done


@given(scripts(), st.integers(0, 60), ways)
def test_a_run_torn_down_at_any_moment_goes_on_or_makes_way(answers, ticks, way):
    async def law() -> None:
        world = World(answers)
        await torn_down(world.begin, ticks)
        await at_rest(world, way)

    anyio.run(law)


@pytest.mark.parametrize("way", ["resume", "message"])
def test_a_run_cancelled_at_each_await_point_in_turn(way):
    """The same without chance: one agent with a child, questions and failures, every moment."""
    answers = [
        says("", call("0.0", "ok"), call("0.1", "task", description="0.1"), call("0.2", "boom")),
        says("", call("1.0", "ok"), call("1.1", "drain"), call("1.2", "denied")),
    ]

    async def law() -> int:
        for ticks in itertools.count():
            world = World(answers)
            done = await torn_down(world.begin, ticks)
            await at_rest(world, way)
            if done:
                return ticks
        raise AssertionError

    assert anyio.run(law) > 10


# --- interrupts -----------------------------------------------------------------------------

ASKING = [
    says("", call("0.0", "gated"), call("0.1", "ok"), call("0.2", "twice"),
         call("0.3", "gated", number=3)),
    says("", call("1.0", "ask")),
]  # fmt: skip


def decided(interrupt) -> Any:
    """Answer by what is asked, never by when."""
    if interrupt.kind == "question":
        return f"answer to {interrupt.message}"
    if interrupt.payload["args"]:
        return {"decision": "reject", "message": "no"}
    return APPROVE


def ordered_partitions(items: tuple[int, ...]):
    """Yield every way to answer the questions: in rounds, each of one or more of them."""
    if not items:
        yield ()
        return
    for size in range(1, len(items) + 1):
        for chosen in itertools.combinations(items, size):
            rest = tuple(one for one in items if one not in chosen)
            for others in ordered_partitions(rest):
                yield (chosen, *others)


async def answered_in(rounds) -> tuple[list[tuple[str, str]], Counter[str]]:
    world = World(ASKING)
    await world.begin()
    first = await world.journal.interrupts("r")
    for chosen in rounds:
        answers = {first[n].id: decided(first[n]) for n in chosen}
        await world.resume("r", answers)
    while (await world.journal.run("r")).status != "done":
        asked = await world.open_questions()
        await world.resume("r", {one.id: decided(one) for one in asked})
    state = await world.agent().get_state("t")
    assert_paired(state.values["messages"])
    return [(one.type, one.text) for one in state.values["messages"]], world.ran


def test_questions_may_be_answered_in_any_order_and_any_portions():
    async def law() -> None:
        ways = list(ordered_partitions((0, 1, 2)))
        assert len(ways) == 13
        expected, ran = await answered_in(ways[0])
        assert ran == Counter(["0.0", "0.1", "0.2", "1.0"])
        for rounds in ways[1:]:
            assert await answered_in(rounds) == (expected, ran), rounds

    anyio.run(law)


def test_questions_keep_their_ids_and_order_in_every_process(tmp_path):
    async def asked(journal) -> list[tuple[Any, ...]]:
        world = World(ASKING, journal)
        seen = (await world.resume("r")).interrupts
        state = await world.agent().get_state("t")
        assert [one.id for one in seen] == [one.id for one in state.interrupts]
        return [(one.id, one.path, one.message, one.index) for one in seen]

    async def law() -> None:
        async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
            await World(ASKING, journal).begin()  # type: ignore[arg-type]
            first = await asked(journal)
        async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
            assert await asked(journal) == first == await asked(journal)
        assert [one[1] for one in first] == [("agent", f"0.{n}") for n in (0, 2, 3)]

    anyio.run(law)


@given(scripts(kinds=("ok", "ask", "gated", "twice")), st.data())
def test_answers_in_drawn_portions_end_every_run(answers, data):
    async def law() -> None:
        world = World(answers)
        await world.begin()
        while (await world.journal.run("r")).status != "done":
            asked = await world.open_questions()
            places = st.sets(st.integers(0, len(asked) - 1), min_size=1)
            chosen = [asked[place] for place in data.draw(places)]
            before = {one.id for one in asked}
            result = await world.resume("r", {one.id: decided(one) for one in chosen})
            kept = before - {one.id for one in chosen}
            assert kept <= {one.id for one in result.interrupts}
        messages = (await world.agent().get_state("t")).values["messages"]
        assert_paired(messages)
        assert isinstance(messages[0], HumanMessage)
        assert set(world.ran.values()) <= {1}

    anyio.run(law)
