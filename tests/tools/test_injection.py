"""What the harness fills in is hidden from the model and cannot be set by it."""

from typing import Annotated, Any, Optional

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.tools.tool import Injected, InvalidArguments, Tool, ToolRuntime, tool
from tests.tools.calls import properties, runtime, value

pytestmark = pytest.mark.anyio


def by_type(query: str, ctx: ToolRuntime) -> str:
    return f"{query} {ctx.tool_call_id}"


def by_optional_type(query: str, ctx: ToolRuntime | None = None) -> str:
    return f"{query} {ctx.tool_call_id if ctx else None}"


def by_old_optional_type(query: str, ctx: Optional[ToolRuntime] = None) -> str:  # noqa: UP045
    return f"{query} {ctx.tool_call_id if ctx else None}"


def by_name(query: str, runtime) -> str:
    return f"{query} {runtime.tool_call_id}"


def by_text(query: str, ctx: "ToolRuntime") -> str:
    return f"{query} {ctx.tool_call_id}"


async def by_mark(query: str, which: Annotated[str, Injected.TOOL_CALL_ID]) -> str:
    return f"{query} {which}"


def by_place(ctx: ToolRuntime, query: str, /) -> str:
    return f"{query} {ctx.tool_call_id}"


WAYS = [by_type, by_optional_type, by_old_optional_type, by_name, by_text, by_mark, by_place]


@pytest.mark.parametrize("function", WAYS)
async def test_injected_parameters_are_filled_in_and_hidden(function):
    made = tool(function)
    assert list(properties(made)) == ["query"]
    assert await value(made, query="x") == "x call_1"


@pytest.mark.parametrize("function", WAYS)
def test_the_model_cannot_set_them_and_errors_do_not_tell_of_them(function):
    made = tool(function)
    for name in ("ctx", "runtime", "which"):
        with pytest.raises(InvalidArguments, match="Extra inputs"):
            made.validate({"query": "x", name: "forged"})
    with pytest.raises(InvalidArguments) as caught:
        made.validate({})
    assert "query: Field required" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("ctx", "runtime", "which", "call_1"))


async def test_each_mark_gets_its_part_of_the_runtime():
    @tool
    def take(
        state: Annotated[dict[str, Any], Injected.STATE],
        call: Annotated[str, Injected.TOOL_CALL_ID],
        context: Annotated[Any, Injected.CONTEXT],
        store: Annotated[object, Injected.STORE],
        everything: Annotated[Any, Injected.RUNTIME],
    ) -> list[Any]:
        return [state["todos"], call, context, store, everything.run_id]

    assert properties(take) == {}
    call = take.function({}, runtime(store="the store"))
    assert await call == [["t"], "call_1", {"user": "ann"}, "the store", "run_1"]


async def test_an_annotated_parameter_named_runtime_is_the_models():
    @tool
    def plan(runtime: int) -> int:
        return runtime

    assert await value(plan, runtime=3) == 3


async def test_calls_at_the_same_time_get_their_own_runtime():
    made = tool(by_type)
    args = made.validate({"query": "x"})
    answers = [await made.function(args, runtime(tool_call_id=name)) for name in ("a", "b")]
    assert answers == ["x a", "x b"]


async def test_tools_from_models_and_schemas_are_given_it_too():
    class Query(BaseModel):
        text: str

    made = Tool.from_model(Query, lambda query, runtime: f"{query.text} {runtime.run_id}")
    assert await value(made, text="x") == "x run_1"
    made = Tool.from_schema(
        "query", "Ask.", {"type": "object"}, lambda runtime, args: f"{args} {runtime.run_id}"
    )
    assert await value(made, a=1) == "{'a': 1} run_1"


def test_a_runtime_outside_of_a_loop_has_defaults():
    made = runtime()
    assert (made.store, made.checkpoint_id, made.attempt) == (None, None, 1)
    made.request_drain()
