"""A model that goes in circles costs little: every default deep agent stops it, with a reason."""

from collections.abc import Callable

import pytest

from deep_agent_mcp.harness.agent import RunOptions
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

MANY = 400


@tool
async def weather(city: str) -> str:
    """Say the weather."""
    return "rain"


@tool
async def fails(attempt: int = 0) -> ToolResult:
    """Fail."""
    return ToolResult("the service is down", status="error")


def numbered(make: Callable[[int], AIMessage]) -> Turns:
    def turn(request: ChatRequest) -> AIMessage:
        return make(sum(isinstance(one, AIMessage) for one in request.messages))

    return Turns(*[turn] * MANY)


LOOPS: dict[str, Callable[[int], AIMessage]] = {
    "the same call": lambda n: says("", call(f"c{n}", "weather", city="Rome")),
    "two calls in turn": lambda n: says("", call(f"c{n}", "weather", city=("Rome", "Oslo")[n % 2])),
    "the same calls side by side": lambda n: says(
        "", *(call(f"c{n}{city}", "weather", city=city) for city in ("Rome", "Oslo"))
    ),
    "another call and the same error": lambda n: says("", call(f"c{n}", "fails", attempt=n)),
    "a tool that is not there": lambda n: says("", call(f"c{n}", "no_such_tool", number=n)),
    "arguments that do not fit": lambda n: says("", call(f"c{n}", "weather", town="Rome")),
    "a file that is not there": lambda n: says("", call(f"c{n}", "read_file", path="/nope.txt")),
    "an edit that cannot be made": lambda n: says(
        "", call(f"c{n}", "edit_file", path="/nope.txt", old_string="a", new_string="b")
    ),
    "the same todo list": lambda n: says(
        "", call(f"c{n}", "write_todos", todos=[{"content": "one"}])
    ),
}


@pytest.mark.parametrize("kind", LOOPS)
async def test_a_default_deep_agent_stops_a_model_that_goes_in_circles(kind: str) -> None:
    model = numbered(LOOPS[kind])
    result = await create_deep_agent(model, [weather, fails]).ainvoke("go")
    assert len(model.requests) < 30
    assert result.run.status in ("done", "failed")
    assert result.run.reason or result.run.answer
    paired = [one.tool_call_id for one in result.state["messages"] if isinstance(one, ToolMessage)]
    made = [
        one.id
        for message in result.state["messages"]
        if isinstance(message, AIMessage)
        for one in message.tool_calls
    ]
    assert sorted(paired) == sorted(made)


@pytest.mark.parametrize("kind", ["the same call", "another call and the same error"])
async def test_a_subagent_that_goes_in_circles_is_stopped_and_its_caller_goes_on(
    kind: str,
) -> None:
    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent == "main":
            return says("", call("t", "task", description="loop")) if not place else says("done")
        return LOOPS[kind](place)

    model = Turns(*[turn] * MANY)
    result = await create_deep_agent(model, [weather, fails]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done"), result.error
    assert len(model.requests) < 32


async def test_work_that_makes_progress_is_not_taken_for_a_circle() -> None:
    cities = [f"city {number}" for number in range(60)]

    def work(place: int) -> AIMessage:
        if place == len(cities):
            return says("done")
        return says("", call(f"c{place}", "weather", city=cities[place]))

    result = await create_deep_agent(numbered(work), [weather]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done")


async def test_a_limit_holds_for_the_calls_of_all_agents_together_in_a_deep_agent() -> None:
    """The tree costs no more than allowed, however the work is spread over subagents."""

    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent == "main":
            return says("", *(call(f"t{place}{one}", "task", description=one) for one in "abc"))
        return says("", call(f"c{place}", "weather", city=f"{request.messages[0].text}{place}"))

    model = Turns(*[turn] * MANY)
    agent = create_deep_agent(model, [weather])
    options = RunOptions(limits=Limits(model_calls=12, tool_calls=MANY))
    result = await agent.ainvoke("go", options=options)
    assert len(model.requests) <= 12
    assert result.used.model_calls == len(model.requests)
    assert result.run.status in ("done", "failed")
