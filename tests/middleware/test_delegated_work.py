"""What the `task` tool promises: a report, no leaks, and no failure that spreads."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from deep_agent_mcp.harness.agent import RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.skills import SkillsMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.skills.folders import write_skill

pytestmark = pytest.mark.anyio


def told(result: RunResult) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def tasks(*words: str, **more: Any) -> AIMessage:
    return says("", *(call(word, "task", description=word, **more) for word in words))


def delegating(first: AIMessage, *inside: Any) -> Turns:
    """Play `first` as the main agent, then say done; `inside` are the turns of subagents."""

    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent == "main":
            return first if not place else says("done")
        answer = inside[place]
        return answer(request) if callable(answer) else answer

    return Turns(*[turn] * 8)


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_subagent_that_says_nothing_is_said_to_have_said_nothing() -> None:
    model = delegating(tasks("a"), says("", call("l", "look")), says(""), says(""))
    result = await create_deep_agent(model, [look]).ainvoke("go")
    (report,) = told(result)
    assert "answer was empty" in report.text
    assert "seen" not in report.text


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"description": ""},
        {"description": "x", "prompt": "y"},
        {"description": ["x"]},
        {"description": "x", "subagent_type": "general-purpose "},
    ],
)
async def test_arguments_that_task_does_not_have_are_refused(args: dict[str, Any]) -> None:
    model = delegating(says("", call("t", "task", **args)), says("never asked"))
    result = await create_deep_agent(model).ainvoke("go")
    (refused,) = told(result)
    assert (refused.status, result.run.answer) == ("error", "done")
    assert {one.agent for one in model.requests} == {"main"}


class Plain(TypedDict):
    plan: NotRequired[str]


@tool
async def decide(plan: str) -> ToolResult:
    """Decide."""
    return ToolResult("decided", update={"plan": plan})


class WithPlan(AgentMiddleware):
    state_schema = Plain


async def test_two_subagents_that_write_one_plain_key_do_not_end_the_run() -> None:
    model = delegating(
        tasks("one", "two"),
        lambda request: says("", call("d", "decide", plan=request.messages[0].text)),
        says("report"),
    )
    result = await create_deep_agent(model, [decide], middleware=[WithPlan()]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done"), result.error
    # Who finishes first is kept; the other is told why it was not.
    kept, refused = sorted(told(result), key=lambda one: one.status == "error")
    assert (kept.status, refused.status) == ("success", "error")
    assert kept.text.startswith("report")
    assert "wrote 'plan' too" in refused.text
    assert result.state["plan"] == kept.tool_call_id


@pytest.mark.parametrize("error", [KeyError("inside"), RuntimeError("inside"), OSError("inside")])
async def test_a_tool_that_fails_inside_of_a_subagent_ends_neither_it_nor_its_caller(
    error: Exception,
) -> None:
    @tool
    async def breaks() -> str:
        """Break."""
        raise error

    model = delegating(
        tasks("bad", "good"),
        lambda request: says(
            "", call("b", "breaks" if request.messages[0].text == "bad" else "look")
        ),
        lambda request: says(f"I saw: {request.messages[-1].text}"),
    )
    result = await create_deep_agent(model, [breaks, look]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done"), result.error
    bad, good = told(result)
    assert bad.status == good.status == "success"
    assert "breaks failed" in bad.text
    assert "inside" in bad.text
    assert good.text.startswith("I saw: seen")


async def test_a_middleware_that_breaks_inside_of_a_subagent_fails_that_call_alone() -> None:
    @wrap_tool_call
    async def broken(request: Any, handler: Any) -> Any:
        raise KeyError("in the wrapper")

    journal = MemoryCheckpointer()
    child = create_agent(
        Turns(says("", call("l", "look"))), [look], middleware=[broken], checkpointer=journal,
        name="child",
    )  # fmt: skip

    @tool
    async def ask(runtime: ToolRuntime) -> ToolResult:
        """Ask the child."""
        found = await runtime.run_subagent(child, "look")
        return ToolResult(found.failed or found.text, status="error" if found.failed else "success")

    model = Turns(says("", call("1", "ask"), call("2", "look")), says("done"))
    result = await create_agent(model, [ask, look], checkpointer=journal).ainvoke("go")
    assert result.run.answer == "done", result.error
    failed, fine = told(result)
    assert (failed.status, fine.status) == ("error", "success")
    assert "broken" in failed.text


async def test_the_steps_of_a_finished_subagent_stay_in_the_journal() -> None:
    model = delegating(tasks("a"), says("thinking aloud", call("l", "look")), says("report"))
    agent = create_deep_agent(model, [look])
    result = await agent.ainvoke("go")
    thread = result.run.thread_id
    (ns,) = [one for one in await agent.checkpointer.namespaces(thread) if one]
    assert len(await agent.checkpointer.history(thread, ns)) >= 4
    assert "thinking aloud" in repr(await agent.checkpointer.load(thread, ns))


async def test_what_a_caller_pinned_or_loaded_is_not_its_subagents(tmp_path: Path) -> None:
    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    for name, more in (("style", ""), ("release", "metadata:\n  include_tools: deploy\n")):
        write_skill(
            tmp_path,
            name,
            f"---\nname: {name}\ndescription: About {name}.\n{more}---\nThe text of {name}.\n",
        )

    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent != "main":
            return says("", call("d", "deploy")) if not place else says("report")
        return (
            says("", call("s", "skill", name="release")),
            says("", call("t", "task", description="x")),
            says("done"),
        )[place]

    model = Turns(*[turn] * 6)
    skills = SkillsMiddleware(SkillRegistry([tmp_path]), tools=[deploy])
    child = create_agent(model, middleware=[skills], name="child")

    @tool(name="task")
    async def task(description: str, runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(child, description)).text

    agent = create_agent(model, [task], middleware=[skills], name="main")
    message = HumanMessage("go")
    result = await agent.ainvoke({"messages": [message], "pinned_skills": ["style"]})
    assert result.run.answer == "done", result.error
    main = [one for one in model.requests if one.agent == "main"]
    inside = [one for one in model.requests if one.agent == "child"]
    assert "The text of style." in main[0].system[-1].text
    assert "deploy" in {one.name for one in main[1].tools}
    for request in inside:
        assert "The text of style." not in "".join(one.text for one in request.system)
        assert "deploy" not in {one.name for one in request.tools}
    assert "it comes with a skill" in inside[1].messages[-1].text
