"""`durability`: when steps are stored, and what never waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from deep_agent_mcp.harness.loop.run.commit_buffer import Durability
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

DURABILITIES: tuple[Durability, ...] = get_args(Durability)
LATE: tuple[Durability, ...] = ("async", "exit")


class Disk(MemoryCheckpointer):
    """A journal whose commits are counted and can be held or refused."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self.gate: anyio.Event | None = None
        self.full = False
        self.waiting = anyio.Event()

    async def commit(self, batch: Batch) -> None:
        if self.full:
            raise CheckpointError("the disk is full. Nothing was stored.")
        if (
            self.gate is not None
            and batch.checkpoints[:1]
            and batch.checkpoints[0].source != "input"
        ):
            self.waiting.set()
            await self.gate.wait()
        await super().commit(batch)
        self.batches.append(batch)

    @property
    def steps(self) -> list[str]:
        return [one.author for batch in self.batches for one in batch.checkpoints]


@tool
async def step(name: str) -> str:
    """Do a step."""
    return f"did {name}"


TURNS = (says("", call("1", "step", name="a")), says("", call("2", "step", name="b")), says("done"))


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_run_ends_the_same_whatever_its_durability(durability: Durability, tmp_path: Path):
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        agent = create_agent(Turns(*TURNS), [step], checkpointer=journal)
        options = RunOptions(durability=durability)
        result = await agent.ainvoke("go", thread_id="t", options=options)
        history = await journal.history("t")
        again = create_agent(Turns(*TURNS), [step], checkpointer=journal)
        state = await again.get_state("t")
        run = await journal.run(result.run.id)
    assert [one.author for one in reversed(history)] == [
        "input", "model", "tools", "model", "tools", "model"
    ]  # fmt: skip
    assert state.values["messages"] == result.state["messages"]
    assert run is not None
    assert (run.status, run.answer) == ("done", "done")


async def test_exit_stores_the_input_at_once_and_the_steps_at_the_end():
    journal = Disk()
    seen: list[list[str]] = []

    def look(answer: Any):
        def turn(_: object) -> Any:
            seen.append(list(journal.steps))
            return answer

        return turn

    agent = create_agent(Turns(*map(look, TURNS)), [step], checkpointer=journal)
    await agent.ainvoke("go", thread_id="t", options=RunOptions(durability="exit"))
    assert seen == [["input"], ["input"], ["input"]]
    assert len(journal.batches) == 2
    assert journal.steps == ["input", "model", "tools", "model", "tools", "model"]


async def test_async_runs_the_tool_while_the_answer_is_stored():
    journal = Disk()
    journal.gate = anyio.Event()
    ran = anyio.Event()

    @tool
    async def act() -> str:
        """Act."""
        ran.set()
        return "acted"

    agent = create_agent(
        Turns(says("", call("1", "act")), says("done")), [act], checkpointer=journal
    )
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: agent.ainvoke("go", thread_id="t", options=RunOptions(durability="async"))
            )
            await ran.wait()
            assert journal.steps == ["input"]
            journal.gate.set()
    assert journal.steps[-1] == "model"


@pytest.mark.parametrize("durability", LATE)
async def test_what_a_file_held_is_stored_before_it_changes_with_all_steps_before(
    durability: Durability, tmp_path: Path
):
    (tmp_path / "a.txt").write_text("old")
    journal = Disk()
    found: list[Any] = []
    write = call("1", "write_file", path="/a.txt", content="new")
    agent = create_deep_agent(
        Turns(says("", write), says("done")),
        backend=DirectoryBackend(tmp_path),
        checkpointer=journal,
    )
    commit = journal.commit

    async def watching(batch: Batch) -> None:
        await commit(batch)
        if batch.file_changes:
            found.append((journal.steps[:], (tmp_path / "a.txt").read_text()))

    journal.commit = watching  # type: ignore[method-assign]
    await agent.ainvoke("go", thread_id="t", options=RunOptions(durability=durability))
    assert found == [(["input", "model"], "old")]
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("durability", LATE)
async def test_that_a_once_call_begins_is_stored_before_it_does(durability: Durability):
    journal = Disk()
    stored: list[list[str]] = []

    @tool(once=True)
    async def pay() -> str:
        """Pay."""
        stored.append(list(journal.steps))
        return "paid"

    agent = create_agent(
        Turns(says("", call("1", "pay")), says("done")), [pay], checkpointer=journal
    )
    await agent.ainvoke("go", thread_id="t", options=RunOptions(durability=durability))
    assert stored == [["input", "model"]]


