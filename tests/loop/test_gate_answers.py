"""Attacks by answers: an approval is for one call, once, not for what it became (B1.5, E7, E8)."""

from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import InvalidAnswer, RunEnded, UnknownInterrupt
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import RetryPolicy, Tool, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import ASK_DELETE, DENY_DELETE, Ran, results
from tests.loop.test_gate_attacks import APPROVE, REJECT, approving, deletes

pytestmark = pytest.mark.anyio


async def test_an_edit_into_another_tool_that_needs_approval_is_asked_about_again():
    ran = Ran()
    policy = Policy((Rule("ask", "*"),))
    agent = create_agent(
        Turns(says("", call("1", "read", path="/a")), says("ok")), ran.tools(), policy=policy
    )
    first = await agent.ainvoke("go")
    edit = {"decision": "edit", "tool": "delete", "args": {"path": "/b"}}
    second = await agent.aresume(first.run.id, {first.interrupts[0].id: edit})
    (question,) = second.interrupts
    assert ran == []
    assert question.payload == {"tool": "delete", "args": {"path": "/b"}}
    await agent.aresume(first.run.id, {question.id: REJECT})
    assert ran == []


async def test_edits_back_and_forth_ask_each_time_and_never_go_round_in_circles():
    ran = Ran()
    agent = create_agent(
        Turns(says("", call("1", "read", path="/a")), says("ok")),
        ran.tools(),
        policy=Policy((Rule("ask", "*"),)),
    )
    result = await agent.ainvoke("go")
    asked = []
    for name in ("delete", "read", "delete"):
        (question,) = result.interrupts
        asked.append(question.id)
        edit = {"decision": "edit", "tool": name, "args": {"path": "/a"}}
        with anyio.fail_after(5):
            result = await agent.aresume(result.run.id, {question.id: edit})
    (question,) = result.interrupts
    assert len({*asked, question.id}) == 4
    assert ran == []
    result = await agent.aresume(result.run.id, {question.id: APPROVE})
    assert ran == [("delete", "/a")]
    assert result.run.status == "done"


async def test_an_edited_call_is_still_denied_by_a_path_rule():
    ran = Ran()
    policy = Policy((Rule("deny", "*", path="/etc/**"), Rule("ask", "delete")))
    agent = create_agent(Turns(deletes("/a"), says("ok")), ran.tools(), policy=policy)
    waiting = await agent.ainvoke("go")
    edit = {"decision": "edit", "args": {"path": "/x/../etc/passwd"}}
    again = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: edit})
    assert (again.run.status, ran) == ("needs_approval", [])
    assert "The edit was not used: delete was refused" in again.interrupts[0].message


async def test_answers_are_refused_once_given_or_for_another_run_or_after_the_end():
    ran, journal = Ran(), MemoryCheckpointer()
    agent = create_agent(
        Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE, checkpointer=journal
    )
    mine, other = await agent.ainvoke("go"), await agent.ainvoke("go")
    (question,), (foreign,) = mine.interrupts, other.interrupts
    assert question.id != foreign.id
    with pytest.raises(UnknownInterrupt, match="Nothing was stored"):
        await agent.aresume(mine.run.id, {foreign.id: APPROVE})
    with pytest.raises(UnknownInterrupt):
        await agent.answer(mine.run.id, {foreign.id: APPROVE})
    with pytest.raises(InvalidAnswer):
        await agent.aresume(mine.run.id, {question.id: {"decision": "run"}})
    assert (await agent.aresume(mine.run.id, {question.id: REJECT})).run.status == "done"
    with pytest.raises(RunEnded):
        await agent.aresume(mine.run.id, {question.id: APPROVE})
    await agent.answer(mine.run.id, {question.id: APPROVE})
    (kept,) = await journal.interrupts(mine.run.id)
    assert kept.answer == REJECT
    assert (await agent.aresume(other.run.id)).run.status == "needs_approval"
    assert ran == []


