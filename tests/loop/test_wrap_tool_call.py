"""What `wrap_tool_call` may do with a call."""

from dataclasses import replace

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import MiddlewareError
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_model_call, wrap_tool_call
from deep_agent_mcp.harness.loop.hooks.requests import Command, ToolCallOutcome
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.arithmetic import Sums, add, multiply
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


def wrap(function, name=None):
    return wrap_tool_call(name=name or function.__name__, state_schema=Sums)(function)


def results(result) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


ADD = call("1", "add", a=2, b=3)


async def run(*middleware, calls=(ADD,), tools=(add, multiply), **options):
    model = Turns(says("", *calls), says("end"))
    agent = create_agent(model, tools, middleware=middleware, **options)
    return await agent.ainvoke("go", thread_id="t")


# --- wrappers ------------------------------------------------------------------------------


async def test_a_wrapper_sees_call_tool_state_and_runtime():
    seen = []

    async def look(request, handler):
        seen.append(request)
        return await handler(request)

    result = await run(wrap(look))
    assert [one.text for one in results(result)] == ["5"]
    (request,) = seen
    assert (request.call, request.tool) == (ADD, add)
    assert [one.text for one in request.state["messages"]] == ["go", ""]
    assert request.runtime.tool_call_id == "1"
    assert request.runtime.agent_path == ("agent", "1")


async def test_arguments_and_tool_may_be_changed_and_the_result_carries_the_new_name():
    async def swap(request, handler):
        changed = replace(request.call, name="multiply", args={"a": 10, "b": 3})
        return await handler(request.override(call=changed))

    (one,) = results(await run(wrap(swap)))
    assert (one.tool_call_id, one.name, one.text) == ("1", "multiply", "30")


async def test_three_wrappers_nest_and_each_may_change_the_result():
    def layer(name):
        async def mark(request, handler):
            outcome = await handler(request)
            text = f"{name}({outcome.message.text})"
            return replace(outcome, message=replace(outcome.message, content=text))

        return wrap(mark, name)

    (one,) = results(await run(layer("A"), layer("B"), layer("C")))
    assert one.text == "A(B(C(5)))"


async def test_a_call_may_be_answered_without_the_tool_and_results_cached():
    ran, shelf = [], {}

    @tool
    async def slow(n: int) -> str:
        """Be slow."""
        ran.append(n)
        return f"slow {n}"

    async def cached(request, handler):
        key = request.call.args["n"]
        if key not in shelf:
            shelf[key] = (await handler(request)).message.text
        return ToolMessage(request.call.id, shelf[key])

    model = Turns(says("", call("1", "slow", n=1)), says("", call("2", "slow", n=1)), says("end"))
    result = await create_agent(model, [slow], middleware=[wrap(cached)]).ainvoke("go")
    assert ran == [1]
    assert [(one.tool_call_id, one.name, one.text) for one in results(result)] == [
        ("1", "slow", "slow 1"),
        ("2", "slow", "slow 1"),
    ]


async def test_a_wrapper_may_try_again_while_siblings_keep_their_results():
    attempts = []

    @tool
    async def flaky(name: str) -> str:
        """Fail twice."""
        attempts.append(name)
        if attempts.count(name) < 3 and name == "b":
            raise OSError("not yet")
        return name

    async def retry(request, handler):
        for _ in range(3):
            outcome = await handler(request)
            if outcome.message.status == "success":
                break
        return outcome

    calls = [call(name, "flaky", name=name) for name in "abc"]
    result = await run(wrap(retry), calls=calls, tools=[flaky])
    assert [one.text for one in results(result)] == ["a", "b", "c"]
    assert sorted(attempts) == ["a", "b", "b", "b", "c"]


async def test_a_command_of_a_wrapper_brings_state_and_the_result():
    async def count(request, handler):
        outcome = await handler(request)
        note = HumanMessage("counted", source="count")
        return Command({"messages": [outcome.message, note], "total": 5})

    result = await run(wrap(count))
    assert result.state["total"] == 5
    assert [one.text for one in result.state["messages"]] == ["go", "", "5", "counted", "end"]


async def test_a_list_of_a_wrapper_is_one_result():
    async def both(request, handler):
        outcome = await handler(request)
        return [Command({"total": 1}), outcome.message, Command({"last": 2})]

    result = await run(wrap(both))
    assert (result.state["total"], result.state["last"]) == (1, 2)
    assert [one.text for one in results(result)] == ["5"]


