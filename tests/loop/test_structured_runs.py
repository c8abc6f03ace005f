"""Structured answers over time: later turns, restarts, subagents, driven calls, limits."""

from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from pydantic import JsonValue

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, InvalidUpdate, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.loop.hooks.requests import ModelResponse
from deep_agent_mcp.harness.state.channels import Mark, Reducer
from deep_agent_mcp.harness.structured_output import StructuredOutputError
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_structured_answers import (
    CITY,
    FINE,
    GOOD,
    Nothing,
    Seen,
    Weather,
    bad,
    good,
    native,
    offered,
)

pytestmark = pytest.mark.anyio


# --- its key in the state ------------------------------------------------------------------


def _declaring(annotation: Any) -> type:
    return TypedDict("Declaring", {"structured_response": NotRequired[annotation]})  # type: ignore[operator,return-value]


@pytest.mark.parametrize(
    ("response_format", "annotation"),
    [
        (Weather, Weather),
        (Weather, Annotated[Weather | None, Mark.OMIT_FROM_INPUT]),
        (Weather | Nothing, Nothing | Weather | None),
        (CITY, JsonValue),
    ],
)
async def test_a_schema_may_repeat_the_type_of_the_answer(response_format, annotation):
    agent = create_agent(
        Turns(good("1")), response_format=response_format, state_schema=_declaring(annotation)
    )
    plain = create_agent(Turns(good("1")), response_format=response_format)
    ours, theirs = (one.definition.schema["structured_response"] for one in (agent, plain))
    assert (ours.owner, ours.marks) == (theirs.owner, theirs.marks)
    if response_format is Weather:
        assert (await agent.ainvoke("go")).structured_response == FINE


@pytest.mark.parametrize(
    ("response_format", "annotation"),
    [
        (Weather, Nothing),
        (Weather, Weather | Nothing),
        (Weather | Nothing, Weather),
        (Weather, Annotated[Weather, Mark.PRIVATE]),
        (Weather, Annotated[Weather, Reducer(lambda old, new: new)]),
        (CITY, str),
    ],
)
def test_a_schema_that_makes_something_else_of_the_answer_is_refused(response_format, annotation):
    class Other(AgentMiddleware):
        state_schema = _declaring(annotation)

    with pytest.raises(AgentBuildError, match="Other declares the state key 'structured_respons"):
        create_agent(Turns(), response_format=response_format, middleware=[Other()])


# --- later turns ---------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
async def test_an_answer_of_an_earlier_turn_does_not_end_or_answer_the_next(durable, tmp_path):
    journal = SqliteCheckpointer(tmp_path / "j.db") if durable else MemoryCheckpointer()
    seen = Seen()
    turns = (good("1"), says("", call("2", "search", query="x")),
             says("", call("3", "Weather", degrees=9)), ModelError("529"))  # fmt: skip

    def agent() -> Agent:
        return create_agent(
            Turns(*turns), seen.tools(), response_format=Weather, checkpointer=journal
        )

    try:
        assert (await agent().ainvoke("a", thread_id="t")).structured_response == FINE
        second = await agent().ainvoke("b", thread_id="t")
        assert (second.structured_response, seen) == (Weather(degrees=9), ["x"])
        failed = await agent().ainvoke("c", thread_id="t")
        assert (failed.run.status, failed.structured_response) == ("failed", None)
        assert (await agent().get_state("t")).values["structured_response"] is None
    finally:
        if isinstance(journal, SqliteCheckpointer):
            await journal.close()


async def test_a_turn_that_ends_before_the_model_has_no_answer():
    class Bounce(AgentMiddleware):
        @hook_config(can_jump_to=["end"])
        def before_agent(self, state, runtime):
            return {"jump_to": "end"} if state["messages"][-1].text == "b" else None

    agent = create_agent(Turns(good()), [], response_format=Weather, middleware=[Bounce()])
    await agent.ainvoke("a", thread_id="t")
    result = await agent.ainvoke("b", thread_id="t")
    assert (result.run.status, result.structured_response) == ("done", None)


