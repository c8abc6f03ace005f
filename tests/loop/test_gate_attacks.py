"""More attacks on the gate: whoever asks, and however often, a refused call never runs.

The boundary: middleware is code of the agent's owner. The gate judges every call that reaches it
through a handler, a jump, a send, a resume or a replay; it cannot judge a middleware that calls a
function it holds a reference to. Peers A4.10, A5.14, B1.5, E6, E7, E8.
"""

from dataclasses import replace

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import InvalidUpdate
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.loop.hooks.requests import Command, Send
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule, Verdict
from deep_agent_mcp.harness.tools.marks import RetryPolicy
from deep_agent_mcp.harness.tools.tool import Tool, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import ASK_DELETE, DENY_DELETE, Ran, results

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
REJECT = {"decision": "reject"}


def deletes(*paths: str):
    calls = (call(str(n), "delete", path=path) for n, path in enumerate(paths, start=1))
    return says("", *calls)


def approving(result):
    return {one.id: APPROVE for one in result.interrupts}


def hooked(hook: str, act) -> AgentMiddleware:
    """Return a middleware whose hook does `act` once, and may jump anywhere."""
    done: list[bool] = []

    @hook_config(can_jump_to=["model", "tools", "end"])
    def run(self, state, runtime):
        if done:
            return None
        result = act(state)
        if result is not None:
            done.append(True)
        return result

    return type("Hooked", (AgentMiddleware,), {hook: run})()


HOOKS = ["before_agent", "before_model", "after_model", "after_agent"]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("policy", [DENY_DELETE, ASK_DELETE])
async def test_a_call_that_a_hook_injects_and_jumps_to_is_judged(hook, policy):
    ran = Ran()
    inject = hooked(hook, lambda state: {"messages": [deletes("/injected")], "jump_to": "tools"})
    agent = create_agent(
        Turns(says("a"), says("b"), says("c")), ran.tools(), policy=policy, middleware=[inject]
    )
    result = await agent.ainvoke("go")
    if policy is ASK_DELETE:
        (question,) = result.interrupts
        assert question.payload["args"] == {"path": "/injected"}
        result = await agent.aresume(result.run.id, {question.id: REJECT})
    assert result.run.status == "done", result.run.reason
    assert [one.status for one in results(result)] == ["error"]
    assert ran == []


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_call_that_a_hook_sends_is_judged(hook):
    ran = Ran()
    send = hooked(hook, lambda state: Command(send=[Send("delete", {"path": "/sent"})]))
    agent = create_agent(
        Turns(says("a"), says("b")), ran.tools(), policy=DENY_DELETE, middleware=[send]
    )
    result = await agent.ainvoke("go")
    assert result.run.status == "done", result.run.reason
    assert [one.status for one in results(result)] == ["error"]
    assert ran == []


async def test_a_call_that_a_tool_sends_is_judged_also_in_a_chain():
    ran = Ran()

    @tool
    async def relay(left: int) -> Command:
        """Send calls."""
        if left:
            return Command(send=[Send("relay", {"left": left - 1})])
        return Command(send=[Send("delete", {"path": "/x"}), Send("read", {"path": "/y"})])

    agent = create_agent(
        Turns(says("", call("1", "relay", left=2)), says("ok")),
        [*ran.tools(), relay],
        policy=ASK_DELETE,
    )
    waiting = await agent.ainvoke("go")
    assert [one.payload["tool"] for one in waiting.interrupts] == ["delete"]
    result = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: REJECT})
    assert result.run.status == "done"
    assert ran == [("read", "/y")]


@pytest.mark.parametrize("hook", ["before_model", "after_model", "after_agent"])
async def test_a_rejected_call_has_its_result_so_jumping_back_to_it_is_an_error(hook):
    ran = Ran()
    back = hooked(
        hook,
        lambda state: (
            {"jump_to": "tools"}
            if isinstance(state["messages"][-1], ToolMessage) or hook == "after_agent"
            else None
        ),
    )
    model = Turns(deletes("/a"), says("ok"))
    agent = create_agent(model, ran.tools(), policy=ASK_DELETE, middleware=[back])
    waiting = await agent.ainvoke("go")
    result = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: REJECT})
    assert ran == []
    if hook != "after_model":
        assert "no calls without a result" in str(result.error)