async def test_of_two_answers_at_the_same_moment_one_is_kept_and_holds():
    ran, journal = Ran(), MemoryCheckpointer()
    agent = create_agent(
        Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE, checkpointer=journal
    )
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    async with anyio.create_task_group() as group:
        for decision in (REJECT, APPROVE):
            group.start_soon(agent.answer, waiting.run.id, {question.id: decision})
    (kept,) = await journal.interrupts(waiting.run.id)
    await agent.aresume(waiting.run.id)
    assert ran == ([("delete", "/a")] if kept.answer == APPROVE else [])


@pytest.mark.parametrize("path", ["/a", "/b"])
async def test_an_approval_does_not_carry_over_to_a_state_that_was_changed_meanwhile(path):
    ran = Ran()
    agent = create_agent(Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    state = await agent.get_state("t")
    answer = state.values["messages"][-1]
    changed = replace(answer, content=(call("1", "delete", path=path),))
    await agent.update_state("t", {"messages": [changed]})
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume(waiting.run.id, {question.id: APPROVE})
    await agent.answer(waiting.run.id, {question.id: APPROVE})
    again = await agent.ainvoke(None, thread_id="t")
    assert again.run.status == "needs_approval"
    assert again.interrupts[0].payload["args"] == {"path": path}
    assert again.interrupts[0].id != question.id
    assert ran == []


async def test_replaying_an_approved_call_asks_again():
    ran = Ran()
    agent = create_agent(Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go", thread_id="t")
    await agent.aresume(waiting.run.id, approving(waiting))
    called = (await agent.get_state_history("t"))[-2]
    assert called.next == "tools"
    await agent.fork("t", called.id)
    again = await agent.ainvoke(None, thread_id="t")
    assert again.run.status == "needs_approval"
    await agent.aresume(again.run.id, {again.interrupts[0].id: REJECT})
    assert ran == [("delete", "/a")]


async def test_a_driven_call_that_was_rejected_does_not_run_when_it_comes_again_under_its_id():
    ran = Ran()
    agent = create_agent(Turns(), ran.tools(), policy=ASK_DELETE)
    first = await agent.adrive([call("1", "delete", path="/a")], thread_id="t")
    await agent.aresume(first.run.id, {first.interrupts[0].id: REJECT})
    again = await agent.adrive([call("1", "delete", path="/a")], thread_id="t")
    assert again.run.status == "needs_approval"
    assert again.interrupts[0].id != first.interrupts[0].id
    assert ran == []


async def test_arguments_that_change_after_the_question_are_a_new_question():
    """Also when it is the same object, changed in place."""
    ran = Ran()
    args = {"path": "/shown"}
    turn = AIMessage((replace(call("1", "delete"), args=args),))
    agent = create_agent(Turns(turn, says("ok")), ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go", thread_id="t")
    args["path"] = "/other"
    again = await agent.aresume(waiting.run.id, approving(waiting))
    assert ran in ([], [("delete", "/shown")])
    if again.interrupts:
        assert again.interrupts[0].payload["args"] == {"path": "/other"}


def task_tool(child, name="task"):
    @tool(name=name)
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        return ToolResult(result.text, writes=result.writes)

    return task


async def test_the_policy_of_a_deep_agent_binds_its_subagents():
    def answer(request):
        inside = not any(one.name == "task" for one in request.tools)
        if inside:
            return deletes("/by child")
        return says("", call("p1", "task", description="delete /by child"))

    for policy in (DENY_DELETE, ASK_DELETE):
        ran = Ran()
        agent = create_deep_agent(
            Turns(answer, says("ok")), [one for one in ran.tools() if one.name == "delete"],
            policy=policy,
        )  # fmt: skip
        result = await agent.ainvoke("go")
        assert ran == []
        for question in result.interrupts:
            assert question.path == ("main", "p1", "general-purpose", "1")
            result = await agent.aresume(result.run.id, {question.id: REJECT})
        assert result.run.status == "done"
        assert ran == []


async def test_an_approval_of_delegating_is_none_of_what_the_child_does_and_none_of_its_sibling():
    ran, journal = Ran(), MemoryCheckpointer()
    policy = Policy((Rule("ask", "*"),))
    child = create_agent(
        Turns(deletes("/a"), says("did it")), ran.tools(), policy=policy, checkpointer=journal,
        name="child",
    )  # fmt: skip
    calls = (call("p1", "task", description="x"), call("p2", "task", description="x"))
    agent = create_agent(
        Turns(says("", *calls), says("ok")), [task_tool(child)], policy=policy, checkpointer=journal
    )
    asked = await agent.ainvoke("go")
    inner = await agent.aresume(asked.run.id, approving(asked))
    assert [one.path[1] for one in inner.interrupts] == ["p1", "p2"]
    assert len({one.id for one in inner.interrupts}) == 2
    assert ran == []
    second = await agent.aresume(asked.run.id, {inner.interrupts[1].id: APPROVE})
    assert len(ran) == 1
    assert [one.id for one in second.interrupts] == [inner.interrupts[0].id]
    await agent.aresume(asked.run.id, {inner.interrupts[0].id: REJECT})
    assert len(ran) == 1


async def test_a_tool_that_changes_its_arguments_changes_neither_the_transcript_nor_the_question():
    async def work(args, runtime: ToolRuntime):
        args["paths"].append("/more")
        return runtime.interrupt("sure?")

    schema = {"type": "object", "properties": {"paths": {"type": "array"}}}
    wipe = Tool.from_schema("wipe", "Wipe.", schema, work)
    agent = create_agent(
        Turns(says("", call("1", "wipe", paths=["/a"])), says("ok")),
        [wipe],
        policy=Policy((Rule("ask", "wipe"),)),
    )
    waiting = await agent.ainvoke("go")
    asking = await agent.aresume(waiting.run.id, approving(waiting))
    assert [one.kind for one in asking.interrupts] == ["question"]
    result = await agent.aresume(waiting.run.id, {asking.interrupts[0].id: "yes"})
    assert result.run.status == "done"
    assert result.state["messages"][1].tool_calls[0].args == {"paths": ["/a"]}


async def test_a_cached_result_does_not_answer_a_refused_call():
    ran: list[str] = []

    @tool(read_only=True, cacheable=True)
    async def delete(path: str) -> str:
        """Delete."""
        ran.append(path)
        return "the secret"

    cache = MemoryCache()
    free = create_agent(Turns(deletes("/a"), says("ok")), [delete], cache=cache)
    assert results(await free.ainvoke("go"))[0].text == "the secret"
    for policy in (DENY_DELETE, ASK_DELETE):
        bound = create_agent(Turns(deletes("/a"), says("ok")), [delete], cache=cache, policy=policy)
        result = await bound.ainvoke("go otherwise")
        if result.interrupts:
            result = await bound.aresume(result.run.id, {result.interrupts[0].id: REJECT})
        assert results(result)[0].status == "error"
        assert "secret" not in results(result)[0].text
    assert ran == ["/a"]


async def test_a_question_that_was_answered_is_not_asked_again_by_the_next_attempt():
    tries: list[int] = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, initial_delay=0.001))
    async def flaky(runtime: ToolRuntime) -> str:
        """Ask, fail twice, succeed."""
        name = runtime.interrupt("Who?")
        tries.append(runtime.attempt)
        if runtime.attempt < 3:
            raise ConnectionError("again")
        return f"hello {name}"

    agent = create_agent(Turns(says("", call("1", "flaky")), says("done")), [flaky])
    waiting = await agent.ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    done = await agent.aresume(waiting.run.id, {question.id: "Ann"})
    assert done.run.status == "done"
    assert done.state["messages"][2].text == "hello Ann"
    assert tries == [1, 2, 3]


async def test_an_edit_that_names_only_the_tool_of_the_call_is_refused():
    ran = Ran()
    agent = create_agent(Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    with pytest.raises(InvalidAnswer, match="as it is, approve it"):
        await agent.aresume(waiting.run.id, {question.id: {"decision": "edit", "tool": "delete"}})
    assert ran == []
