"""Bounds for all runs of a thread: warned of, wrapped up, met with a typed reason."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.limits.limits import LimitReached, Limits, Meter, Used
from deep_agent_mcp.harness.limits.prices import Price
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock, Usage
from deep_agent_mcp.harness.middleware.repeat_guard import BudgetWarningMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

PRICES = {"turns:": Price(input=1_000_000.0, output=1_000_000.0)}
"""A dollar a token."""


def spends(tokens: int, text: str = "hi") -> AIMessage:
    return AIMessage((TextBlock(text),), usage=Usage(output_tokens=tokens))


def agent_of(model: Turns, journal: Checkpointer | None = None, **limits: object) -> Agent:
    return create_agent(
        model,
        middleware=[BudgetWarningMiddleware()],
        checkpointer=journal or MemoryCheckpointer(),
        limits=Limits(prices=PRICES, **limits),  # type: ignore[arg-type]
    )


def told(request: ChatRequest) -> str:
    sources = ("limits", "budget_warning")
    notes = [one for one in request.messages if isinstance(one, HumanMessage)]
    return "\n".join(one.text for one in notes if one.source in sources)


@pytest.mark.parametrize("bound", ["thread_tokens", "thread_cost"])
async def test_runs_of_a_thread_share_a_budget_that_warns_wraps_up_and_ends(
    bound: str, tmp_path: Path
) -> None:
    model = Turns(*map(spends, (400, 360, 160, 90, 50)))
    path = tmp_path / "journal.db"
    statuses: list[str] = []
    for number in range(5):
        async with SqliteCheckpointer(path) as journal:  # another process each time
            agent = agent_of(model, journal, **{bound: 1_000})
            result = await agent.ainvoke(f"turn {number}", thread_id="t")
            statuses.append(result.stop_reason)
    assert statuses == ["done", "done", "done", "done", bound]
    assert isinstance(result.error, LimitReached)
    assert "1,000" in str(result.error) and "1,010 used" in str(result.error)
    assert "in a new thread" in str(result.error)
    assert "76 % of the 1,000" in told(model.requests[2])
    assert "92 % of the 1,000" in told(model.requests[3])
    assert model.requests[3].tool_choice == "none"
    assert len(model.requests) == 4, "past it no model is asked"
    other = await agent_of(model, **{bound: 1_000}).ainvoke("go", thread_id="another")
    assert other.run.status == "done"


async def test_calls_are_counted_with_those_of_subagents_and_of_failed_and_stopped_runs() -> None:
    inner = create_agent(Turns(spends(5, "sub")), name="sub")

    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask a subagent."""
        done = await runtime.run_subagent(inner, "do it")
        return str(done)[:20]

    model = Turns(says("", call("c", "ask")), RuntimeError("broken"), says("never"))
    journal = MemoryCheckpointer()
    build = {"checkpointer": journal, "limits": Limits(thread_model_calls=3)}
    agent = create_agent(model, [ask], **build)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="broken"):
        await agent.ainvoke("go", thread_id="t")
    met = await agent.ainvoke("again", thread_id="t")
    assert met.stop_reason == "thread_model_calls"
    assert "3 model calls on the thread allowed, 3 used" in str(met.error)


async def test_a_raised_bound_lets_the_run_go_on_and_counts_it_once() -> None:
    model, journal = Turns(spends(600), spends(600), spends(1), spends(1)), MemoryCheckpointer()
    narrow = agent_of(model, journal, thread_tokens=1_000)
    for _ in range(2):
        await narrow.ainvoke("go", thread_id="t")
    met = await narrow.ainvoke("go", thread_id="t")
    assert met.stop_reason == "thread_tokens"
    wide = RunOptions(limits=Limits(thread_tokens=100_000))
    done = await agent_of(model, journal).aresume(met.run.id, options=wide)
    assert (done.run.status, done.used.tokens) == ("done", 1)


async def test_runs_that_queue_for_the_thread_see_what_the_one_before_them_used() -> None:
    model = Turns(spends(600), spends(600), spends(600))
    agent = agent_of(model, thread_tokens=1_000)
    options = RunOptions(when_busy="queue")
    reasons: list[str] = []

    async def one() -> None:
        reasons.append((await agent.ainvoke("go", thread_id="t", options=options)).stop_reason)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert sorted(reasons) == ["done", "done", "thread_tokens"]


async def test_a_thread_of_very_many_runs_is_summed_up_once() -> None:
    class Counting(MemoryCheckpointer):
        loaded = 0

        async def find_runs(self, **filters: Any) -> Sequence[Run]:
            found = await super().find_runs(**filters)
            self.loaded += len(found)
            return found

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    journal = Counting()
    model = Turns(*[spends(1) for _ in range(40)])
    plain = create_agent(model, [look], checkpointer=journal)
    for number in range(30):
        await plain.adrive([call(f"c{number}", "look")], thread_id="t")
        await plain.ainvoke("go", thread_id="t")
    bounded = create_agent(model, [look], checkpointer=journal, limits=Limits(thread_tokens=33))
    journal.loaded = 0
    reasons: list[str] = []
    for number in range(5):
        driven = await bounded.adrive([call(f"d{number}", "look")], thread_id="t")
        assert driven.run.status == "done"
        reasons.append((await bounded.ainvoke("go", thread_id="t")).stop_reason)
    assert reasons == ["done", "done", "done", "thread_tokens", "thread_tokens"]
    assert journal.loaded < 60 + 10 * 11, "all runs once, then a few each time"


def test_what_is_left_is_the_less_of_the_runs_and_the_threads() -> None:
    earlier = Used(usage=Usage(input_tokens=900), cost=1.0)
    limits = Limits(tokens=500, thread_tokens=1_000, cost=0.5, thread_cost=9.0)
    left = Meter(limits, earlier=earlier).remaining()
    assert (left.tokens, left.cost) == (100, 0.5)
    assert Meter(Limits(), earlier=earlier).remaining().tokens is None


@pytest.mark.parametrize("name", ["thread_tokens", "thread_cost", "thread_model_calls"])
def test_a_bound_of_a_thread_is_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})