@pytest.mark.parametrize(
    ("nonsense", "text"),
    [
        (None, "without the call's result"),
        ("five", "without the call's result"),
        (Command({"total": 1}), "without the call's result"),
        ([], "without the call's result"),
        (ToolMessage("2", "five"), "answered another call than its own: 2"),
        (ToolCallOutcome(ToolMessage("2", "five")), "must keep the call's id"),
        ([ToolMessage("1", "a"), ToolMessage("1", "b")], "2 results for one call"),
        (Command({"messages": [ToolMessage("1", "a")]}, jump_to="end"), "only hooks jump"),
        ([ToolMessage("1", "a"), "b"], "with a str in it"),
    ],
)
async def test_a_wrapper_that_returns_nonsense_ends_the_run_by_name(nonsense, text):
    async def odd(request, handler):
        return nonsense

    result = await run(wrap(odd))
    assert isinstance(result.error, MiddlewareError)
    assert text in str(result.error)
    assert "odd.wrap_tool_call" in str(result.error) or "call 1" in str(result.error)
    assert results(result) == []


async def test_a_wrapper_cannot_give_a_call_another_id_and_nothing_runs():
    ran = []

    @tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "done"

    async def rename(request, handler):
        return await handler(request.override(call=replace(request.call, id="other")))

    result = await run(wrap(rename), calls=[call("1", "act")], tools=[act])
    assert isinstance(result.error, MiddlewareError)
    assert "into 'other'; nothing was run" in str(result.error)
    assert ran == []


async def test_what_a_wrapper_raises_ends_the_run_and_finished_siblings_stay():
    async def broken(request, handler):
        if request.call.id == "2":
            raise KeyError("oops")
        return await handler(request)

    calls = [ADD, call("2", "add", a=1, b=1)]
    model = Turns(says("", *calls), says("end"))
    agent = create_agent(model, [add], middleware=[wrap(broken)])
    result = await agent.ainvoke("go", thread_id="t")
    assert str(result.error) == "broken.wrap_tool_call raised KeyError: 'oops'"
    assert (await agent.get_state("t")).finished_calls == ("1",)


# --- tools that the agent does not have ----------------------------------------------------


@tool
async def late(text: str) -> str:
    """Come late."""
    return f"late {text}"


def offering(*tools):
    @wrap_model_call(name="offer")
    async def offer(request, handler):
        return await handler(request.override(tools=[*request.tools, *tools]))

    return offer


async def supply(request, handler):
    if request.call.name == "late":
        assert request.tool is None
        request = request.override(tool=late)
    return await handler(request)


LATE = call("1", "late", text="x")


async def test_a_tool_may_be_offered_by_one_wrapper_and_supplied_by_another():
    model = Turns(says("", LATE, call("2", "add", a=1, b=1)), says("end"))
    agent = create_agent(model, [add], middleware=[offering(late), wrap(supply)])
    result = await agent.ainvoke("go")
    assert [one.text for one in results(result)] == ["late x", "2"]
    assert [one.name for one in model.requests[0].tools] == ["add", "late"]


async def test_a_supplied_tool_passes_validation_and_gate():
    wrong = await run(offering(late), wrap(supply), calls=[call("1", "late", wrong=1)])
    assert "was not run" in results(wrong)[0].text
    policy = Policy((Rule("deny", "late"),))
    denied = await run(offering(late), wrap(supply), calls=[LATE], policy=policy)
    assert "was refused" in results(denied)[0].text


async def test_a_tool_that_nobody_would_run_is_not_offered():
    model = Turns(says("", LATE))
    result = await create_agent(model, [add], middleware=[offering(late)]).ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert "offers late, which the agent does not have" in str(result.error)
    assert model.requests == []


async def test_tools_added_to_a_list_that_was_offered_before_are_looked_at_too():
    offered = [add]

    @wrap_model_call(name="grow")
    async def grow(request, handler):
        return await handler(request.override(tools=offered))

    def second(request):
        offered.append(late)
        return says("", ADD)

    model = Turns(says("", ADD), second, says("end"))
    result = await create_agent(model, [add], middleware=[grow]).ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert "offers late, which the agent does not have" in str(result.error)
    assert len(model.requests) == 2


async def test_an_offered_tool_that_nobody_supplies_is_an_unknown_tool():
    async def passing(request, handler):
        return await handler(request)

    result = await run(offering(late), wrap(passing), calls=[LATE])
    assert results(result)[0].text.startswith("there is no tool 'late'; nothing was run.")
    assert result.run.status == "done"


async def test_offered_tools_may_be_taken_away_and_come_back_per_call():
    @wrap_model_call(name="narrow")
    async def narrow(request, handler):
        first = len(request.messages) == 1
        tools = [] if first else [one for one in request.tools if one.name == "multiply"]
        return await handler(request.override(tools=tools))

    model = Turns(says("", ADD), says("end"))
    result = await create_agent(model, [add, multiply], middleware=[narrow]).ainvoke("go")
    assert [[one.name for one in request.tools] for request in model.requests] == [
        [],
        ["multiply"],
    ]
    assert result.run.status == "done"