async def test_the_value_can_be_set_by_an_author_but_not_by_input():
    agent = create_agent(Turns(good()), [], response_format=Weather)
    with pytest.raises(InvalidUpdate, match="'structured_response' cannot be set"):
        await agent.ainvoke({"messages": [], "structured_response": FINE})
    await agent.ainvoke("a", thread_id="t")
    await agent.update_state("t", {"structured_response": {"degrees": 7}})
    assert (await agent.get_state("t")).values["structured_response"] == Weather(degrees=7)


async def test_a_run_that_failed_on_repairs_can_be_resumed():
    turns = [bad(f"b{n}") for n in range(4)]
    journal = MemoryCheckpointer()
    first = create_agent(Turns(*turns), [], response_format=Weather, checkpointer=journal)
    failed = await first.ainvoke("go")
    assert failed.run.status == "failed"
    model = Turns(*turns[:3], bad("again"), good("fine"))
    second = create_agent(model, [], response_format=Weather, checkpointer=journal)
    still = await second.aresume(failed.run.id)  # its repairs are used up: one attempt only
    assert (still.run.status, len(model.requests)) == ("failed", 1)
    model.turns = (*turns[:3], good("fine"))
    done = await second.aresume(failed.run.id)
    assert (done.run.status, done.structured_response) == ("done", FINE)


async def test_the_count_of_repairs_survives_a_restart():
    journal = MemoryCheckpointer()
    turns: list[Any] = [bad("1"), bad("2"), ModelError("529"), *(bad(str(n)) for n in range(3, 9))]
    first = create_agent(Turns(*turns), [], response_format=Weather, checkpointer=journal)
    failed = await first.ainvoke("go")
    assert isinstance(failed.error, ModelError)
    model = Turns(*turns[:2], *turns[3:])
    second = create_agent(model, [], response_format=Weather, checkpointer=journal)
    result = await second.aresume(failed.run.id)
    assert isinstance(result.error, StructuredOutputError)
    assert len(model.requests) == 2


# --- wrappers ------------------------------------------------------------------------------


class Narrow(AgentMiddleware):
    def __init__(self, schema: Any) -> None:
        self.schema = schema

    async def wrap_model_call(self, request, handler):
        return await handler(request.override(response_format=self.schema))


async def test_a_wrapper_narrows_what_one_call_may_answer():
    model = Turns(says("", call("1", "Nothing", reason="x")), good("2"))
    agent = create_agent(model, [], response_format=Weather | Nothing, middleware=[Narrow(Weather)])
    result = await agent.ainvoke("go")
    assert result.structured_response == FINE
    assert offered(model) == ["Weather"]
    refused = next(one for one in model.requests[1].messages if one.type == "tool")
    assert "only Weather" in refused.text


async def test_a_wrapper_cannot_bring_a_schema_of_its_own():
    model = Turns(good())
    agent = create_agent(model, [], response_format=Weather, middleware=[Narrow(Nothing)])
    result = await agent.ainvoke("go")
    assert result.run.status == "failed"
    assert "Nothing was not declared" in str(result.error)
    assert model.requests == []


async def test_a_wrapper_may_give_the_answer_itself():
    class Known(AgentMiddleware):
        async def wrap_model_call(self, request, handler):
            return ModelResponse(says("known"), structured_response=FINE)

    model = Turns()
    agent = create_agent(model, Seen().tools(), response_format=Weather, middleware=[Known()])
    result = await agent.ainvoke("go")
    assert (result.run.status, result.structured_response) == ("done", FINE)
    assert model.requests == []


