"""`run_stopped`: told of every end and pause of a run, so that nothing outlives it."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Told(AgentMiddleware):
    def __init__(self, *, fails: bool = False) -> None:
        self.runs: list[tuple[str, str]] = []
        self._fails = fails

    async def run_stopped(self, run: Run) -> None:
        self.runs.append((run.id, run.status))
        if self._fails:
            raise OSError("no such process")


@tool
async def ask(runtime: ToolRuntime) -> str:
    """Ask."""
    return str(runtime.interrupt("Sure?"))


def statuses(told: Told) -> list[str]:
    return [status for _, status in told.runs]


async def test_it_is_told_of_a_pause_and_of_the_end():
    told = Told()
    turns = Turns(says("", call("1", "ask")), says("done"))
    agent = create_agent(turns, [ask], middleware=[told])
    waiting = await agent.ainvoke("go")
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: "yes"})
    assert told.runs == [(waiting.run.id, "needs_approval"), (waiting.run.id, "done")]


async def test_it_is_told_of_a_failure():
    told = Told()
    agent = create_agent(Turns(ModelError("no")), [], middleware=[told])
    await agent.ainvoke("go")
    assert statuses(told) == ["failed"]


@pytest.mark.parametrize("torn_down", [False, True])
async def test_it_is_told_of_a_run_that_is_cancelled_or_let_go(torn_down: bool):
    told, entered, control = Told(), anyio.Event(), RunControl()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        await anyio.sleep_forever()
        return ""

    agent = create_agent(Turns(says("", call("1", "hang"))), [hang], middleware=[told])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            options = RunOptions(control=control)
            group.start_soon(lambda: agent.ainvoke("go", options=options))
            await entered.wait()
            if torn_down:
                group.cancel_scope.cancel()
            else:
                control.cancel("enough")
    assert statuses(told) == ["running" if torn_down else "cancelled"]


async def test_it_is_told_of_a_driven_call():
    told = Told()
    agent = create_agent(Turns(), [ask], middleware=[told])
    await agent.adrive([call("1", "ask")])
    assert statuses(told) == ["needs_approval"]


async def test_middleware_of_a_subagent_is_told_once_when_the_whole_run_stops():
    journal, told, own = MemoryCheckpointer(), Told(), Told()
    child = create_agent(
        Turns(says("found")), [], middleware=[told], name="child", checkpointer=journal
    )

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        assert told.runs == []
        return ToolResult((await runtime.run_subagent(child, description)).text)

    turns = Turns(
        says("", call("1", "task", description="a"), call("2", "task", description="b")),
        says("done"),
    )
    agent = create_agent(turns, [task], middleware=[own], checkpointer=journal)
    result = await agent.ainvoke("go")
    assert told.runs == own.runs == [(result.run.id, "done")]


async def test_what_it_raises_is_logged_and_the_result_stays(caplog: pytest.LogCaptureFixture):
    told: Any = Told(fails=True)
    with caplog.at_level(logging.WARNING):
        result = await create_agent(Turns(says("done")), [], middleware=[told]).ainvoke("go")
    assert result.run.status == "done"
    assert "Told.run_stopped raised" in caplog.text
    assert "no such process" in caplog.text


async def test_one_that_hangs_keeps_nobody_else_from_being_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Hangs(AgentMiddleware):
        async def run_stopped(self, run: Run) -> None:
            await anyio.sleep_forever()

    monkeypatch.setattr("deep_agent_mcp.harness.loop.run_executor._STOP_SECONDS", 0.05)
    told = Told()
    with caplog.at_level(logging.WARNING):
        await create_agent(Turns(says("done")), [], middleware=[Hangs(), told]).ainvoke("go")
    assert statuses(told) == ["done"]
    assert "run_stopped of Hangs took" in caplog.text
    assert "Told" not in caplog.text
