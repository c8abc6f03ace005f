"""Events in the journal: what a client that was away reads."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.loop.run.commit_buffer import Durability
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def step(name: str, runtime: ToolRuntime) -> str:
    """Do a step."""
    runtime.stream_writer({"half": name})
    return f"did {name}"


@tool
async def ask(runtime: ToolRuntime) -> str:
    """Ask."""
    return f"they said {runtime.interrupt('Sure?')}"


TURNS = (
    says("", call("1", "step", name="a"), call("2", "step", name="b")),
    says("", call("3", "ask")),
    says("done"),
)


def agent_on(journal: Checkpointer) -> Agent:
    return create_agent(Turns(*TURNS), [step, ask], checkpointer=journal)


async def log(agent: Agent, run_id: str) -> list[str]:
    events = await agent.events(run_id)
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    return [
        f"{one.data.get('event', one.mode)} {one.data.get('tool_call_id', '')}".strip()
        for one in events
    ]


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_the_log_goes_on_over_a_pause_and_a_new_process(
    durability: Durability, tmp_path: Path
):
    options = RunOptions(log_events=True, durability=durability)
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        paused = await agent_on(journal).ainvoke("go", thread_id="t", options=options)
        run_id = paused.run.id
        first = await log(agent_on(journal), run_id)
    assert [one for one in first if "1" not in one and "2" not in one] == [
        "model_start", "model_end", "custom", "custom",
        "model_start", "model_end", "tool_start 3", "tool_end 3",
    ]  # fmt: skip
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        answers = {paused.interrupts[0].id: "yes"}
        agent = agent_on(journal)
        await agent.aresume(run_id, answers, options=options)
        whole = await log(agent, run_id)
        assert whole[: len(first)] == first
        assert whole[len(first) :] == ["tool_start 3", "tool_end 3", "model_start", "model_end"]
        missed = await agent.events(run_id, after=len(first), limit=2)
        assert [one.data.get("event") for one in missed] == ["tool_start", "tool_end"]
        assert missed[0].path == ("agent", "3")


async def test_a_call_that_ended_is_in_the_log_once_its_result_is_in_the_journal():
    journal = MemoryCheckpointer()
    entered = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        await anyio.sleep_forever()
        return ""

    turns = (says("", call("1", "step", name="a"), call("2", "hang")), says("done"))
    agent = create_agent(Turns(*turns), [step, hang], checkpointer=journal)
    options = RunOptions(log_events=True, run_id="run_1")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t", options=options))
            await entered.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert (await agent.get_state("t")).finished_calls == ("1",)
    assert "tool_end 1" in await log(agent, "run_1")
    assert "tool_end 2" not in await log(agent, "run_1")


async def test_long_values_are_cut_and_the_whole_ones_stay_in_the_thread():
    journal = MemoryCheckpointer()
    deep: dict[str, object] = {"end": 1}
    for _ in range(20):
        deep = {"more": deep}

    @tool
    async def write(text: str, items: list[int], tree: dict[str, object]) -> str:
        """Write."""
        return "ok"

    long = call("1", "write", text="x" * 10_000, items=list(range(1_000)), tree=deep)
    agent = create_agent(Turns(says("", long), says("done")), [write], checkpointer=journal)
    options = RunOptions(log_events=True, run_id="run_1")
    result = await agent.ainvoke("go", thread_id="t", options=options)
    begun = next(
        one for one in await agent.events("run_1") if one.data.get("event") == "tool_start"
    )
    args = begun.data["args"]
    assert isinstance(args, dict)
    assert args["text"] == "x" * 2_000 + " … (8000 more characters)"
    assert args["items"] == list(range(100))
    assert str(args["tree"]).count("more") < 10
    stored = result.state["messages"][1].tool_calls[0].args
    assert stored["text"] == "x" * 10_000


async def test_nothing_is_kept_unless_asked_for():
    agent = create_agent(Turns(*TURNS[2:]), [])
    result = await agent.ainvoke("go")
    assert await agent.events(result.run.id) == []


async def test_listeners_hear_the_same_events():
    heard: list[Event] = []
    agent = create_agent(Turns(TURNS[0], says("done")), [step])
    options = RunOptions(log_events=True, emit=heard.append, modes=("tasks", "custom"))
    result = await agent.ainvoke("go", options=options)
    kept = await agent.events(result.run.id)

    def facts(events: list[tuple[str, tuple[str, ...], dict[str, object]]]) -> list[str]:
        return sorted(map(repr, events))

    assert facts([(one.mode, one.path, one.data) for one in kept]) == facts(  # type: ignore[misc]
        [(one.mode, one.path, one.data) for one in heard]  # type: ignore[misc]
    )


async def test_the_end_of_a_call_says_what_became_of_it():
    @tool
    async def bad() -> ToolResult:
        """Write what is not declared."""
        return ToolResult("Done.", update={"nokey": 1})

    agent = create_agent(Turns(says("", call("1", "bad")), says("ok")), [bad])
    result = await agent.ainvoke("go", options=RunOptions(log_events=True))
    ended = next(
        one for one in await agent.events(result.run.id) if one.data.get("event") == "tool_end"
    )
    assert ended.data["status"] == result.state["messages"][2].status == "error"