async def test_a_retrying_wrapper_gets_each_failure_of_the_answer():
    errors: list[StructuredOutputError] = []

    class Retry(AgentMiddleware):
        async def wrap_model_call(self, request, handler):
            try:
                return await handler(request)
            except StructuredOutputError as error:
                errors.append(error)
                return await handler(request)

    answers = iter([says("prose"), bad(), bad("c"), bad("d"), bad("e"), good("f")])
    model = Turns(*[lambda _: next(answers)] * 9)
    agent = create_agent(model, [], response_format=Weather, middleware=[Retry()])
    result = await agent.ainvoke("go")
    assert result.structured_response == FINE
    assert len(errors) == 1


# --- subagents, driven calls ---------------------------------------------------------------


def with_child(child: Agent, *turns: Any, **more: Any) -> Agent:
    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        if result.failed:
            return ToolResult(result.failed, status="error")
        return ToolResult(result.text)

    return create_agent(Turns(*turns), [task], name="main", **more)


async def test_a_subagents_answer_reaches_its_parent_as_json():
    child = create_agent(Turns(bad(), good()), [], response_format=Weather, name="child")
    agent = with_child(child, says("", call("p", "task", description="x")), says("thanks"))
    result = await agent.ainvoke("go")
    assert result.state["messages"][2].text == '{"degrees": 3.0}'
    assert result.run.answer == "thanks"


async def test_a_subagents_answer_is_not_its_parents():
    child = create_agent(Turns(good()), [], response_format=Weather, name="child")
    answer = says("", call("n", "Nothing", reason="done"))
    agent = with_child(
        child, says("", call("p", "task", description="x")), answer, response_format=Nothing
    )
    result = await agent.ainvoke("go")
    assert result.structured_response == Nothing(reason="done")


async def test_a_subagent_that_gives_no_answer_is_an_error_result():
    child = create_agent(
        Turns(*[bad(str(n)) for n in range(9)]), [], response_format=Weather, name="child"
    )
    agent = with_child(child, says("", call("p", "task", description="x")), says("oh"))
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert "No structured output after 4 tries" in result.state["messages"][2].text


async def test_driven_calls_owe_no_answer_and_do_not_touch_one():
    seen = Seen()
    agent = create_agent(Turns(good()), seen.tools(), response_format=Weather)
    await agent.ainvoke("a", thread_id="t")
    driven = await agent.adrive([call("d", "search", query="x")], thread_id="t")
    assert (driven.run.status, [one.text for one in driven.results]) == ("done", ["found x"])
    assert (await agent.get_state("t")).values["structured_response"] == FINE
    refused = await agent.adrive([call("e", "Weather", **GOOD)], thread_id="t")
    assert refused.results[0].status == "error"
    assert "no tool 'Weather'" in refused.results[0].text


# --- limits --------------------------------------------------------------------------------


async def test_the_last_turn_gives_the_answer_through_a_tool():
    seen = Seen()
    work = [says("", call(str(n), "search", query=str(n))) for n in range(3)]
    model = Turns(*work[:2], good())
    agent = create_agent(model, seen.tools(), response_format=Weather)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=3)))
    assert (result.run.status, result.structured_response) == ("done", FINE)
    assert offered(model) == ["Weather"]
    assert result.run.reason is not None
    assert result.run.reason.startswith("wrapped up")


async def test_the_last_turn_gives_the_answer_natively_without_tools():
    work = [says("", call(str(n), "search", query=str(n))) for n in range(2)]
    model = native(*work, says('{"degrees": 3}'))
    agent = create_agent(model, Seen().tools(), response_format=Weather)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=3)))
    assert (result.run.status, result.structured_response) == ("done", FINE)
    assert model.requests[-1].tool_choice == "none"
    assert model.requests[-1].output_schema is not None


async def test_repairs_count_against_the_limits():
    model = Turns(*[bad(str(n)) for n in range(9)])
    agent = create_agent(model, [], response_format=Weather)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=2)))
    assert (result.run.status, result.stop_reason) == ("failed", "model_calls")
    assert len(model.requests) == 2
