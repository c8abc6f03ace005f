"""What a driven call costs and promises: one commit, no read, and never an act without a record."""

import gc

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, FileChange
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import StaleThread
from deep_agent_mcp.harness.loop.engine import AgentLoop
from deep_agent_mcp.harness.loop.run.context import RunContext
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Counting(MemoryCheckpointer):
    """A journal that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Batch] = []
        self.loads = 0

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        self.commits.append(batch)

    async def load(self, *args, **kwargs):
        self.loads += 1
        return await super().load(*args, **kwargs)


@tool(open_world=False)
async def note(text: str) -> str:
    """Note."""
    return text


@tool(open_world=False)
async def touch(path: str, runtime: ToolRuntime) -> str:
    """Change a file, recorded first."""
    change = FileChange(runtime.thread_id, runtime.run_id, path, None, "0" * 64)
    await runtime.journal.commit(Batch(runtime.thread_id, file_changes=[change]))
    return "touched"


@tool
async def post(text: str) -> str:
    """Tell the world."""
    return text


TRUST = RunOptions(trust_cache=True)


async def test_a_call_that_touches_only_the_thread_is_one_commit_with_its_input():
    journal = Counting()
    agent = create_agent(Turns(), [note], checkpointer=journal)
    await agent.adrive([call("1", "note", text="a")], thread_id="t")
    journal.commits.clear()
    journal.loads = 0
    result = await agent.adrive([call("2", "note", text="b")], thread_id="t", options=TRUST)
    assert result.run.status == "done"
    assert [one.text for one in result.results] == ["b"]
    (batch,) = journal.commits
    assert [one.author for one in batch.checkpoints] == ["client", "tools"]
    assert [one.status for one in batch.runs] == ["done"]
    assert journal.loads == 0
    assert not batch.synced


async def test_what_a_file_was_waits_for_the_disk_before_the_file_changes():
    journal = Counting()
    agent = create_agent(Turns(), [touch], checkpointer=journal)
    await agent.adrive([call("1", "touch", path="/a")], thread_id="t")
    recorded, result = journal.commits
    assert recorded.file_changes and recorded.synced
    assert not result.synced


async def test_everything_waits_for_the_disk_before_a_tool_reaches_the_world():
    journal = Counting()
    agent = create_agent(Turns(), [note, post], checkpointer=journal)
    await agent.adrive([call("1", "note", text="a"), call("2", "post", text="b")])
    assert all(batch.synced for batch in journal.commits)


async def test_a_delegated_run_waits_for_the_disk_at_each_step():
    journal = Counting()
    agent = create_agent(
        Turns(says("", call("1", "note", text="a")), says("ok")), [note], checkpointer=journal
    )
    await agent.ainvoke("go")
    assert len(journal.commits) > 1
    assert all(batch.synced for batch in journal.commits)


async def test_the_input_is_stored_before_a_file_changes():
    journal = Counting()
    agent = create_agent(Turns(), [touch], checkpointer=journal)
    result = await agent.adrive([call("1", "touch", path="/a")], thread_id="t")
    first, second = journal.commits
    assert [one.author for one in first.checkpoints] == ["client"]
    assert [one.path for one in first.file_changes] == ["/a"]
    assert [one.author for one in second.checkpoints] == ["tools"]
    history = await agent.get_state_history("t")
    client = next(one for one in history if one.author == "client")
    assert [one.path for one in await journal.file_changes("t", client.seq)] == ["/a"]
    assert result.checkpoint is not None
    tools = next(one for one in history if one.author == "tools")
    assert await journal.file_changes("t", tools.seq) == []


async def test_the_input_is_stored_before_a_tool_reaches_the_world():
    journal = Counting()
    agent = create_agent(Turns(), [post], checkpointer=journal)
    await agent.adrive([call("1", "post", text="a")], thread_id="t")
    assert [one.author for batch in journal.commits for one in batch.checkpoints] == [
        "client",
        "tools",
    ]
    assert len(journal.commits) == 2


async def test_a_question_is_stored_with_its_input():
    journal = Counting()
    agent = create_agent(
        Turns(), [note], checkpointer=journal, policy=Policy((Rule("ask", "note"),))
    )
    waiting = await agent.adrive([call("1", "note", text="a")], thread_id="t")
    assert waiting.run.status == "needs_approval"
    first = journal.commits[0]
    assert [one.author for one in first.checkpoints] == ["client"]
    assert len(first.interrupts) == 1
    (question,) = waiting.interrupts
    done = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert done.run.status == "done"


async def test_a_thread_that_somebody_else_moved_is_stale_and_nothing_is_stored():
    journal = Counting()
    mine = create_agent(Turns(), [note, touch], checkpointer=journal)
    other = create_agent(Turns(), [note], checkpointer=journal)
    await mine.adrive([call("1", "note", text="a")], thread_id="t")
    await other.adrive([call("2", "note", text="b")], thread_id="t")
    before = len(journal.commits)
    for name, args in (("note", {"text": "c"}), ("touch", {"path": "/c"})):
        with pytest.raises(StaleThread):
            await mine.adrive([call("3", name, **args)], thread_id="t", options=TRUST)
    assert len(journal.commits) == before
    assert len(await journal.find_runs(thread_id="t")) == 2
    result = await mine.adrive([call("4", "note", text="d")], thread_id="t")
    assert [one.text for one in result.state["messages"]][1::2] == ["a", "b", "d"]


async def test_a_call_dropped_before_its_first_act_leaves_no_trace():
    journal = Counting()
    entered = anyio.Event()

    @tool(open_world=False)
    async def hold() -> str:
        """Hold."""
        entered.set()
        await anyio.sleep_forever()
        return ""

    agent = create_agent(Turns(), [hold], checkpointer=journal)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.adrive([call("1", "hold")], thread_id="t"))
            await entered.wait()
            group.cancel_scope.cancel()
    assert journal.commits == []
    assert await journal.threads() == []


async def test_a_call_leaves_nothing_for_the_garbage_collector():
    agent = create_agent(Turns(), [note], checkpointer=MemoryCheckpointer())
    await agent.adrive([call("1", "note", text="a")], thread_id="t")
    gc.collect()
    gc.disable()
    try:
        others = _loops_and_contexts()  # of tests that were run before
        await agent.adrive([call("2", "note", text="b")], thread_id="t", options=TRUST)
        left = [one for one in _loops_and_contexts() if not any(one is old for old in others)]
    finally:
        gc.enable()
    assert left == []


def _loops_and_contexts() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, AgentLoop | RunContext)]


class Moved(MemoryCheckpointer):
    """A journal in which another process moves the thread just before the next commit."""

    other = None

    async def commit(self, batch):
        self.other, other = None, self.other
        if other is not None:
            (first, *_) = await self.history("t")
            await other.fork("t", first.id)
        await super().commit(batch)


async def test_no_call_acts_on_a_thread_that_was_moved_meanwhile():
    paid: list[int] = []

    @tool(once=True)
    async def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    journal = Moved()
    agent = create_agent(Turns(says("ok")), [pay], checkpointer=journal)
    await agent.ainvoke("hi", thread_id="t")
    journal.other = create_agent(Turns(), [pay], checkpointer=journal)
    with pytest.raises(StaleThread):
        await agent.adrive([call("1", "pay", n=1), call("2", "pay", n=2)], thread_id="t")
    assert paid == []
    assert [one.kind for one in await journal.find_runs(thread_id="t")] == ["delegate"]
