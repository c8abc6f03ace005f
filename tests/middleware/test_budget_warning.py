"""An agent is told once in a run that most of a budget is gone, before it must come to an end."""

import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Usage
from deep_agent_mcp.harness.middleware.repeat_guard import BudgetWarningMiddleware
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def step() -> str:
    """Do a step."""
    return "did"


def spending(*tokens: int, last="done") -> Turns:
    """A model whose answers cost so many tokens each."""
    turns = [says("", call(str(n), "step")) for n in range(len(tokens))]
    return Turns(
        *(
            AIMessage(one.content, usage=Usage(cost))
            for one, cost in zip(turns, tokens, strict=True)
        ),
        AIMessage(last, usage=Usage(0)),  # type: ignore[arg-type]
    )


def warnings(result) -> list[str]:
    return [
        one.text
        for one in result.state["messages"]
        if isinstance(one, HumanMessage) and one.source == "budget_warning"
    ]


async def run(model, limits, **options):
    agent = create_agent(model, [step], middleware=[BudgetWarningMiddleware()])
    return await agent.ainvoke("go", options=RunOptions(limits=limits, **options))


async def test_the_model_is_warned_once_then_told_to_wrap_up():
    model = spending(700, 50, 50, 100)
    result = await run(model, Limits(tokens=1_000))
    (warning,) = warnings(result)
    assert warning.startswith("This run has used 75 % of 1,000 tokens. Plan for what is left")
    sources = [one.source for one in result.state["messages"] if isinstance(one, HumanMessage)]
    assert sources == [None, "budget_warning", "limits"]
    assert model.requests[2].messages[-1].text == warning
    assert result.run.answer == "done"


async def test_a_run_that_uses_little_hears_nothing():
    assert warnings(await run(spending(100, 100), Limits(tokens=1_000))) == []


async def test_readers_of_the_stream_are_warned_too():
    seen = []
    await run(spending(800), Limits(tokens=1_000), emit=seen.append, modes=["custom"])
    (event,) = seen
    assert event.data["data"]["event"] == "budget_warning"
    assert "80 % of 1,000 tokens" in event.data["data"]["text"]


async def test_the_next_run_of_the_thread_is_warned_anew():
    agent = create_agent(
        Turns(*spending(800).turns, *spending(800).turns),
        [step],
        middleware=[BudgetWarningMiddleware()],
    )
    options = RunOptions(limits=Limits(tokens=1_000))
    for count in (1, 2):
        result = await agent.ainvoke("go", thread_id="t", options=options)
        assert len(warnings(result)) == count


async def test_a_resumed_run_is_not_warned_again(tmp_path):
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return runtime.interrupt("sure?")

    first, second, last = spending(800, 10).turns
    asks = says("", call("a", "ask"))
    options = RunOptions(limits=Limits(tokens=1_000))

    def build(journal):
        return create_agent(
            Turns(first, asks, second, last),
            [step, ask],
            middleware=[BudgetWarningMiddleware()],
            checkpointer=journal,
        )

    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        waiting = await build(journal).ainvoke("go", options=options)
        (question,) = waiting.interrupts
    async with SqliteCheckpointer(path) as journal:
        agent = build(journal)
        result = await agent.aresume(waiting.run.id, {question.id: "yes"}, options=options)
    assert result.run.answer == "done"
    assert len(warnings(result)) == 1
