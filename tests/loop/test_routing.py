"""What follows what: the order of hooks, the way of the loop, and jumps."""

import operator
from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.loop.hooks.requests import Command
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.state.channels import Reducer
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(return_direct=True)
async def finish(text: str) -> str:
    """End with a text."""
    return text


def recorder(name: str, log: list[str]) -> AgentMiddleware:
    class Recorder(AgentMiddleware):
        @property
        def name(self):
            return name

        def before_agent(self, state, runtime):
            log.append(f"{name}.before_agent")

        async def before_model(self, state, runtime):
            log.append(f"{name}.before_model")

        def after_model(self, state, runtime):
            log.append(f"{name}.after_model")

        async def after_agent(self, state, runtime):
            log.append(f"{name}.after_agent")

        async def wrap_model_call(self, request, handler):
            log.append(f"{name}>model")
            response = await handler(request)
            log.append(f"{name}<model")
            return response

        async def wrap_tool_call(self, request, handler):
            log.append(f"{name}>tool")
            outcome = await handler(request)
            log.append(f"{name}<tool")
            return outcome

    return Recorder()


async def test_hooks_run_as_an_onion_and_agent_hooks_once_per_run():
    log: list[str] = []
    model = Turns(says("", call("1", "add", a=1, b=2)), says("3"))
    agent = create_agent(model, [add], middleware=[recorder("A", log), recorder("B", log)])
    result = await agent.ainvoke("1+2?")
    assert result.run.status == "done"
    assert result.run.answer == "3"
    a_round = [
        "A.before_model", "B.before_model", "A>model", "B>model", "B<model", "A<model",
        "B.after_model", "A.after_model",
    ]  # fmt: skip
    assert log == [
        "A.before_agent", "B.before_agent",
        *a_round, "A>tool", "B>tool", "B<tool", "A<tool",
        *a_round, "B.after_agent", "A.after_agent",
    ]  # fmt: skip


async def test_a_hook_that_changes_nothing_commits_nothing():
    log: list[str] = []
    model = Turns(says("", call("1", "add", a=1, b=2)), says("3"))
    agent = create_agent(model, [add], middleware=[recorder("A", log)])
    result = await agent.ainvoke("1+2?")
    history = await agent.get_state_history(result.run.thread_id)
    authors = [one.author for one in reversed(history)]
    assert authors == ["input", "model", "tools", "model", "after_agent"]  # the end is a boundary


async def test_results_are_in_call_order_and_a_failing_tool_is_a_result():
    @tool
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("boom")

    model = Turns(
        says("", call("1", "broken"), call("2", "add", a="x", b=1), call("3", "nope"),
             call("4", "add", a=1, b=1)),
        says("ok"),
    )  # fmt: skip
    result = await create_agent(model, [add, broken]).ainvoke("go")
    results = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.tool_call_id for one in results] == ["1", "2", "3", "4"]
    assert [one.status for one in results] == ["error", "error", "error", "success"]
    assert "boom" in results[0].text
    assert "a:" in results[1].text
    assert "was not run" in results[1].text
    assert "Tools: add, broken" in results[2].text
    assert result.run.answer == "ok"


