"""Structured output through an agent: kinds of schemas, work with tools, repair and failure."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.structured_output import (
    AutoStrategy,
    MultipleStructuredOutputsError,
    ProviderStrategy,
    StructuredOutputError,
    StructuredOutputValidationError,
    ToolStrategy,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Weather(BaseModel):
    """The weather."""

    degrees: float = Field(ge=-90)


class Nothing(BaseModel):
    """There is none."""

    reason: str


@dataclass
class Point:
    x: int


class Row(TypedDict):
    name: str


CITY: dict[str, Any] = {
    "title": "City",
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}},
    "required": ["size"],
}
FINE = Weather(degrees=3)
GOOD, BAD = {"degrees": 3}, {"degrees": -100}


def good(call_id: str = "w") -> AIMessage:
    return says("", call(call_id, "Weather", **GOOD))


def bad(call_id: str = "b") -> AIMessage:
    return says("", call(call_id, "Weather", **BAD))


def native(*turns: Any) -> Turns:
    model = Turns(*turns)
    model.native_output = True
    return model


class Seen(list[str]):
    def tools(self) -> list[Any]:
        @tool
        async def search(query: str) -> str:
            """Search."""
            self.append(query)
            return f"found {query}"

        return [search]


def offered(model: Turns, at: int = -1) -> list[str]:
    return [one.name for one in model.requests[at].tools]  # type: ignore[union-attr]


# --- kinds of schemas and strategies -------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "name", "args", "value"),
    [
        (Weather, "Weather", GOOD, FINE),
        (Point, "Point", {"x": 1}, Point(1)),
        (Row, "Row", {"name": "a"}, {"name": "a"}),
        (CITY, "City", {"size": 2}, {"size": 2}),
        (Weather | Nothing, "Nothing", {"reason": "dark"}, Nothing(reason="dark")),
        ({"oneOf": [CITY, {**CITY, "title": "Sea"}]}, "Sea", {"size": 3}, {"size": 3}),
    ],
)
async def test_every_kind_of_schema_gives_a_typed_value_and_comes_back_from_the_journal(
    schema, name, args, value, tmp_path
):
    journal = SqliteCheckpointer(tmp_path / "j.db")
    try:
        model = Turns(says("", call("1", name, **args)))
        agent = create_agent(model, [], response_format=schema, checkpointer=journal)
        result = await agent.ainvoke("go", thread_id="t")
        assert (result.run.status, result.structured_response) == ("done", value)
        reborn = create_agent(Turns(), [], response_format=schema, checkpointer=journal)
        stored = (await reborn.get_state("t")).values["structured_response"]
        assert (stored, type(stored)) == (value, type(value))
        (told,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
        assert (told.tool_call_id, told.status) == ("1", "success")
    finally:
        await journal.close()


async def test_a_model_with_native_output_is_held_to_the_schema_instead():
    model = native(says('{"degrees": 3}'))
    agent = create_agent(model, Seen().tools(), response_format=Weather)
    result = await agent.ainvoke("go")
    assert result.structured_response == FINE
    assert model.requests[0].output_schema is not None
    assert offered(model) == ["search"]
    assert [one.type for one in result.state["messages"]] == ["human", "ai"]


async def test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked():
    other = native(says('{"degrees": 3}'))

    class Swap(AgentMiddleware):
        async def wrap_model_call(self, request, handler):
            return await handler(request.override(model=other))

    plain = Turns()
    agent = create_agent(plain, [], response_format=AutoStrategy(Weather), middleware=[Swap()])
    assert (await agent.ainvoke("go")).structured_response == FINE
    assert plain.requests == []
    assert offered(other) == []
    agent = create_agent(plain, [], response_format=ToolStrategy(Weather), middleware=[Swap()])
    other.turns = [good()]
    assert (await agent.ainvoke("go")).structured_response == FINE
    assert offered(other) == ["Weather"]


async def test_a_strategy_the_model_cannot_do_fails_before_it_is_asked():
    model = Turns(says("x"))
    agent = create_agent(model, [], response_format=ProviderStrategy(Weather))
    result = await agent.ainvoke("go")
    assert result.run.status == "failed"
    assert isinstance(result.error, StructuredOutputError)
    assert "no native structured output" in str(result.error)
    assert model.requests == []


def test_a_schema_with_the_name_of_a_tool_is_refused_at_build():
    @tool(name="Weather")
    async def weather() -> str:
        """Tell."""
        return ""

    with pytest.raises(AgentBuildError, match="'Weather'"):
        create_agent(Turns(), [weather], response_format=Weather)


# --- together with tools -------------------------------------------------------------------


async def test_after_work_with_tools_the_answer_ends_the_run():
    seen = Seen()
    model = Turns(says("", call("1", "search", query="x")), good())
    result = await create_agent(model, seen.tools(), response_format=Weather).ainvoke("go")
    assert (seen, result.structured_response) == (["x"], FINE)
    assert [one.tool_choice for one in model.requests] == ["any", "any"]
    assert offered(model) == ["search", "Weather"]


@pytest.mark.parametrize("first", ["search", "Weather"])
async def test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run(first):
    seen, model = Seen(), Turns()
    calls = [call("1", "search", query="x"), call("2", "Weather", **GOOD)]
    model.turns = [says("", *(calls if first == "search" else calls[::-1]))]
    result = await create_agent(model, seen.tools(), response_format=Weather).ainvoke("go")
    assert (result.run.status, seen, result.structured_response) == ("done", ["x"], FINE)
    assert len(model.requests) == 1
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert sorted(one.tool_call_id for one in told) == ["1", "2"]


async def test_of_an_answer_only_the_calls_that_no_hook_answered_run():
    class Rejects(AgentMiddleware):
        def after_model(self, state, runtime):
            first, *_ = state["messages"][-1].tool_calls or (None,)
            if first is None:
                return None
            return {"messages": [ToolMessage(first.id, "rejected", first.name, "error")]}

    seen = Seen()
    both = says("", call("1", "search", query="x"), call("2", "search", query="y"))
    agent = create_agent(Turns(both, says("ok")), seen.tools(), middleware=[Rejects()])
    result = await agent.ainvoke("go")
    assert seen == ["y"]
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [(one.tool_call_id, one.text) for one in told] == [("1", "rejected"), ("2", "found y")]


async def test_an_answer_beside_a_call_that_waits_is_kept_until_the_run_ends():
    seen, model = Seen(), Turns()
    model.turns = [says("", call("1", "search", query="x"), call("2", "Weather", **GOOD))]
    agent = create_agent(
        model, seen.tools(), response_format=Weather, policy=Policy((Rule("ask", "search"),))
    )
    waiting = await agent.ainvoke("go")
    assert (waiting.run.status, seen) == ("needs_approval", [])
    (question,) = waiting.interrupts
    done = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert (done.run.status, seen, done.structured_response) == ("done", ["x"], FINE)
    assert len(model.requests) == 1


async def test_a_refused_answer_beside_a_call_goes_back_to_the_model_with_its_result():
    seen = Seen()
    both = says("", call("1", "search", query="x"), call("2", "Weather", **BAD))
    model = Turns(both, good())
    result = await create_agent(model, seen.tools(), response_format=Weather).ainvoke("go")
    assert (seen, result.structured_response) == (["x"], FINE)
    results = {m.tool_call_id: m for m in model.requests[1].messages if isinstance(m, ToolMessage)}
    assert results["1"].text == "found x"
    assert results["2"].status == "error"


async def test_a_tool_that_returns_directly_ends_the_run_without_an_answer():
    @tool(return_direct=True)
    async def final() -> str:
        """End."""
        return "direct"

    agent = create_agent(Turns(says("", call("1", "final"))), [final], response_format=Weather)
    result = await agent.ainvoke("go")
    assert (result.run.status, result.structured_response) == ("done", None)
    assert result.state["messages"][-1].text == "direct"
    both = says("", call("1", "final"), call("2", "Weather", **GOOD))
    agent = create_agent(Turns(both), [final], response_format=Weather)
    result = await agent.ainvoke("go")
    assert (result.run.status, result.structured_response) == ("done", FINE)


async def test_a_hook_sees_the_value_and_may_send_the_run_back():
    class Warmer(AgentMiddleware):
        @hook_config(can_jump_to=["model"])
        def after_agent(self, state, runtime):
            if state["structured_response"].degrees < 5:
                return {"messages": [HumanMessage("warmer")], "jump_to": "model"}
            return None

    model = Turns(good(), says("", call("2", "Weather", degrees=20)))
    agent = create_agent(model, [], response_format=Weather, middleware=[Warmer()])
    result = await agent.ainvoke("go")
    assert result.structured_response == Weather(degrees=20)
    assert len(model.requests) == 2


# --- prose, repair, failure ----------------------------------------------------------------


async def test_prose_is_followed_by_one_forced_call():
    model = Turns(says("It is 3 degrees."), good())
    agent = create_agent(model, Seen().tools(), response_format=Weather)
    result = await agent.ainvoke("go")
    assert result.structured_response == FINE
    assert (model.requests[1].tool_choice, offered(model)) == ("Weather", ["Weather"])


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("wrong", ["misfit", "prose", "twice", "native"])
async def test_repair_is_bounded_and_the_failure_holds_the_last_attempt(wrong, tools):
    def turn(number: int) -> AIMessage:
        match wrong:
            case "misfit":
                return bad(f"b{number}")
            case "twice":
                calls = (call(f"{number}{k}", "Weather", **GOOD) for k in "ab")
                return says("", *calls)
            case _:
                return says(f"no {number}")

    turns = [turn(number) for number in range(20)]
    model = (native if wrong == "native" else Turns)(*turns)
    agent = create_agent(model, Seen().tools() if tools else [], response_format=Weather)
    result = await agent.ainvoke("go")
    asked = 5 if wrong == "prose" else 4  # the first prose is only asked to be a call
    assert len(model.requests) == asked
    assert (result.run.status, result.structured_response) == ("failed", None)
    error = result.error
    assert isinstance(error, StructuredOutputError)
    assert error.attempt is not None
    assert error.attempt.content == turns[asked - 1].content
    assert str(error) == result.run.reason
    assert f"after {asked} tries" in str(error)


@pytest.mark.parametrize("kind", [ToolStrategy, AutoStrategy])
async def test_so_many_repairs_are_allowed_as_is_said(kind):
    model = Turns(bad("1"), bad("2"), good())
    agent = create_agent(model, [], response_format=kind(Weather, max_repairs=2))
    assert (await agent.ainvoke("go")).structured_response == FINE
    agent = create_agent(Turns(bad()), [], response_format=kind(Weather, max_repairs=0))
    assert (await agent.ainvoke("go")).run.status == "failed"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (bad(), StructuredOutputValidationError),
        (
            says("", call("1", "Weather", **GOOD), call("2", "Weather", **GOOD)),
            MultipleStructuredOutputsError,
        ),
    ],
)
async def test_without_repair_the_kind_of_error_says_what_was_wrong(answer, kind):
    strategy = ToolStrategy(Weather, handle_errors=False)
    result = await create_agent(Turns(answer), [], response_format=strategy).ainvoke("go")
    assert result.run.status == "failed"
    assert type(result.error) is kind
    assert result.error.attempt is not None


async def test_texts_of_ones_own_reach_the_model_and_the_transcript():
    strategy = ToolStrategy(Weather, tool_message="noted", handle_errors="nope")
    model = Turns(bad(), good())
    result = await create_agent(model, [], response_format=strategy).ainvoke("go")
    told = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert told == ["nope", "noted"]