@pytest.mark.parametrize("durability", LATE)
async def test_a_question_is_stored_with_all_steps_and_answered_elsewhere(durability: Durability):
    journal = Disk()

    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return f"they said {runtime.interrupt('Sure?')}"

    turns = (says("", call("1", "step", name="a"), call("2", "ask")), says("done"))
    options = RunOptions(durability=durability)
    agent = create_agent(Turns(*turns), [step, ask], checkpointer=journal)
    paused = await agent.ainvoke("go", thread_id="t", options=options)
    assert paused.run.status == "needs_approval"
    other = create_agent(Turns(*turns), [step, ask], checkpointer=journal)
    assert (await other.get_state("t")).finished_calls == ("1",)
    done = await other.aresume(paused.run.id, {paused.interrupts[0].id: "yes"}, options=options)
    texts = [one.text for one in done.state["messages"] if isinstance(one, ToolMessage)]
    assert texts == ["did a", "they said yes"]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_subagents_bring_their_results_home(durability: Durability):
    journal = MemoryCheckpointer()
    child = create_agent(
        Turns(says("", call("c", "step", name="x")), says("found it")), [step],
        checkpointer=journal, name="child",
    )  # fmt: skip

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        return ToolResult(result.text, writes=result.writes)

    turns = (
        says("", call("1", "task", description="a"), call("2", "task", description="b")),
        says("done"),
    )
    agent = create_agent(Turns(*turns), [task], checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t", options=RunOptions(durability=durability))
    texts = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert texts == ["found it", "found it"]
    assert len(await journal.namespaces("t")) == 3
    for ns in await journal.namespaces("t"):
        assert [one.step for one in await journal.history("t", ns)][-1] == 0


@pytest.mark.parametrize("durability", LATE)
async def test_a_full_disk_fails_the_run_and_the_next_try_goes_on(durability: Durability):
    journal = Disk()

    @tool
    async def fill() -> str:
        """Fill the disk."""
        journal.full = True
        return "full"

    agent = create_agent(
        Turns(says("", call("1", "fill")), says("done")), [fill], checkpointer=journal
    )
    options = RunOptions(durability=durability, run_id="run_1")
    with pytest.raises(CheckpointError, match="disk is full"):
        await agent.ainvoke("go", thread_id="t", options=options)
    journal.full = False
    run = await journal.run("run_1")
    assert run is not None
    assert run.status == "running"
    fresh = create_agent(
        Turns(says("", call("1", "step", name="a")), says("done")), [step], checkpointer=journal
    )
    result = await fresh.aresume("run_1")
    assert result.run.status == "done"


async def test_a_disk_that_is_full_for_a_moment_loses_nothing():
    @tool
    async def fill() -> str:
        """Fill the disk until the run has failed."""
        journal.full = True
        return "full"

    class Freeing(Disk):
        async def commit(self, batch: Batch) -> None:
            if any(run.status == "failed" for run in batch.runs):
                self.full = False
            await super().commit(batch)

    journal = Freeing()
    agent = create_agent(
        Turns(says("", call("1", "fill")), says("done")), [fill], checkpointer=journal
    )
    options = RunOptions(durability="exit")
    result = await agent.ainvoke("go", thread_id="t", options=options)
    assert result.run.status == "failed"
    assert "disk is full" in str(result.error)
    assert journal.steps == ["input", "model", "tools", "model"]


@pytest.mark.parametrize("durability", LATE)
async def test_a_thread_that_somebody_else_moved_is_not_overwritten(durability: Durability):
    journal = MemoryCheckpointer()

    @tool
    async def meddle() -> str:
        """Move the thread from elsewhere."""
        other = create_agent(Turns(says("mine")), [], checkpointer=journal)
        await other.update_state("t", {"messages": [says("theirs")]})
        return "ok"

    agent = create_agent(
        Turns(says("", call("1", "meddle")), says("done")), [meddle], checkpointer=journal
    )
    result = await agent.ainvoke("go", thread_id="t", options=RunOptions(durability=durability))
    assert result.run.status == "failed"
    assert isinstance(result.error, StaleThread)
    reader = create_agent(Turns(says("")), [], checkpointer=journal)
    messages = (await reader.get_state("t")).values["messages"]
    assert messages[-1].text == "theirs"


@pytest.mark.parametrize("durability", LATE)
async def test_a_run_that_is_torn_down_leaves_its_steps_in_the_journal(durability: Durability):
    journal = Disk()
    entered = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        await anyio.sleep_forever()
        return ""

    turns = (says("", call("1", "step", name="a")), says("", call("2", "hang")), says("done"))
    agent = create_agent(Turns(*turns), [step, hang], checkpointer=journal)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: agent.ainvoke(
                    "go", thread_id="t", options=RunOptions(durability=durability)
                )
            )
            await entered.wait()
            group.cancel_scope.cancel()
    assert journal.steps == ["input", "model", "tools", "model"]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_driven_call_is_stored_before_it_is_answered(durability: Durability):
    journal = Disk()
    agent = create_agent(Turns(), [step], checkpointer=journal)
    options = RunOptions(durability=durability)
    result = await agent.adrive([call("1", "step", name="a")], thread_id="t", options=options)
    assert result.results[0].text == "did a"
    reader = create_agent(Turns(), [step], checkpointer=journal)
    assert (await reader.get_state("t")).values["messages"][-1].text == "did a"


@pytest.mark.parametrize("durability", LATE)
async def test_steps_that_were_never_stored_are_not_remembered(durability: Durability):
    journal = Disk()

    @tool
    async def fill() -> str:
        """Fill the disk."""
        journal.full = True
        return "full"

    turns = Turns(says("", call("1", "fill")), says("never stored"))
    mine = create_agent(turns, [fill], checkpointer=journal)
    options = RunOptions(durability=durability, run_id="run_1")
    with pytest.raises(CheckpointError):
        await mine.ainvoke("go", thread_id="t", options=options)
    journal.full = False
    other = create_agent(Turns(says("theirs")), [fill], checkpointer=journal)
    if (await journal.history("t"))[0].author == "input":
        await other.aresume("run_1")
    stored = (await other.get_state("t")).values["messages"]
    assert (await mine.get_state("t")).values["messages"] == stored
