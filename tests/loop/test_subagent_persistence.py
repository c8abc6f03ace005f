"""What a subagent remembers: its own unfinished call, and nothing else."""

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Family:
    """A main agent whose subagents note, then ask, then may delegate further."""

    def __init__(self, *turns, levels: int = 1, journal: MemoryCheckpointer | None = None) -> None:
        self.journal = journal or MemoryCheckpointer()
        self.ran: list[str] = []
        self.seen: list[tuple[str, list[str]]] = []

        @tool
        async def note(text: str, runtime: ToolRuntime) -> str:
            """Note."""
            self.ran.append(text)
            self.seen.append((runtime.ns, [one.text for one in runtime.state["messages"]]))
            return f"noted {text}"

        @tool
        async def ask(question: str, runtime: ToolRuntime) -> str:
            """Ask."""
            return str(runtime.interrupt(question))

        def opening(request):
            return says("", call("n", "note", text=request.messages[0].text))

        def closing(request):
            return says(f"report: {request.messages[-1].text}")

        asking = says("", call("q", "ask", question="which?"))
        agent = self._agent([note, ask], opening, asking, closing)
        for _ in range(levels - 1):
            deeper = says("", call("d", "task", description="deep"))
            report = lambda request: says(request.messages[-1].text)  # noqa: E731
            agent = self._agent([note, self._task(agent)], opening, deeper, report)
        self.agent = self._agent([self._task(agent)], *turns)

    def _agent(self, tools, *turns) -> Agent:
        return create_agent(Turns(*turns), tools, checkpointer=self.journal)

    def _task(self, child: Agent):
        @tool
        async def task(description: str, runtime: ToolRuntime) -> ToolResult:
            """Delegate."""
            return ToolResult((await runtime.run_subagent(child, description)).text)

        return task

    async def finish(self, result, answer: str = "this"):
        while result.run.status == "needs_approval":
            answers = {one.id: answer for one in result.interrupts}
            result = await self.agent.aresume(result.run.id, answers)
        return result


def reports(result) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


def delegate(*names: str):
    return says("", *(call(name, "task", description=name) for name in names))


async def test_calls_of_one_subagent_share_nothing_in_parallel_or_one_after_the_other():
    family = Family(delegate("a", "b"), delegate("c"), says("end"), delegate("a"), says("end"))
    for _ in range(2):
        waiting = await family.agent.ainvoke("go", thread_id="t")
        assert (await family.finish(waiting)).run.status == "done"
    # Which of the two that run at once comes first does not matter.
    assert sorted(family.ran[:2]) == ["a", "b"]
    assert family.ran[2:] == ["c", "a"]
    seen = [texts for _, texts in family.seen]
    assert sorted(seen[:2]) == [["a", ""], ["b", ""]]
    assert seen[2:] == [["c", ""], ["a", ""]]
    assert len({ns for ns, _ in family.seen}) == 4


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_a_question_from_any_depth_resumes_where_it_was_asked(levels: int):
    family = Family(delegate("a"), says("end"), levels=levels)
    waiting = await family.agent.ainvoke("go")
    (question,) = waiting.interrupts
    assert question.path == ("agent", "a", *("agent", "d") * (levels - 1), "agent", "q")
    assert question.ns.count("task:") == levels
    result = await family.finish(waiting)
    assert reports(result) == ["report: this"]
    assert family.ran == ["a", *["deep"] * (levels - 1)]


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_after_a_fork_of_its_parent_a_subagent_starts_afresh(levels: int):
    family = Family(delegate("a"), says("end"), levels=levels)
    first = await family.agent.ainvoke("go", thread_id="t")
    old = (await family.agent.get_state("t")).checkpoint
    namespaces = {ns for ns, _ in family.seen}
    again = await family.agent.replay("t", old.id)
    assert again.run.status == "needs_approval"
    assert again.interrupts[0].path == first.interrupts[0].path
    assert again.interrupts[0].id != first.interrupts[0].id
    assert family.ran == ["a", *["deep"] * (levels - 1)] * 2
    assert not namespaces & {ns for ns, _ in family.seen[levels:]}
    assert reports(await family.finish(again, "that")) == ["report: that"]
    # What the subagent did on the old branch is still there to be read.
    for ns in namespaces:
        assert await family.journal.history("t", ns)


async def test_a_fork_from_before_the_call_keeps_the_old_branch_with_its_report():
    family = Family(delegate("a"), says("end"))
    done = await family.finish(await family.agent.ainvoke("go", thread_id="t"), "one")
    assert done.checkpoint is not None
    start = (await family.agent.get_state_history("t"))[-1]
    forked = await family.finish(await family.agent.replay("t", start.id), "two")
    assert reports(forked) == ["report: two"]
    kept = await family.agent.get_state("t", done.checkpoint.id)
    assert [one.text for one in kept.values["messages"]][-2:] == ["report: one", "end"]


async def test_a_taken_over_run_finds_the_subagents_of_the_run_before():
    family = Family(delegate("a", "b"), says("end"))
    first = await family.agent.ainvoke("go", thread_id="t")
    await family.agent.aresume(first.run.id, {first.interrupts[0].id: "early"})
    over = await family.agent.ainvoke(None, thread_id="t")
    assert [one.id for one in over.interrupts] == [first.interrupts[1].id]
    result = await family.finish(over, "late")
    assert reports(result) == ["report: early", "report: late"]
    assert sorted(family.ran) == ["a", "b"]
