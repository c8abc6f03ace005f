"""The usage ledger: who used which tokens, over subagents, pauses and new processes."""

from dataclasses import replace

import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.limits.prices import Price
from deep_agent_mcp.harness.limits.usage import Ledger, LedgerLine
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import Usage
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


def said(message, model, **tokens):
    return replace(message, model=model, usage=Usage(**tokens))


def family(journal):
    child = create_agent(
        Turns(said(says("found"), "test:small", input_tokens=100, output_tokens=10)),
        [],
        name="child",
        checkpointer=journal,
    )

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        return ToolResult((await runtime.run_subagent(child, description)).text)

    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return str(runtime.interrupt("Sure?"))

    turns = (
        said(
            says("", call("1", "task", description="a"), call("2", "task", description="b")),
            "test:large",
            input_tokens=10,
            cache_read_tokens=90,
        ),
        said(says("", call("3", "ask")), "test:large", input_tokens=20, cache_read_tokens=180),
        says("done"),
    )
    return create_agent(Turns(*turns), [task, ask], name="main", checkpointer=journal)


async def test_the_ledger_has_a_line_for_each_agent_and_model_and_survives_a_pause():
    journal = MemoryCheckpointer()
    prices = {"test:small": Price(1.0, 2.0)}
    options = RunOptions(limits=Limits(prices=prices))
    paused = await family(journal).ainvoke("go", options=options)
    (question,) = paused.interrupts
    done = await family(journal).aresume(paused.run.id, {question.id: "yes"}, options=options)
    large, small, silent = done.used.ledger
    assert (large.agent, large.model, large.calls) == ("main", "test:large", 2)
    assert large.usage == Usage(input_tokens=30, cache_read_tokens=270)
    assert large.cache_hit_rate == 0.9
    assert small == LedgerLine(
        "main/child", "test:small", 2, Usage(200, 20), pytest.approx(0.00024)
    )
    assert (silent.agent, silent.model, silent.calls, silent.usage) == (
        "main", "turns:test", 1, Usage()
    )  # fmt: skip
    assert sum((one.usage for one in done.used.ledger), Usage()) == done.used.usage


async def test_the_end_of_a_model_call_tells_its_tokens():
    heard: list[Event] = []
    model = Turns(said(says("hi"), "test:large", input_tokens=5, output_tokens=2))
    options = RunOptions(emit=heard.append, modes=("tasks",))
    await create_agent(model, []).ainvoke("go", options=options)
    ended = next(one for one in heard if one.data["event"] == "model_end")
    assert ended.data["usage"] == {
        "input_tokens": 5,
        "output_tokens": 2,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }


def test_a_ledger_goes_on_from_its_lines():
    ledger = Ledger([LedgerLine("main", "m", 1, Usage(1), 0.5)])
    ledger.add("main", "m", Usage(2), 0.25)
    ledger.add("other", "m", Usage(3), 0.0)
    assert list(ledger.lines) == [
        LedgerLine("main", "m", 2, Usage(3), 0.75),
        LedgerLine("other", "m", 1, Usage(3), 0.0),
    ]
    assert LedgerLine("a", "m").cache_hit_rate == 0.0
