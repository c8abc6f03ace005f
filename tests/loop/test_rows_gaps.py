"""What the table of behaviours needs and no other test shows: stack and options of a deep
agent, numbers of steps, whose journal counts, what a stream may tell."""

from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import after_model, before_model
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import AIMessage, RemoveMessage, ToolMessage
from deep_agent_mcp.harness.middleware.subagents import SubAgentMiddleware
from deep_agent_mcp.harness.middleware.todo_list import TodoListMiddleware
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.streaming import read

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "saw it"


class Extra(AgentMiddleware):
    """Does nothing."""


def stack(agent) -> list[str]:
    return [one.name.removesuffix("Middleware") for one in agent.definition.middleware]


def subagents_of(agent) -> SubAgentMiddleware:
    return next(one for one in agent.definition.middleware if isinstance(one, SubAgentMiddleware))


# --- the deep agent's stack and options ------------------------------------------------------


def test_the_stack_of_a_deep_agent_and_of_its_subagents():
    agent = create_deep_agent(Turns(), middleware=[Extra()], interrupt_on={"ls": True})
    around = ["PatchToolCalls", "RepeatGuard", "BudgetWarning", "Summarization", "TodoList",
              "ModelRetry", "Extra", "HumanInTheLoop", "PromptCaching"]  # fmt: skip
    assert stack(agent) == ["Filesystem", "Skills", "SubAgent", *around]
    assert stack(subagents_of(agent).agent("general-purpose")) == ["Filesystem", "Skills", *around]


@pytest.mark.parametrize("wrong", [StateBackend, lambda runtime: StateBackend(), "/srv"])
def test_a_backend_is_an_object_and_nothing_that_makes_one(wrong):
    with pytest.raises(AgentBuildError, match="backend= takes a backend"):
        create_deep_agent(Turns(), backend=wrong)


async def test_a_deep_agent_stops_after_a_node():
    turns = Turns(says("", call("1", "look")), says("done"))
    agent = create_deep_agent(turns, [look], interrupt_after=["tools"])
    waiting = await agent.ainvoke("go")
    (stop,) = waiting.interrupts
    assert (stop.kind, stop.payload["when"]) == ("breakpoint", "after")
    assert isinstance(waiting.state["messages"][-1], ToolMessage)
    assert (await agent.aresume(waiting.run.id)).run.answer == "done"


def test_a_second_middleware_with_the_name_of_a_built_in_one_is_refused():
    with pytest.raises(AgentBuildError, match="middleware named twice: TodoListMiddleware"):
        create_deep_agent(Turns(), middleware=[TodoListMiddleware()])


async def test_subagents_get_the_callers_tools_and_cannot_delegate():
    model = Turns(
        lambda request: (
            says("", call("1", "task", description="x"))
            if request.agent == "main"
            else says("report")
        ),
        says("done"),
    )
    await create_deep_agent(model, [look]).ainvoke("go")
    names = {
        one.agent: [spec.name for spec in one.tools]  # type: ignore[union-attr]
        for one in model.requests
    }
    assert names["general-purpose"] == [one for one in names["main"] if one != "task"]
    assert names["main"][-1] == "look"


def test_a_subagent_is_built_when_it_is_first_asked_for(tmp_path):
    for n in range(5):
        text = f"---\nname: helper-{n}\ndescription: Helps.\n---\nHelp.\n"
        (tmp_path / f"helper-{n}.md").write_text(text, encoding="utf-8")
    agent = create_deep_agent(Turns(), subagents=SubAgentRegistry(tmp_path))
    subagents = subagents_of(agent)
    assert subagents._built == {}
    assert subagents.agent("helper-3") is subagents.agent("helper-3")
    assert len(subagents._built) == 1


@dataclass
class Caller:
    user: str


class Total(BaseModel):
    total: int


class Noted(TypedDict):
    note: NotRequired[str]


async def test_options_of_a_deep_agent_do_what_they_do_for_any_agent(capsys):
    seen: list[Any] = []
    store, cache = object(), MemoryCache()

    @before_model
    def watch(state, runtime):
        limit = runtime.meter.limits.model_calls
        seen.append((runtime.context, runtime.store, runtime.agent_name, limit))
        return {"note": "seen"}

    def agent(*turns):
        return create_deep_agent(
            Turns(*turns), middleware=[watch], response_format=Total, state_schema=Noted,
            context_schema=Caller, store=store, cache=cache, limits=Limits(model_calls=1),
            interrupt_before=["model"], interrupt_after=["model"], name="deep", debug=True,
        )  # fmt: skip

    options = RunOptions(context={"user": "ann"})
    for turns in ([says("", call("1", "Total", total=3))], []):  # the second answer is cached
        made = agent(*turns)
        waiting = await made.ainvoke("go", options=options)
        (stop,) = waiting.interrupts
        assert stop.payload["when"] == "before"
        result = await made.aresume(waiting.run.id, options=options)
        assert result.structured_response == Total(total=3)
        assert result.state["note"] == "seen"
    assert set(map(repr, seen)) == {repr((Caller("ann"), store, "deep", 1))}
    assert "model_start" in capsys.readouterr().err