async def test_arguments_that_are_not_json_are_answered_at_once():
    bad = says("", call("1", "add"))
    bad = AIMessage((type(bad.tool_calls[0])("1", "add", invalid='{"a": 1,'),))
    result = await create_agent(Turns(bad, says("sorry")), [add]).ainvoke("go")
    (answer,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert answer.status == "error"
    assert "not a JSON object" in answer.text
    assert result.run.answer == "sorry"


async def test_return_direct_ends_the_run_unless_it_failed():
    model = Turns(says("", call("1", "finish", text="bye")))
    result = await create_agent(model, [finish]).ainvoke("go")
    assert result.run.status == "done"
    assert result.state["messages"][-1].text == "bye"
    model = Turns(says("", call("1", "finish", wrong=1)), says("again"))
    assert (await create_agent(model, [finish]).ainvoke("go")).run.answer == "again"


class Jumper(AgentMiddleware):
    def __init__(self, target, update=None):
        self.target, self.update = target, update or {}


def jumper(hook: str, target: str, declared: tuple[str, ...], update=None) -> AgentMiddleware:
    jumped: list[str] = []

    @hook_config(can_jump_to=declared)  # type: ignore[arg-type]
    def run(self, state, runtime):
        if jumped:
            return None
        jumped.append(hook)
        return Command(update or {}, jump_to=target)  # type: ignore[arg-type]

    return type("Jumper", (AgentMiddleware,), {hook: run})()


async def test_before_model_may_end_the_run_and_its_writes_are_kept():
    stop = jumper("before_model", "end", ("end",), {"messages": [says("no more")]})
    agent = create_agent(Turns(), [add], middleware=[stop])
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    snapshot = await agent.get_state(result.run.thread_id)
    assert snapshot.values["messages"][-1].text == "no more"


async def test_after_agent_may_send_the_run_back_to_the_model():
    again = jumper(
        "after_agent", "model", ("model",), {"messages": [HumanMessage("really?", source="x")]}
    )
    model = Turns(says("first"), says("second"))
    result = await create_agent(model, middleware=[again]).ainvoke("go")
    assert result.run.answer == "second"


@pytest.mark.parametrize(
    ("hook", "target", "declared", "text"),
    [
        ("before_model", "end", (), "without declaring it"),
        ("after_model", "end", (), "without declaring it"),
        ("before_model", "model", ("model",), "never ends"),
        ("before_agent", "tools", ("tools",), "no calls without a result"),
        ("before_model", "__end__", ("end",), "a jump goes to"),
    ],
)
async def test_a_wrong_jump_is_an_error_that_names_the_hook(hook, target, declared, text):
    agent = create_agent(Turns(says("x")), middleware=[jumper(hook, target, declared)])
    result = await agent.ainvoke("go")
    assert result.run.status == "failed"
    assert isinstance(result.error, MiddlewareError)
    assert f"Jumper.{hook}" in str(result.error)
    assert text in str(result.error)


async def test_results_are_in_call_order_though_the_calls_finish_in_another():
    may_finish = [anyio.Event() for _ in range(4)]
    may_finish[-1].set()
    finished: list[int] = []

    class Taken(TypedDict):
        taken: NotRequired[Annotated[list[int], Reducer(operator.add, default=list)]]

    @tool
    async def take(place: int) -> ToolResult:
        """Finish after the call behind this one."""
        await may_finish[place + 1].wait()
        finished.append(place)
        may_finish[place].set()
        return ToolResult(f"took {place}", update={"taken": [place]})

    calls = [call(str(place), "take", place=place) for place in range(3)]
    agent = create_agent(Turns(says("", *calls), says("ok")), [take], state_schema=Taken)
    with anyio.fail_after(60):
        result = await agent.ainvoke("go")
    assert (finished, result.state["taken"]) == ([2, 1, 0], [0, 1, 2])
    results = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert results == ["took 0", "took 1", "took 2"]


async def test_calls_of_an_agent_without_tools_are_answered():
    model = Turns(says("", call("1", "add", a=1, b=2)), says("sorry"))
    result = await create_agent(model).ainvoke("go")
    (answer,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert (answer.status, answer.text.startswith("there is no tool 'add'")) == ("error", True)
    assert result.run.answer == "sorry"


async def test_after_agent_jump_to_end_skips_the_hooks_that_are_left():
    log: list[str] = []
    end = jumper("after_agent", "end", ("end",))
    stack = [recorder("outer", log), end, recorder("inner", log)]
    model = Turns(says("x"))
    result = await create_agent(model, middleware=stack).ainvoke("go")
    assert (result.run.status, len(model.requests)) == ("done", 1)
    assert [one for one in log if "after_agent" in one] == ["inner.after_agent"]


async def test_an_undeclared_state_key_is_an_error_naming_the_hook():
    class Careless(AgentMiddleware):
        def before_model(self, state, runtime):
            return {"counter": 1}

    result = await create_agent(Turns(says("x")), middleware=[Careless()]).ainvoke("go")
    assert result.run.status == "failed"
    assert "Careless.before_model" in str(result.error)
    assert "'counter'" in str(result.error)


async def test_a_hook_that_raises_fails_the_run_and_keeps_what_was_committed():
    class Broken(AgentMiddleware):
        def after_model(self, state, runtime):
            raise KeyError("oops")

    agent = create_agent(Turns(says("paid for")), middleware=[Broken()])
    result = await agent.ainvoke("go")
    assert "Broken.after_model raised KeyError" in str(result.error)
    snapshot = await agent.get_state(result.run.thread_id)
    assert snapshot.values["messages"][-1].text == "paid for"


def test_building_refuses_duplicates_and_types_that_cannot_be_stored():
    class Lock(TypedDict):
        lock: NotRequired[anyio.Event]

    class WithLock(AgentMiddleware):
        state_schema = Lock

    with pytest.raises(AgentBuildError, match="two tools are named 'add'"):
        create_agent(Turns(), [add, add])
    with pytest.raises(AgentBuildError, match="middleware named twice"):
        create_agent(Turns(), middleware=[recorder("A", []), recorder("A", [])])
    with pytest.raises(AgentBuildError, match="'lock' of WithLock"):
        create_agent(Turns(), middleware=[WithLock()])


class Sums(TypedDict):
    total: NotRequired[Annotated[int, Reducer(lambda a, b: a + b, default=int)]]
    last: NotRequired[int]


@pytest.mark.parametrize("first", [1, 2])
async def test_of_parallel_writers_of_a_plain_key_the_one_that_finishes_second_gets_an_error(first):
    written = anyio.Event()

    class Waits(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            if request.call.args["value"] != first:
                await written.wait()
            return await handler(request)

    def wrote(event):
        if event.data.get("event") == "tool_end":
            written.set()

    @tool
    async def note(value: int) -> ToolResult:
        """Note a value."""
        return ToolResult("noted", update={"total": value, "last": value})

    model = Turns(says("", call("1", "note", value=1), call("2", "note", value=2)), says("ok"))
    agent = create_agent(model, [note], middleware=[Waits()], state_schema=Sums)
    with anyio.fail_after(60):
        options = RunOptions(emit=wrote, modes=("tasks",))
        result = await agent.ainvoke("go", options=options)
    told = {one.tool_call_id: one for one in result.state["messages"] if one.type == "tool"}
    assert told[str(first)].status == "success"
    assert told[str(3 - first)].status == "error"
    assert result.state["total"] == result.state["last"] == first
    assert result.run.status == "done"
