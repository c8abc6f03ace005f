"""Static breakpoints: where a run stops to be looked at, and how it goes on."""

import pytest

from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Hooks(AgentMiddleware):
    """A middleware with all four node hooks, which notes what it does."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def before_agent(self, state, runtime):
        self.log.append("before_agent")

    def before_model(self, state, runtime):
        self.log.append("before_model")

    def after_model(self, state, runtime):
        self.log.append("after_model")

    def after_agent(self, state, runtime):
        self.log.append("after_agent")


def note_tool(log: list[str]):
    @tool
    async def note(text: str) -> str:
        """Note."""
        log.append(text)
        return text

    return note


def two_rounds(log: list[str], journal: MemoryCheckpointer | None = None, **options) -> Agent:
    """Return an agent that calls a tool in each of two rounds, then answers."""
    model = Turns(
        says("", call("1", "note", text="a")),
        says("", call("2", "note", text="b")),
        says("done"),
        says("done again"),
    )
    return create_agent(model, [note_tool(log)], checkpointer=journal, **options)


def stop(result: RunResult) -> str:
    (question,) = result.interrupts
    assert question.kind == "breakpoint"
    return f"{question.payload['when']} {question.payload['node']}"


async def stops(agent: Agent, result: RunResult) -> list[str]:
    """Pass every breakpoint; return where the run stopped."""
    found: list[str] = []
    while result.run.status == "needs_approval":
        found.append(stop(result))
        result = await agent.aresume(result.run.id)
    assert result.run.status == "done"
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"interrupt_before": ["model"]}, ["before model"] * 3),
        ({"interrupt_after": ["model"]}, ["after model"] * 2),
        ({"interrupt_before": ["tools"]}, ["before tools"] * 2),
        ({"interrupt_after": ["tools"]}, ["after tools"] * 2),
        ({"interrupt_before": "tools"}, ["before tools"] * 2),
        (
            {"interrupt_before": ["tools"], "interrupt_after": ["tools"]},
            ["before tools", "after tools"] * 2,
        ),
    ],
)
async def test_a_run_stops_once_in_every_round_and_a_resume_goes_past(options, expected):
    log: list[str] = []
    agent = two_rounds(log, **options)
    result = await agent.ainvoke("go", thread_id="t")
    assert await stops(agent, result) == expected
    assert log == ["a", "b"]
    # It is not remembered as passed: the next turn stops again.
    again = await agent.ainvoke("more", thread_id="t")
    stops_again = [one for one in expected if one.endswith("model")][:1]
    assert await stops(agent, again) == (stops_again if "before model" in expected else [])


@pytest.mark.parametrize("hook", ["before_agent", "before_model", "after_model", "after_agent"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_stops_before_and_after_a_hook(when: str, hook: str):
    hooks = Hooks()
    node = f"Hooks.{hook}"
    agent = create_agent(
        Turns(says("done")), [], middleware=[hooks], **{f"interrupt_{when}": [node]}
    )
    waiting = await agent.ainvoke("go")
    assert stop(waiting) == f"{when} {node}"
    assert waiting.interrupts[0].path == ("agent", node)
    assert (hook in hooks.log) == (when == "after")
    result = await agent.aresume(waiting.run.id)
    assert result.run.status == "done"
    assert hooks.log[-1] == "after_agent"


async def test_a_star_stops_at_every_node():
    hooks = Hooks()
    agent = two_rounds([], middleware=[hooks], interrupt_before="*", interrupt_after="*")
    found = await stops(agent, await agent.ainvoke("go"))
    nodes = ["before_model", "model", "after_model", "tools"]
    in_round = [name if name in ("model", "tools") else f"Hooks.{name}" for name in nodes]
    expected = ["Hooks.before_agent", *in_round, *in_round, *in_round[:3], "Hooks.after_agent"]
    assert [one.removeprefix("before ") for one in found if one.startswith("before")] == expected
    assert [one.removeprefix("after ") for one in found if one.startswith("after")] == expected


def test_a_node_that_is_not_there_is_refused_when_the_agent_is_built():
    for options in ({"interrupt_before": ["modle"]}, {"interrupt_after": ["Hooks.before_agent"]}):
        with pytest.raises(AgentBuildError, match=r"no node .* to stop at; nodes: .*model"):
            create_agent(Turns(), [], **options)
    with pytest.raises(AgentBuildError, match=r"Hooks.before_tool.*Hooks\.after_model"):
        create_agent(Turns(), [], middleware=[Hooks()], interrupt_before=["Hooks.before_tool"])


async def test_hooks_after_the_model_do_not_run_again_when_a_stop_before_the_tools_is_passed():
    hooks = Hooks()
    log: list[str] = []
    agent = two_rounds(log, middleware=[hooks], interrupt_before=["tools"])
    await stops(agent, await agent.ainvoke("go"))
    assert hooks.log.count("after_model") == 3
    assert log == ["a", "b"]


async def test_a_stop_shows_the_state_and_is_passed_in_another_process():
    journal, log = MemoryCheckpointer(), []
    agent = two_rounds(log, journal, interrupt_before=["tools"])
    waiting = await agent.ainvoke("go", thread_id="t")
    snapshot = await two_rounds(log, journal).get_state("t")
    assert snapshot.next == "tools"
    assert [one.id for one in snapshot.interrupts] == [waiting.interrupts[0].id]
    assert snapshot.values["messages"][-1].tool_calls[0].args == {"text": "a"}
    other = two_rounds(log, journal, interrupt_before=["tools"])
    second = await other.aresume(waiting.run.id)
    assert stop(second) == "before tools"
    assert second.interrupts[0].id != waiting.interrupts[0].id
    assert log == ["a"]


async def test_state_changed_at_a_stop_is_what_runs_and_is_stopped_at_again():
    log: list[str] = []
    agent = two_rounds(log, interrupt_before=["model"])
    waiting = await agent.ainvoke("go", thread_id="t")
    await agent.update_state("t", {"messages": [HumanMessage("and quickly")]})
    changed = await agent.ainvoke(None, thread_id="t")
    assert stop(changed) == "before model"
    assert changed.interrupts[0].id != waiting.interrupts[0].id
    second = await agent.aresume(changed.run.id)
    assert log == ["a"]
    assert [one.text for one in second.state["messages"]][:2] == ["go", "and quickly"]


async def test_a_new_message_at_a_stop_leaves_the_calls_unrun():
    log: list[str] = []
    agent = two_rounds(log, interrupt_before=["tools"])
    await agent.ainvoke("go", thread_id="t")
    result = await agent.ainvoke("no, stop", thread_id="t")
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.status for one in told] == ["error"]
    assert stop(result) == "before tools"
    assert log == []


def with_child(journal: MemoryCheckpointer, log: list[str]) -> Agent:
    """Return an agent whose subagent stops before its tools while a call of its own is gated."""
    child = two_rounds(log, journal, interrupt_before=["tools"], name="child")

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        return ToolResult((await runtime.run_subagent(child, description)).text)

    calls = call("p1", "note", text="own"), call("p2", "task", description="x")
    return create_agent(
        Turns(says("", *calls), says("all done")),
        [task, note_tool(log)],
        policy=Policy((Rule("ask", "note", agent="main"),)),
        checkpointer=journal,
        name="main",
    )


async def test_a_stop_in_a_subagent_is_passed_while_an_approval_stays_open():
    journal, log = MemoryCheckpointer(), []
    agent = with_child(journal, log)
    waiting = await agent.ainvoke("go")
    kinds = [(one.kind, one.path) for one in waiting.interrupts]
    assert kinds == [("approval", ("main", "p1")), ("breakpoint", ("main", "p2", "child", "tools"))]
    approval = waiting.interrupts[0].id
    for done in (["a"], ["a", "b"]):
        waiting = await with_child(journal, log).aresume(waiting.run.id)
        assert waiting.run.status == "needs_approval"
        assert waiting.interrupts[0].id == approval
        assert log == done
    assert [one.id for one in waiting.interrupts] == [approval]
    result = await agent.aresume(waiting.run.id, {approval: {"decision": "approve"}})
    assert result.run.answer == "all done"
    assert log == ["a", "b", "own"]


async def test_an_approval_can_be_answered_together_with_a_stop():
    journal, log = MemoryCheckpointer(), []
    agent = with_child(journal, log)
    waiting = await agent.ainvoke("go")
    approval, passed = (one.id for one in waiting.interrupts)
    second = await agent.aresume(
        waiting.run.id, {approval: {"decision": "approve"}, passed: "any answer goes on"}
    )
    assert sorted(log) == ["a", "own"]
    assert stop(second) == "before tools"