# --- the loop --------------------------------------------------------------------------------


async def test_tools_of_middleware_come_before_those_of_the_caller():
    class Brings(AgentMiddleware):
        tools = (replace(look, name="brought"),)

    model = Turns(says("ok"))
    await create_agent(model, [look], middleware=[Brings()]).ainvoke("go")
    assert [one.name for one in model.requests[0].tools] == ["brought", "look"]  # type: ignore[union-attr]


async def test_a_run_without_an_answer_left_ends():
    @after_model
    def forget(state, runtime):
        return {"messages": [RemoveMessage(state["messages"][-1].id)]}

    model = Turns(says("oops"))
    result = await create_agent(model, [look], middleware=[forget]).ainvoke("go")
    assert (result.run.status, len(model.requests)) == ("done", 1)
    assert not any(isinstance(one, AIMessage) for one in result.state["messages"])


async def test_a_hook_can_see_what_remains_of_the_runs_limits():
    left: list[int] = []

    @before_model
    def count(state, runtime):
        left.append(runtime.meter.remaining().model_calls)

    turns = [says("", call(str(n), "look")) for n in range(2)]
    agent = create_agent(Turns(*turns, says("end")), [look], middleware=[count])
    await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=9)))
    assert left == [9, 8, 7]


@pytest.mark.parametrize("count", [1, 5])
async def test_steps_are_numbered_along_the_thread_and_hooks_of_a_phase_are_at_most_one(count):
    class Hooks(AgentMiddleware):
        state_schema = Noted

        def before_model(self, state, runtime):
            return {"note": "x"}

        def after_model(self, state, runtime):
            return {"note": "y"}

    turns = Turns(says("", call("1", "look")), says("one"), says("two"))
    hooks = [type(f"Hooks{n}", (Hooks,), {})() for n in range(count)]
    agent = create_agent(turns, [look], middleware=hooks)
    for text in "ab":
        await agent.ainvoke(text, thread_id="t")
    history = [*reversed(await agent.get_state_history("t"))]
    assert [one.step for one in history] == list(range(len(history)))
    assert [one.author for one in history] == [
        "input", "model", "hooks", "tools", "model", "hooks", "input", "model", "hooks",
    ]  # fmt: skip


async def test_a_subagent_is_kept_in_the_journal_of_the_run_that_called_it():
    own, journal = MemoryCheckpointer(), MemoryCheckpointer()
    child = create_agent(Turns(says("report")), checkpointer=own, name="child")

    @tool
    async def task(runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(child, "x")).text

    turns = Turns(says("", call("1", "task")), says("done"))
    agent = create_agent(turns, [task], checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t")
    assert result.state["messages"][2].text == "report"
    assert await own.threads() == []
    assert [one.thread_id for one in await journal.threads()] == ["t"]


async def test_a_question_needs_neither_a_journal_nor_a_thread_id_but_data():
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return str(runtime.interrupt("well?", payload={"options": ["a", "b"]}))

    agent = create_agent(Turns(says("", call("1", "ask")), says("ok")), [ask])
    waiting = await agent.ainvoke("go")
    assert waiting.run.thread_id
    (question,) = waiting.interrupts
    assert question.payload == {"options": ["a", "b"]}
    result = await agent.aresume(waiting.run.id, {question.id: "a"})
    assert result.state["messages"][2].text == "a"

    @tool
    async def wrong(runtime: ToolRuntime) -> str:
        """Ask with something that cannot be stored."""
        return str(runtime.interrupt("well?", payload={"live": object()}))  # type: ignore[dict-item]

    result = await create_agent(Turns(says("", call("1", "wrong")), says("ok")), [wrong]).ainvoke(
        "go"
    )
    (told,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert told.status == "error"


async def test_what_a_redactor_removes_from_a_result_is_in_no_stream_and_no_checkpoint():
    class Redacts(AgentMiddleware):
        async def redact(self, request, outcome):
            text = outcome.message.text.replace("hunter2", "[secret]")
            return replace(outcome, message=replace(outcome.message, content=text))

    @tool
    async def show() -> ToolResult:
        """Show."""
        return ToolResult("it is hunter2")

    agent = create_agent(Turns(says("", call("1", "show")), says("ok")), [show],
                         middleware=[Redacts()])  # fmt: skip
    modes = ("values", "updates", "messages", "custom", "checkpoints", "tasks", "debug")
    events, result = await read(agent, *modes)
    assert "[secret]" in result.state["messages"][2].text
    assert any("[secret]" in str(one.data) for one in events if one.mode == "tasks")
    assert not any("hunter2" in str(one.data) for one in events)
