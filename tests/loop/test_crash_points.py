"""A process that dies at any commit: the next one finishes the run with the same transcript."""

import json
from collections import Counter

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, TaskWrites
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Death(BaseException):
    """The process is gone."""


class Mortal(MemoryCheckpointer):
    """A journal whose process dies at a given commit, before or after it is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.dies_at = -1
        self.stored_first = False
        self.finished: set[str] = set()

    async def commit(self, batch: Batch) -> None:
        self.count += 1
        fatal = self.count == self.dies_at
        if fatal and not self.stored_first:
            raise Death
        await super().commit(batch)
        self.finished |= {text for write in batch.writes for text in results_of(write)}
        if fatal:
            raise Death


def results_of(task: TaskWrites) -> list[str]:
    """Return the texts of tool results among a task's writes."""
    written = [json.loads(one.value) for one in task.writes if one.channel == "messages"]
    messages = [message for messages in written for message in messages]
    return [message["content"] for message in messages if message["type"] == "tool"]


def build(journal: Mortal, ran: Counter[str]) -> Agent:
    @tool
    async def note(text: str) -> str:
        """Note."""
        ran[text] += 1
        return text

    child = create_agent(
        Turns(says("", call("c1", "note", text="inner 1"), call("c2", "note", text="inner 2")),
              says("", call("c3", "note", text="inner 3")), says("report")),
        [note], checkpointer=journal, name="child", policy=Policy((Rule("ask", "nothing"),)),
    )  # fmt: skip

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        return ToolResult(result.text, writes=result.writes)

    @tool
    async def risky(text: str) -> str:
        """Do something that needs approval."""
        ran[text] += 1
        return text

    return create_agent(
        Turns(
            says("", call("1", "note", text="a"), call("2", "task", description="x"),
                 call("3", "risky", text="b")),
            says("", call("4", "note", text="c")),
            says("the end"),
        ),
        [note, task, risky], checkpointer=journal, policy=Policy((Rule("ask", "risky"),)),
    )  # fmt: skip


async def live(journal: Mortal, ran: Counter[str]) -> None:
    """Begin the run or go on with it, as a server does that is started, until it is done."""
    agent = build(journal, ran)
    run = await journal.run("run_1")
    if run is None:
        await agent.ainvoke("go", thread_id="t", options=RunOptions(run_id="run_1"))
    for _ in range(5):
        run = await journal.run("run_1")
        assert run is not None
        if run.status == "done":
            return
        waiting = [one for one in await journal.interrupts("run_1") if not one.answered]
        answers = {one.id: {"decision": "approve"} for one in waiting}
        await agent.aresume("run_1", answers)


async def outlive(journal: Mortal, ran: Counter[str]) -> tuple[list[str], set[str]]:
    """Live until done, once more after a death.

    Returns the transcript, and what had finished before the death but ran again after it.
    """
    repeated: set[str] = set()
    for _ in range(2):
        before, finished = ran.copy(), set(journal.finished)
        try:
            await live(journal, ran)
        except (Death, BaseExceptionGroup) as end:
            assert isinstance(end, Death) or end.subgroup(Death) is not None
            journal.dies_at = -1
        else:
            repeated = {name for name in finished & set(ran) if ran[name] > before[name]}
            break
    state = await build(journal, ran).get_state("t")
    return [f"{type(one).__name__}: {one.text}" for one in state.values["messages"]], repeated


async def test_a_death_at_any_commit_changes_nothing_but_what_was_unfinished():
    calm, once = Mortal(), Counter[str]()
    expected, _ = await outlive(calm, once)
    assert expected[-1] == "AIMessage: the end"
    assert once == Counter(["a", "b", "c", "inner 1", "inner 2", "inner 3"])
    assert calm.finished == {*once, "report"}
    assert calm.count > 10
    for dies_at in range(1, calm.count + 1):
        for stored_first in (False, True):
            journal, ran = Mortal(), Counter[str]()
            journal.dies_at, journal.stored_first = dies_at, stored_first
            with anyio.fail_after(5):
                transcript, repeated = await outlive(journal, ran)
            where = f"commit {dies_at}, {'after' if stored_first else 'before'} it was stored"
            assert journal.dies_at == -1, where
            assert transcript == expected, where
            assert repeated == set(), where
            assert set(ran) == set(once), where
