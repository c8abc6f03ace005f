"""However a run ends, none of its spans stays open and none is kept."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import taken_over
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.middleware import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.telemetry import TracedCheckpointer
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.telemetry.support import Recorded, attributes_of

pytestmark = pytest.mark.anyio


class Broken(AgentMiddleware):
    """Raises in one hook."""

    def __init__(self, hook: str) -> None:
        async def fail(*_: Any) -> Any:
            raise RuntimeError("a mistake")

        setattr(self, hook, fail)


def nothing_is_open(recorded: Recorded) -> bool:
    spans = recorded.middleware.spans
    active = sum(value for _, value in recorded.points("deep_agent.runs.active"))
    return not spans._legs and not spans._places and active == 0


HOOKS = [
    "before_agent",
    "before_model",
    "after_model",
    "after_agent",
    "wrap_model_call",
    "wrap_tool_call",
    "redact",
    "evict",
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_raises_leaves_nothing_open(hook: str, last: bool):
    recorded = Recorded()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    order = [recorded.middleware, Broken(hook)]
    agent = create_agent(
        Turns(says("", call("c1", "look")), says("done")),
        [look],
        middleware=order if last else order[::-1],
        checkpointer=TracedCheckpointer(MemoryCheckpointer(), recorded.middleware),
    )
    assert (await agent.ainvoke("go")).run.status == "failed"
    assert nothing_is_open(recorded)


async def test_a_stream_that_nobody_reads_to_its_end_leaves_nothing_open():
    recorded = Recorded()
    model = Turns(says("", call("c1", "look")), says("done"))

    @tool
    async def look() -> str:
        """Look."""
        await anyio.sleep_forever()
        return "never"

    agent = create_agent(model, [look], middleware=[recorded.middleware])
    stream = agent.astream("go", modes=["messages"])  # type: ignore[arg-type]
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]
    assert nothing_is_open(recorded)


async def test_a_run_out_of_time_leaves_nothing_open():
    recorded = Recorded()
    model = Turns(says("never"))
    model.gate = anyio.Event()
    agent = create_agent(
        model,
        middleware=[recorded.middleware],
        checkpointer=TracedCheckpointer(MemoryCheckpointer(), recorded.middleware),
    )
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(seconds=0.05)))
    assert result.run.status == "failed"
    assert nothing_is_open(recorded)


@pytest.mark.parametrize("status", ["done", "needs_approval", "cancelled", "failed"])
async def test_a_traced_journal_ends_runs_of_agents_without_telemetry_too(status: str):
    recorded = Recorded()
    model = Turns(says("", call("c1", "look")), says("done"))

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    control = RunControl()
    if status == "cancelled":
        model.gate = anyio.Event()
    agent = create_agent(
        model,
        [look],
        middleware={
            "needs_approval": [HumanInTheLoopMiddleware({"look": True})],
            "failed": [Broken("after_model")],
        }.get(status, []),
        checkpointer=TracedCheckpointer(MemoryCheckpointer(), recorded.middleware),
    )

    async def cancel() -> None:
        await model.asked.wait()
        control.cancel("a person")

    async with anyio.create_task_group() as group:
        if status == "cancelled":
            group.start_soon(cancel)
        result = await agent.ainvoke("go", options=RunOptions(control=control))
    assert result.run.status == status
    run = recorded.one("invoke_agent agent")
    assert attributes_of(run)["deep_agent.run.status"] == status
    assert nothing_is_open(recorded)


async def test_a_run_that_is_answered_here_and_carried_elsewhere_leaves_nothing_open():
    here, elsewhere, store = Recorded(), Recorded(), MemoryCheckpointer()
    journal = TracedCheckpointer(store, here.middleware)

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def agent(recorded: Recorded) -> Agent:
        return create_agent(
            Turns(says("", call("c1", "look")), says("done")),
            [look],
            middleware=[recorded.middleware, HumanInTheLoopMiddleware({"look": True})],
            checkpointer=TracedCheckpointer(store, recorded.middleware),
        )

    asked = await agent(here).ainvoke("go")
    await journal.commit(taken_over(asked.run, status="running", owner=None))
    assert nothing_is_open(here)
    approve = {asked.interrupts[0].id: {"decision": "approve"}}
    done = await agent(elsewhere).aresume(asked.run.id, approve)
    assert done.run.status == "done"
    assert nothing_is_open(here)
    assert nothing_is_open(elsewhere)
    assert len(elsewhere.named("invoke_agent agent")) == 1
