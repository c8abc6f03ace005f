"""Native structured output, and calls that are forced, on the real SDK and a fake API."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import HumanMessage, Message
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.structured_output import (
    AutoStrategy,
    ProviderStrategy,
    StructuredOutput,
    ToolStrategy,
)
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.models.calls import ask, claude, collect

pytestmark = pytest.mark.anyio


class Part(BaseModel):
    name: str
    price: float | None = None


class Order(BaseModel):
    """An order."""

    parts: list[Part] = Field(min_length=1, max_length=5)
    count: int = Field(ge=1, description="How many.")


class Refusal(BaseModel):
    why: str


class Bag(BaseModel):
    things: dict[str, int]


ORDER = {"parts": [{"name": "bolt"}], "count": 2}
FIT = Order(parts=[Part(name="bolt")], count=2)


async def rounds(
    model: AnthropicModel, output: StructuredOutput, settings: dict[str, Any] | None = None
) -> Any:
    """Ask until there is a value, as the loop does."""
    messages: list[Message] = [HumanMessage("Order bolts.")]
    while True:
        plan = output.plan(model, (), "auto", settings or {}, messages)
        request = ChatRequest(
            messages,
            tools=plan.tools,
            tool_choice=plan.tool_choice,
            settings=plan.settings,
            output_schema=plan.output_schema,
        )
        _, answer = await collect(model, request)
        reading = output.read(answer, plan, messages)
        messages += [answer, *reading.following]
        if reading.value is not None:
            return reading.value


@pytest.mark.parametrize(
    ("model_id", "native"),
    [
        ("claude-sonnet-5-5", True),
        ("claude-haiku-4-5-20251001", True),
        ("claude-opus-4-1", False),
        ("claude-3-haiku-20240307", False),
        ("llama-9", False),
    ],
)
def test_families_that_have_native_output_say_so(model_id: str, native: bool) -> None:
    assert AnthropicModel(model_id).native_output is native


async def test_a_native_answer_is_typed_and_its_schema_is_one_the_api_takes() -> None:
    output = StructuredOutput.of(Order)
    async with FakeAnthropic([json.dumps(ORDER)]) as api, claude(api.url) as model:
        effort = {"output_config": {"effort": "low"}}
        assert await rounds(model, output, effort) == FIT
    config = api.requests[0]["output_config"]
    assert config["effort"] == "low"
    assert config["format"]["type"] == "json_schema"
    schema = config["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["parts"]["items"]["additionalProperties"] is False
    assert set(schema["properties"]["count"]) == {"type", "description"}
    assert "tools" not in api.requests[0]


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"type": "object"}, "$.x"),
        ({"type": "object", "properties": {}, "additionalProperties": True}, "$.x"),
        ({"type": "object", "properties": {}, "patternProperties": {"^a": {}}}, "$.x"),
        ({"type": "array"}, "$.x.items"),
        ({"anyOf": [{"type": "null"}, {}]}, "$.x.anyOf"),
        ({"$ref": "#"}, "$.x.x"),
        (True, "$.x"),
    ],
)
async def test_a_schema_that_the_api_cannot_hold_an_answer_to_is_refused_with_the_place(
    part: Any, place: str
) -> None:
    schema = {"type": "object", "properties": {"x": part}}
    async with FakeAnthropic([]) as api, claude(api.url) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model, "go", output_schema=schema)
        assert api.requests == []
    assert f"at {place} it is open" in str(raised.value)


async def test_a_native_answer_that_breaks_a_rule_the_api_cannot_enforce_is_repaired() -> None:
    wrong = json.dumps({**ORDER, "count": 0})
    async with FakeAnthropic([wrong, json.dumps(ORDER)]) as api, claude(api.url) as model:
        assert await rounds(model, StructuredOutput.of(Order)) == FIT
    told = api.requests[1]["messages"][-1]["content"][0]["text"]
    assert "count" in told
    assert "greater than or equal to 1" in told


async def test_a_native_union_says_which_member_it_is() -> None:
    answer = json.dumps({"schema": "Refusal", "value": {"why": "no bolts"}})
    async with FakeAnthropic([answer]) as api, claude(api.url) as model:
        value = await rounds(model, StructuredOutput.of(ProviderStrategy(Order | Refusal)))
    assert value == Refusal(why="no bolts")


async def test_a_schema_with_free_keys_goes_by_tools_or_is_refused_before_sending() -> None:
    call = Answer(tool_calls=[{"name": "Bag", "input": {"things": {"bolt": 2}}}])
    async with FakeAnthropic([call]) as api, claude(api.url, "claude-sonnet-5") as model:
        value = await rounds(model, StructuredOutput.of(AutoStrategy(Bag)))
        assert value == Bag(things={"bolt": 2})
        with pytest.raises(ModelError, match=r"things.*open.*ToolStrategy") as raised:
            await rounds(model, StructuredOutput.of(ProviderStrategy(Bag)))
    assert raised.value.kind == "invalid_request"
    assert len(api.requests) == 1


async def test_a_call_that_must_use_a_tool_goes_without_the_models_thinking() -> None:
    prose = Answer(text="Two bolts.")
    call = Answer(tool_calls=[{"name": "Order", "input": ORDER}])
    output = StructuredOutput.of(ToolStrategy(Order))
    thinking = {"thinking": {"type": "adaptive"}}
    async with FakeAnthropic([prose, call]) as api, claude(api.url, "claude-sonnet-5") as model:
        assert await rounds(model, output, thinking) == FIT
    free, forced = api.requests
    assert free["thinking"] == {"type": "adaptive"}
    assert "tool_choice" not in free
    assert "thinking" not in forced
    assert forced["tool_choice"] == {"type": "tool", "name": "Order"}

    async with FakeAnthropic([call]) as api, claude(api.url, "claude-opus-5", **thinking) as model:
        assert await rounds(model, output) == FIT
    assert "thinking" not in api.requests[0]


async def test_a_model_that_refuses_to_be_forced_is_asked_in_words() -> None:
    call = Answer(tool_calls=[{"name": "Order", "input": ORDER}])
    output = StructuredOutput.of(ToolStrategy(Order))
    async with FakeAnthropic(["Two bolts.", call]) as api, claude(api.url) as model:
        assert await rounds(model, output) == FIT
    assert all("tool_choice" not in body for body in api.requests)
    assert "calling Order" in api.requests[1]["messages"][-1]["content"][0]["text"]
    assert [tool["name"] for tool in api.requests[1]["tools"]] == ["Order"]


async def test_a_refusal_is_not_asked_again() -> None:
    answer = Answer(text="I cannot.", stop_reason="refusal")
    async with FakeAnthropic([answer]) as api, claude(api.url) as model:
        with pytest.raises(ModelError, match="refused this conversation"):
            await rounds(model, StructuredOutput.of(Order))
    assert len(api.requests) == 1
