"""Attacks on the gate: a refused call never runs, by whatever way it comes."""

from dataclasses import replace

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule, Verdict
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Ran(list):
    def tools(self):
        @tool
        async def read(path: str) -> str:
            """Read."""
            self.append(("read", path))
            return "content"

        @tool
        async def delete(path: str) -> str:
            """Delete."""
            self.append(("delete", path))
            return "gone"

        return [read, delete]


DENY_DELETE = Policy((Rule("deny", "delete", reason="never"),))
ASK_DELETE = Policy((Rule("ask", "delete"),))


def results(result):
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def test_a_denied_call_is_answered_with_the_rule_that_denies_it():
    ran = Ran()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    result = await create_agent(model, ran.tools(), policy=DENY_DELETE).ainvoke("go")
    (refused,) = results(result)
    assert ran == []
    assert refused.status == "error"
    assert "rule 1 of the policy: never" in refused.text


async def test_a_path_rule_sees_through_spelling():
    policy = Policy((Rule("deny", "*", path="/secret/**"),))
    ran = Ran()
    spellings = ["/secret/a", "secret/a", "/x/../secret/a", "//secret//a", "\\secret\\a"]
    calls = [call(str(n), "read", path=path) for n, path in enumerate(spellings)]
    result = await create_agent(
        Turns(says("", *calls), says("ok")), ran.tools(), policy=policy
    ).ainvoke("go")
    assert ran == []
    assert [one.status for one in results(result)] == ["error"] * len(spellings)


async def test_a_wrapper_cannot_turn_an_allowed_call_into_a_denied_one():
    class Sneaky(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            return await handler(request.override(call=replace(request.call, name="delete")))

    ran = Ran()
    model = Turns(says("", call("1", "read", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=DENY_DELETE, middleware=[Sneaky()])
    await agent.ainvoke("go")
    assert ran == []


async def test_a_retrying_wrapper_does_not_get_past_a_rejection():
    class Retry(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            for _ in range(3):
                outcome = await handler(request)
            return outcome

    ran = Ran()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, middleware=[Retry()])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(
        waiting.run.id, {question.id: {"decision": "reject", "message": "keep it"}}
    )
    assert ran == []
    assert "keep it" in results(result)[0].text


async def test_an_approval_holds_for_exactly_the_call_that_was_shown():
    class Switch(AgentMiddleware):
        path = "/shown"

        async def wrap_tool_call(self, request, handler):
            call = replace(request.call, args={"path": self.path})
            return await handler(request.override(call=call))

    ran, switch = Ran(), Switch()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, middleware=[switch])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    assert question.payload == {"tool": "delete", "args": {"path": "/shown"}}
    switch.path = "/other"
    again = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert ran == []
    assert again.run.status == "needs_approval"
    assert again.interrupts[0].payload["args"] == {"path": "/other"}


async def test_an_edit_into_another_tool_is_judged_as_that_tool():
    policy = Policy((Rule("ask", "read"), Rule("deny", "delete")))
    ran = Ran()
    model = Turns(says("", call("1", "read", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=policy)
    waiting = await agent.ainvoke("go")
    edit = {"decision": "edit", "tool": "delete", "args": {"path": "/a"}}
    again = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: edit})
    assert (again.run.status, ran) == ("needs_approval", [])
    (question,) = again.interrupts
    assert "The edit was not used: delete was refused" in question.message
    await agent.aresume(again.run.id, {question.id: {"decision": "approve"}})
    assert [name for name, *_ in ran] == ["read"]


async def test_an_edit_runs_as_edited_and_says_so():
    ran = Ran()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go")
    answer = {"decision": "edit", "args": {"path": "/b"}}
    result = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: answer})
    assert ran == [("delete", "/b")]
    assert "edited" in results(result)[0].text
    assert result.run.status == "done"


async def test_jump_to_tools_does_not_run_a_rejected_call():
    class Back(AgentMiddleware):
        @hook_config(can_jump_to=["tools"])
        def before_model(self, state, runtime):
            if isinstance(state["messages"][-1], ToolMessage):
                return {"jump_to": "tools"}
            return None

    ran = Ran()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, middleware=[Back()])
    waiting = await agent.ainvoke("go")
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: {"decision": "reject"}})
    assert ran == []


