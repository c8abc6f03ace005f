"""Limits of a whole run tree while it works: stops, wrap-up, counting on."""

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.limits.limits import Limits, Meter
from deep_agent_mcp.harness.limits.prices import Price
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage, Usage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import RetryPolicy, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import results

pytestmark = pytest.mark.anyio

AGAIN = RetryPolicy(attempts=3, initial_delay=0)


def within(**limits) -> RunOptions:
    return RunOptions(limits=Limits(**limits))


async def test_no_more_calls_run_at_once_than_allowed_and_each_of_them_runs():
    now, most, ran = [0], [0], []

    @tool
    async def work(n: int) -> str:
        """Work."""
        now[0] += 1
        most[0] = max(most[0], now[0])
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        now[0] -= 1
        ran.append(n)
        return str(n)

    model = Turns(says("", *(call(str(n), "work", n=n) for n in range(9))), says("ok"))
    result = await create_agent(model, [work]).ainvoke("go", options=within(parallel_tool_calls=3))
    assert (most, sorted(ran)) == ([3], list(range(9)))
    assert [one.text for one in results(result)] == [str(n) for n in range(9)]


def family(journal, child_turns, parent_turns, tools=(), depth=1):
    """Return an agent whose `task` tool runs a child; with more depth the child has one too."""
    agents = []

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(agents[-1], description)
        return ToolResult(result.failed or result.text, writes=result.writes)

    child = create_agent(
        Turns(*child_turns), [*tools, task] if depth > 1 else tools, checkpointer=journal,
        name="child",
    )  # fmt: skip
    agents.append(child)
    return create_agent(Turns(*parent_turns), [task], checkpointer=journal, name="main")


def tasks(count: int):
    return says("", *(call(f"p{n}", "task", description=f"part {n}") for n in range(count)))


async def test_an_answer_starts_no_more_subagents_than_allowed_and_the_next_may_again():
    agent = family(MemoryCheckpointer(), [says("report")], [tasks(3), tasks(1), says("ok")])
    result = await agent.ainvoke("go", options=within(fan_out=2))
    texts = [one.text for one in results(result)]
    assert texts.count("report") == 3
    assert sum("one answer may start 2 subagents" in text for text in texts) == 1
    assert result.run.status == "done"


@pytest.mark.parametrize(("depth", "levels"), [(0, 0), (1, 1), (2, 2)])
async def test_subagents_are_nested_no_deeper_than_allowed(depth, levels):
    dig = says("", call("1", "task", description="deeper"))
    journal = MemoryCheckpointer()
    agent = family(journal, [dig, says("bottom")], [dig, says("ok")], depth=2)
    result = await agent.ainvoke("go", options=within(depth=depth))
    assert result.run.status == "done"
    assert result.used.model_calls == 2 * (levels + 1)
    if depth == 0:
        assert "subagents may be nested 0 deep" in results(result)[0].text


STEPS = [says("", call(str(n), "step")) for n in range(20)]


@tool
async def step() -> str:
    """Do a step."""
    return "did"


def priced(answer):
    return type(answer)(answer.content, usage=Usage(input_tokens=90, output_tokens=10))


@pytest.mark.parametrize(
    ("limits", "calls"),
    [
        (Limits(model_calls=4), 4),
        (Limits(tool_calls=3), 4),
        (Limits(tokens=550), 6),
        (Limits(cost=5.5, prices={"turns:test": Price(input=0, output=100_000)}), 6),
    ],
    ids=["model_calls", "tool_calls", "tokens", "cost"],
)
@pytest.mark.parametrize("obeys", [True, False])
async def test_near_a_limit_there_is_one_turn_to_wrap_up_and_past_it_a_typed_reason(
    limits, calls, obeys, request
):
    def turn(number):
        def answer(asked):
            final = asked.tool_choice == "none"
            return priced(says("summing up") if final and obeys else STEPS[number])

        return answer

    model = Turns(*(turn(n) for n in range(20)))
    result = await create_agent(model, [step]).ainvoke("go", options=RunOptions(limits=limits))
    told = [
        one.text
        for one in result.state["messages"]
        if isinstance(one, HumanMessage) and one.source == "limits"
    ]
    assert len(told) == 1
    assert "Give your final answer now and call no more tools" in told[0]
    assert [one.tool_choice for one in model.requests].count("none") == 1
    calls_made = [one.id for m in result.state["messages"] for one in getattr(m, "tool_calls", ())]
    assert [one.tool_call_id for one in results(result)] == calls_made
    if obeys:
        assert (result.run.status, result.run.answer) == ("done", "summing up")
        assert "wrapped up" in str(result.run.reason)
        assert len(model.requests) <= calls
    else:
        assert result.run.status == "failed"
        assert result.stop_reason == request.node.callspec.id.split("-")[1]


async def test_near_the_deadline_the_model_is_told_to_wrap_up():
    clock = [0.0]

    @tool
    async def work() -> str:
        """Take most of the time."""
        clock[0] += 95
        return "did"

    model = Turns(says("", call("1", "work")), says("in time"))
    agent = create_agent(model, [work])

    class Clocked(Meter):
        def __init__(self, limits, used=None, **more):
            super().__init__(limits, used, clock=lambda: clock[0], **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deep_agent_mcp.harness.loop.agent_runs.Meter", Clocked)
        result = await agent.ainvoke("go", options=within(seconds=100))
    assert result.run.answer == "in time"
    assert "95 % of this run's 100 seconds are used up" in str(result.run.reason)
    assert result.used.seconds == 95


async def test_a_subagents_calls_count_and_it_leaves_a_turn_for_its_parent():
    journal = MemoryCheckpointer()
    agent = family(journal, STEPS, [tasks(1), says("made the best of it")], [step])
    result = await agent.ainvoke("go", options=within(model_calls=5))
    assert (result.run.status, result.run.answer) == ("done", "made the best of it")
    assert result.used.model_calls == 5
    assert result.used.tool_calls >= 3


async def test_siblings_below_share_one_budget_of_tool_calls():
    journal = MemoryCheckpointer()
    agent = family(journal, [*STEPS[:2], says("report")], [tasks(3), says("ok")], [step])
    result = await agent.ainvoke("go", options=within(tool_calls=5))
    assert result.used.tool_calls == 5
    assert result.run.status == "done"


async def test_a_resumed_run_goes_on_counting_in_another_process(tmp_path):
    """What was used before the pause counts: model calls, and tool calls of the paused step too."""

    @tool
    async def risky() -> str:
        """Be risky."""
        return "did"

    turns = [
        says("", call("a", "step"), call("b", "step"), call("c", "risky")),
        *STEPS,
    ]
    policy = Policy((Rule("ask", "risky"),))

    def build(journal):
        return create_agent(Turns(*turns), [step, risky], checkpointer=journal, policy=policy)

    limits = within(tool_calls=4, model_calls=9)
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        waiting = await build(journal).ainvoke("go", options=limits)
        assert waiting.run.status == "needs_approval"
        assert waiting.used.tool_calls == 2
        (question,) = waiting.interrupts
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        answers = {question.id: {"decision": "approve"}}
        result = await build(journal).aresume(waiting.run.id, answers, options=limits)
    assert result.stop_reason == "tool_calls"
    assert result.used.tool_calls == 4
    assert result.used.model_calls == 3
    assert sum(isinstance(m, ToolMessage) and m.status == "success" for m in results(result)) == 4