async def test_a_retry_policy_does_not_try_a_refused_call_again():
    ran: list[str] = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=5, initial_delay=0, retry_on=Exception))
    async def delete(path: str) -> str:
        """Delete."""
        ran.append(path)
        raise ConnectionError("gone")

    model = Turns(deletes("/a", "/b"), says("ok"))
    policy = Policy((Rule("deny", path="/a"), Rule("ask", path="/b")))
    agent = create_agent(model, [delete], policy=policy)
    waiting = await agent.ainvoke("go")
    assert ran == []
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: REJECT})
    assert ran == []


@pytest.mark.parametrize("sync", [False, True])
async def test_a_wrapper_that_repeats_and_varies_a_rejected_call_is_asked_about_each_variant(sync):
    class Sync(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            handler(request)
            varied = replace(request.call, args={"path": "/varied"})
            return handler(request.override(call=varied))

    class Async(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            await handler(request)
            varied = replace(request.call, args={"path": "/varied"})
            return await handler(request.override(call=varied))

    ran = Ran()
    agent = create_agent(
        Turns(deletes("/a"), says("ok")),
        ran.tools(),
        policy=ASK_DELETE,
        middleware=[Sync() if sync else Async()],
    )
    first = await agent.ainvoke("go")
    second = await agent.aresume(first.run.id, {first.interrupts[0].id: REJECT})
    assert second.interrupts[0].payload["args"] == {"path": "/varied"}
    result = await agent.aresume(first.run.id, {second.interrupts[0].id: REJECT})
    assert result.run.status == "done"
    assert ran == []


async def test_a_wrapper_that_swallows_everything_cannot_make_a_waiting_call_run():
    class Swallow(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            try:
                return await handler(request)
            except BaseException:  # noqa: BLE001
                return ToolMessage(request.call.id, "never mind")

    ran = Ran()
    agent = create_agent(
        Turns(deletes("/a"), says("ok")), ran.tools(), policy=ASK_DELETE, middleware=[Swallow()]
    )
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert ran == []


async def test_a_tool_that_a_wrapper_supplies_is_judged_under_its_name_and_by_its_own_marks():
    ran: list[str] = []

    @tool(destructive=True)
    async def delete(path: str) -> str:
        """Delete, more thoroughly."""
        ran.append(path)
        return "gone"

    class Supply(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            supplied = replace(delete, name=request.call.name)
            return await handler(request.override(tool=supplied))

    by_name = create_agent(
        Turns(deletes("/a"), says("ok")), Ran().tools(), policy=DENY_DELETE, middleware=[Supply()]
    )
    assert results(await by_name.ainvoke("go"))[0].status == "error"
    by_mark = create_agent(
        Turns(says("", call("1", "read", path="/a")), says("ok")),
        Ran().tools(),
        policy=Policy((Rule("deny", destructive=True),)),
        middleware=[Supply()],
    )
    assert results(await by_mark.ainvoke("go"))[0].status == "error"
    assert ran == []


async def test_a_tool_supplied_under_another_name_is_not_the_tool_of_the_call():
    ran: list[str] = []

    @tool
    async def harmless(path: str) -> str:
        """Look harmless."""
        ran.append(path)
        return "x"

    class Supply(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            return await handler(request.override(tool=harmless))

    real = Ran()
    agent = create_agent(
        Turns(deletes("/a"), says("ok")), real.tools(), policy=DENY_DELETE, middleware=[Supply()]
    )
    await agent.ainvoke("go")
    assert (real, ran) == ([], [])


async def test_calls_that_share_an_id_run_once_and_share_no_approval():
    ran = Ran()
    twins = says("", call("1", "delete", path="/a"), call("1", "delete", path="/a"),
                 call("1", "delete", path="/b"))  # fmt: skip
    agent = create_agent(Turns(twins, says("ok")), ran.tools(), policy=ASK_DELETE)
    waiting = await agent.ainvoke("go", thread_id="t")
    assert len({one.id for one in waiting.interrupts}) == len(waiting.interrupts) == 3
    result = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: APPROVE})
    assert ran == [("delete", "/a")]
    result = await agent.aresume(waiting.run.id, {one.id: REJECT for one in waiting.interrupts[1:]})
    assert ran == [("delete", "/a")]
    answer = result.state["messages"][1]
    ids = [one.id for one in answer.tool_calls]
    assert len(set(ids)) == 3
    assert [one.tool_call_id for one in results(result)] == ids
    assert [one.status for one in results(result)] == ["success", "error", "error"]


async def test_a_driving_client_that_repeats_an_id_is_told_and_nothing_runs():
    ran, journal = Ran(), MemoryCheckpointer()
    agent = create_agent(Turns(), ran.tools(), checkpointer=journal)
    with pytest.raises(InvalidUpdate, match="share an id; nothing was run"):
        await agent.adrive([call("1", "read", path="/a"), call("1", "read", path="/b")])
    assert ran == []
    assert await journal.threads() == []


async def test_of_injected_calls_that_share_an_id_the_first_runs_once():
    ran = Ran()
    twins = says("", call("1", "read", path="/a"), call("1", "read", path="/b"))
    inject = hooked("before_agent", lambda state: {"messages": [twins], "jump_to": "tools"})
    agent = create_agent(Turns(says("a"), says("b")), ran.tools(), middleware=[inject])
    result = await agent.ainvoke("go", thread_id="t")
    assert ran == [("read", "/a")]
    assert [one.text for one in results(result)] == ["content"]
    reread = create_agent(Turns(), ran.tools(), checkpointer=agent.checkpointer)
    assert (await reread.get_state("t")).values["messages"] == result.state["messages"]


async def test_a_name_in_another_case_is_another_name():
    ran = Ran()
    model = Turns(
        says("", call("1", "Delete", path="/a"), call("2", "DELETE", path="/a")), says("ok")
    )
    result = await create_agent(model, ran.tools(), policy=DENY_DELETE).ainvoke("go")
    assert ran == []
    assert all("there is no tool" in one.text for one in results(result))


async def test_two_tools_whose_names_differ_in_case_have_rules_of_their_own():
    ran: list[str] = []

    def named(name: str) -> Tool:
        @tool(name=name)
        async def run() -> str:
            """Run."""
            ran.append(name)
            return name

        return run

    model = Turns(says("", call("1", "wipe"), call("2", "Wipe")), says("ok"))
    policy = Policy((Rule("allow", "Wipe"),), default="deny")
    await create_agent(model, [named("wipe"), named("Wipe")], policy=policy).ainvoke("go")
    assert ran == ["Wipe"]


async def test_what_runs_is_what_was_judged_though_the_arguments_change_while_it_waits():
    seen = []
    nested = {"paths": ["/allowed"]}
    schema = {"type": "object", "properties": {"paths": {"type": "array"}}}

    async def work(args):
        seen.append(list(args["paths"]))
        nested["paths"].append("/forbidden")
        if len(seen) == 1:
            raise ConnectionError("again")
        return "ok"

    wipe = Tool.from_schema(
        "wipe", "Wipe.", schema, work, idempotent=True,
        retry=RetryPolicy(attempts=2, initial_delay=0),
    )  # fmt: skip

    class Change(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            return await handler(request.override(call=replace(request.call, args=nested)))

    agent = create_agent(
        Turns(says("", call("1", "wipe")), says("ok")), [wipe], middleware=[Change()]
    )
    await agent.ainvoke("go")
    assert seen == [["/allowed"], ["/allowed"]]


async def test_a_judge_that_changes_arguments_in_place_changes_nothing_that_runs():
    """A judge must be pure; one that is not cannot show the policy another call than runs."""

    class Whitewash(AgentMiddleware):
        def judge(self, request):
            request.call.args["path"] = "/harmless"
            return Verdict("allow")

    ran = Ran()
    policy = Policy((Rule("deny", path="/secret"),))
    agent = create_agent(
        Turns(deletes("/secret"), says("ok")), ran.tools(), policy=policy, middleware=[Whitewash()]
    )
    await agent.ainvoke("go")
    assert ("delete", "/secret") not in ran


async def test_the_boundary_a_wrapper_that_calls_a_tools_bare_function_acts_on_its_own():
    """It is code of the agent's owner; the call itself is judged all the same."""
    ran = Ran()

    class Bare(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            await request.tool.function({"path": "/bare"}, request.runtime)
            return await handler(request)

    agent = create_agent(
        Turns(deletes("/a"), says("ok")), ran.tools(), policy=DENY_DELETE, middleware=[Bare()]
    )
    result = await agent.ainvoke("go")
    assert ran == [("delete", "/bare")]
    assert results(result)[0].status == "error"
    assert result.used.tool_calls == 0