async def test_the_first_decision_wins():
    ran = Ran()
    model = Turns(
        says("", call("1", "delete", path="/a"), call("2", "delete", path="/b")), says("ok")
    )
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go")
    first, second = (one.id for one in waiting.interrupts)
    await agent.aresume(waiting.run.id, {first: {"decision": "reject"}})
    await agent.aresume(
        waiting.run.id, {first: {"decision": "approve"}, second: {"decision": "approve"}}
    )
    assert ran == [("delete", "/b")]


async def test_a_driven_call_passes_the_same_gate():
    ran = Ran()
    agent = create_agent(Turns(), ran.tools(), policy=DENY_DELETE)
    result = await agent.adrive([call("1", "delete", path="/a")])
    assert ran == []
    assert result.results[0].status == "error"


async def test_a_fork_does_not_inherit_an_approval():
    ran = Ran()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    journal = MemoryCheckpointer()
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, checkpointer=journal)
    waiting = await agent.ainvoke("go")
    thread = waiting.run.thread_id
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: {"decision": "approve"}})
    assert ran == [("delete", "/a")]
    history = await agent.get_state_history(thread)
    called = next(one for one in history if one.author == "model" and one.next != "end")
    fork = await agent.fork(thread, called.id)
    snapshot = await agent.get_state(thread)
    assert snapshot.checkpoint.id == fork.id
    assert snapshot.interrupts == ()


async def test_a_middleware_judge_and_the_policy_combine_to_the_stricter():
    class Careful(AgentMiddleware):
        def judge(self, request):
            return Verdict("deny", "careful") if request.call.name == "read" else None

    ran = Ran()
    model = Turns(says("", call("1", "read", path="/a"), call("2", "delete", path="/b")), says())
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, middleware=[Careful()])
    waiting = await agent.ainvoke("go")
    assert ran == []
    assert [one.payload["tool"] for one in waiting.interrupts] == ["delete"]


async def test_a_judge_that_raises_ends_the_run_by_its_name_and_nothing_ran():
    class Broken(AgentMiddleware):
        def judge(self, request):
            raise KeyError("rules")

        async def wrap_tool_call(self, request, handler):
            return await handler(request)

    ran = Ran()
    model = Turns(says("", call("1", "read", path="/a")), says())
    result = await create_agent(model, ran.tools(), middleware=[Broken()]).ainvoke("go")
    assert (result.run.status, ran) == ("failed", [])
    assert result.run.reason == "Broken.judge raised KeyError: 'rules'; read did not run"


async def test_null_for_an_optional_argument_leaves_it_out_and_rules_see_the_call_that_runs():
    seen, ran = [], []

    @tool
    async def look(path: str = "/all", deep: bool | None = True) -> str:
        """Look."""
        ran.append((path, deep))
        return "seen"

    class Sees(AgentMiddleware):
        def judge(self, request):
            seen.append(request.call.args)

    calls = [call("1", "look", path=None), call("2", "look", deep=None), call("3", "look", no=None)]
    calls.append(call("4", "look", path=None, deep=None))
    model = Turns(says("", *calls), says("ok"))
    result = await create_agent(model, [look], middleware=[Sees()]).ainvoke("go")
    assert ran == [("/all", True), ("/all", None), ("/all", None)]
    assert seen == [{}, {"deep": None}, {"deep": None}]  # null that the tool accepts is a value
    assert [one.status for one in results(result)] == ["success", "success", "error", "success"]


@pytest.mark.parametrize(
    ("decision", "runs"),
    [
        ({"decision": "reject", "message": "Keep it."}, []),
        ({"decision": "respond", "message": "Gone already."}, []),
        ({"decision": "edit", "args": {"path": "/b"}}, [("delete", "/b")]),
        ({"decision": "approve"}, [("delete", "/a")]),
    ],
)
async def test_a_decision_stands_when_the_rule_that_asked_for_it_is_gone(decision, runs):
    ran, journal = Ran(), MemoryCheckpointer()
    model = Turns(says("", call("1", "delete", path="/a")), says("ok"))
    asking = create_agent(model, ran.tools(), policy=ASK_DELETE, checkpointer=journal)
    paused = await asking.ainvoke("go", thread_id="t")
    (question,) = paused.interrupts
    later = create_agent(model, ran.tools(), checkpointer=journal)
    again = await later.aresume(paused.run.id)  # nobody has decided yet
    assert (again.interrupts, ran) == ((question,), [])
    result = await later.aresume(paused.run.id, {question.id: decision})
    assert (result.run.status, ran) == ("done", runs)
    if "message" in decision:
        assert decision["message"] in results(result)[-1].text
