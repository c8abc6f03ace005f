"""Strategies, plans and readings of structured output, and how its values are stored."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, NotRequired, Optional, TypedDict, Union, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, computed_field, field_validator

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.state.channels import Mark
from deep_agent_mcp.harness.state.schema import StateSchema
from deep_agent_mcp.harness.structured_output import (
    AutoStrategy,
    MultipleStructuredOutputsError,
    OutputPlan,
    ProviderStrategy,
    Reading,
    StructuredOutput,
    StructuredOutputError,
    StructuredOutputValidationError,
    ToolStrategy,
)
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.loop.models import Turns, call, says


class Weather(BaseModel):
    """The weather of a day."""

    day: date
    degrees: float = Field(ge=-90)


class Town(BaseModel):
    name: str


class Person(BaseModel):
    name: str


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    """A row."""

    day: date
    note: NotRequired[str]


class Tree(BaseModel):
    kids: list["Tree"] = []


class Sensor(BaseModel):
    degrees: float = Field(validation_alias="in", serialization_alias="out")

    @computed_field
    @property
    def hot(self) -> bool:
        return self.degrees > 30

    model_config = {"extra": "forbid"}


class Picky(BaseModel):
    name: Any

    @field_validator("name")
    @classmethod
    def _known(cls, value: Any) -> str:
        return {"a": "A"}[value]


JSON_SCHEMA: dict[str, Any] = {
    "title": "City",
    "description": "A city.",
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"$ref": "#/$defs/size"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"size": {"type": "integer", "minimum": 1}},
}
ONE_OF: dict[str, Any] = {
    "oneOf": [JSON_SCHEMA, {"$ref": "#/$defs/Sea"}, {"type": "object", "properties": {}}],
    "$defs": {
        "Sea": {"type": "object", "properties": {"depth": {"type": "number"}}},
        "size": {"type": "integer"},
    },
}

SEARCH = ToolSpec("search", "Searches.", {"type": "object", "properties": {}})
GO = HumanMessage("go")
FIT = {"day": "2026-01-02", "degrees": 3}
VALUE = Weather(day=date(2026, 1, 2), degrees=3)
MISFIT = {"day": "2026-01-02", "degrees": -100}

PLAIN = Turns()
NATIVE = Turns()
NATIVE.native_output = True


def plan_of(
    output: StructuredOutput,
    messages: Sequence[Message] = (GO,),
    model: Turns = PLAIN,
    **fields: Any,
) -> OutputPlan:
    given = {"tools": (SEARCH,), "tool_choice": "auto", "settings": {}, **fields}
    return output.plan(model, messages=messages, **given)


def names(plan: OutputPlan) -> list[Any]:
    return [tool.name for tool in plan.tools if isinstance(tool, ToolSpec)]


def read(output: StructuredOutput, answer: AIMessage, *before: Message, **fields: Any) -> Reading:
    messages = before or (GO,)
    return output.read(answer, plan_of(output, messages, **fields), messages)


def only(reading: Reading) -> Any:
    (message,) = reading.following
    return message


def play(output: StructuredOutput, *answers: AIMessage, model: Turns = PLAIN) -> list[Message]:
    """Return the transcript after these answers."""
    messages: list[Message] = [GO]
    for answer in answers:
        reading = output.read(answer, plan_of(output, messages, model), messages)
        messages += [answer, *reading.following]
    return messages


# --- schemas -----------------------------------------------------------------------------------

KINDS: list[tuple[Any, str, dict[str, Any], Any]] = [
    (Weather, "Weather", FIT, VALUE),
    (Point, "Point", {"x": 1}, Point(1)),
    (Row, "Row", {"day": "2026-01-02"}, {"day": date(2026, 1, 2)}),
    (JSON_SCHEMA, "City", {"name": "Ulm", "size": 2}, {"name": "Ulm", "size": 2}),
    (Tree, "Tree", {"kids": [{}]}, Tree(kids=[Tree()])),
    (Sensor, "Sensor", {"in": 31.0}, Sensor.model_validate({"in": 31.0})),
]


@pytest.mark.parametrize(("schema", "name", "args", "value"), KINDS)
def test_every_kind_of_schema_is_a_tool_whose_call_gives_a_typed_value(
    schema: Any, name: str, args: dict[str, Any], value: Any
) -> None:
    output = StructuredOutput.of(ToolStrategy(schema))
    plan = plan_of(output)
    tool = plan.tools[-1]
    assert isinstance(tool, ToolSpec)
    assert tool.name == name
    assert tool.parameters["type"] == "object"
    assert "final answer" in tool.description
    reading = read(output, says("", call("c1", name, **args)))
    assert reading.value == value
    assert type(reading.value) is type(value)
    assert only(reading) == replace(only(reading), tool_call_id="c1", status="success", name=name)


@pytest.mark.parametrize(("schema", "name", "args", "value"), KINDS)
def test_every_kind_of_schema_can_be_a_native_answer(
    schema: Any, name: str, args: dict[str, Any], value: Any
) -> None:
    output = StructuredOutput.of(ProviderStrategy(schema))
    assert plan_of(output, model=NATIVE).output_schema
    reading = read(output, says(json.dumps(args)), model=NATIVE)
    assert reading == Reading((), value)


@pytest.mark.parametrize(("schema", "name", "args", "value"), KINDS)
def test_every_kind_of_schema_is_stored_and_comes_back(
    schema: Any, name: str, args: dict[str, Any], value: Any
) -> None:
    back = stored(StructuredOutput.of(schema), value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        (Weather, {"degrees": "warm"}),
        (Point, {"x": "left"}),
        (Row, {}),
        (JSON_SCHEMA, {"size": 0}),
        (JSON_SCHEMA, {"name": "a\ud800"}),
        (Picky, {"name": "b"}),
    ],
)
def test_what_does_not_fit_is_repaired_whatever_the_schema(
    schema: Any, wrong: dict[str, Any]
) -> None:
    output = StructuredOutput.of(ToolStrategy(schema))
    (name,) = output.members
    message = only(read(output, says("", ToolCall("c1", name, wrong))))
    assert isinstance(message, ToolMessage)
    assert message.status == "error"
    assert "Expected arguments" in message.text


def test_problems_are_named_by_place() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather))
    text = only(read(output, says("", call("c1", "Weather", degrees=-100)))).text
    assert "day: Field required" in text
    assert "degrees: Input should be greater than or equal to -90" in text
    city = StructuredOutput.of(ToolStrategy(JSON_SCHEMA))
    text = only(read(city, says("", call("c1", "City", size=0)))).text
    assert "size: 0 is less than the minimum of 1" in text
    assert "the whole: 'name' is a required property" in text


@pytest.mark.parametrize(
    "union",
    [Weather | Point, Union[Weather, Point], Annotated[Weather | Point, "either"]],  # noqa: UP007
)
def test_a_union_is_one_tool_for_each_member(union: Any) -> None:
    output = StructuredOutput.of(ToolStrategy(union))
    assert names(plan_of(output)) == ["search", "Weather", "Point"]
    assert read(output, says("", call("c1", "Point", x=1))).value == Point(1)
    assert read(output, says("", call("c1", "Weather", **FIT))).value == VALUE


def test_one_of_at_the_top_of_a_json_schema_is_one_tool_for_each_member() -> None:
    output = StructuredOutput.of(ToolStrategy(ONE_OF))
    assert names(plan_of(output)) == ["search", "City", "Sea", "structured_output_3"]
    assert read(output, says("", call("c1", "City", name="Ulm", size=2))).value["size"] == 2
    assert read(output, says("", call("c1", "Sea", depth=1.5))).value == {"depth": 1.5}
    assert only(read(output, says("", call("c1", "Sea", depth="deep")))).status == "error"


def test_names_become_names_a_tool_can_have() -> None:
    schema = {"title": "my city (new)", "type": "object", "properties": {}}
    assert names(plan_of(StructuredOutput.of(ToolStrategy(schema))))[-1] == "my_city__new_"


@pytest.mark.parametrize(
    ("response_format", "complaint"),
    [
        (int, "is not a pydantic model"),
        (list[Weather], "is not a pydantic model"),
        (Optional[Weather], "is not a pydantic model"),  # noqa: UP045
        ({"type": "array"}, "JSON schema of an object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "not a JSON schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "has no target"),
        ({"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}, "has no target"),
        ({"anyOf": [JSON_SCHEMA, JSON_SCHEMA]}, "two schemas are named 'City'"),
        ({"anyOf": [JSON_SCHEMA, {"type": "null"}]}, "JSON schema of an object"),
    ],
)
def test_a_format_that_is_no_schema_of_objects_is_refused_at_build(
    response_format: Any, complaint: str
) -> None:
    with pytest.raises(AgentBuildError, match=complaint):
        StructuredOutput.of(response_format)


def test_a_type_without_a_json_schema_is_refused_at_build() -> None:
    class Odd(BaseModel):
        fn: Callable[[], int]

    with pytest.raises(AgentBuildError, match="Odd has no JSON schema"):
        StructuredOutput.of(Odd)


def test_a_schema_with_the_name_of_a_tool_is_refused() -> None:
    with pytest.raises(AgentBuildError, match=r"schema 'Weather'.*tool 'Weather'"):
        StructuredOutput.of(Weather, ["search", "Weather"])
    StructuredOutput.of(ProviderStrategy(Weather), ["Weather"])
    late = ToolSpec("Weather", "", {})
    with pytest.raises(StructuredOutputError, match="rename"):
        plan_of(StructuredOutput.of(Weather), tools=(late,))


@pytest.mark.parametrize("handler", [7, None, (), (ValueError, "x"), int])
def test_strategies_refuse_what_makes_no_sense(handler: Any) -> None:
    with pytest.raises(AgentBuildError, match="handle_errors"):
        ToolStrategy(Weather, handle_errors=handler)
    for strategy in (ToolStrategy, ProviderStrategy, AutoStrategy):
        with pytest.raises(AgentBuildError, match="max_repairs"):
            strategy(Weather, max_repairs=-1)


# --- plans -------------------------------------------------------------------------------------


def test_auto_decides_by_the_model_that_is_asked() -> None:
    output = StructuredOutput.of(Weather)
    by_tools = plan_of(output)
    assert (by_tools.tool_choice, by_tools.output_schema) == ("any", None)
    native = plan_of(output, model=NATIVE)
    assert (names(native), native.tool_choice) == (["search"], "auto")
    assert native.output_schema is not None
    assert "degrees" in json.dumps(native.output_schema)


def test_auto_takes_tools_for_a_schema_no_provider_can_enforce() -> None:
    class Free(BaseModel):
        things: dict[str, int]

    for schema in (Free, Tree, Picky, Weather | Free):
        assert plan_of(StructuredOutput.of(schema), model=NATIVE).output_schema is None


def test_a_provider_strategy_needs_a_model_with_native_output() -> None:
    with pytest.raises(StructuredOutputError, match=r"turns:test has no native.*Nothing was sent"):
        plan_of(StructuredOutput.of(ProviderStrategy(Weather)))


def test_thinking_leaves_the_choice_to_the_model_until_the_forced_call() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather))
    settings = {"thinking": {"type": "adaptive"}, "max_tokens": 9}
    assert plan_of(output, settings=settings).tool_choice == "auto"
    assert plan_of(output, settings={"thinking": {"type": "disabled"}}).tool_choice == "any"
    forced = plan_of(output, play(output, says("Warm.")), settings=settings)
    assert forced.settings == {"max_tokens": 9}
    assert forced.tool_choice == "Weather"


def test_a_choice_somebody_made_is_kept() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather))
    assert plan_of(output, tool_choice="search").tool_choice == "search"
    assert plan_of(output, tool_choice="none").tool_choice == "none"


def test_one_call_may_ask_for_some_of_the_declared_schemas() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather | Point, tool_message="Noted."))
    plan = plan_of(output, response_format=Point)
    assert names(plan) == ["search", "Point"]
    reading = output.read(says("", call("c1", "Point", x=1)), plan, [GO])
    assert (reading.value, only(reading).text) == (Point(1), "Noted.")
    other = output.read(says("", call("c1", "Weather", **FIT)), plan, [GO])
    assert "not asked for now, only Point" in only(other).text
    native = plan_of(output, model=NATIVE, response_format=ProviderStrategy(Point))
    assert native.output_schema is not None


@pytest.mark.parametrize("other", [Town, ToolStrategy(Point | Town), {**JSON_SCHEMA, "title": "X"}])
def test_a_schema_that_was_not_declared_is_refused(other: Any) -> None:
    output = StructuredOutput.of(Weather | Point)
    with pytest.raises(StructuredOutputError, match=r"(Town|X) was not declared.*Weather, Point"):
        plan_of(output, response_format=other)


def test_a_json_schema_can_be_narrowed_too() -> None:
    output = StructuredOutput.of(ToolStrategy({"oneOf": [JSON_SCHEMA, Town.model_json_schema()]}))
    assert names(plan_of(output, response_format=JSON_SCHEMA)) == ["search", "City"]


# --- readings ----------------------------------------------------------------------------------


def test_other_calls_of_the_answer_are_left_to_the_loop() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, tool_message="Thanks."))
    answer = says("", call("c1", "search"), call("c2", "Weather", **FIT))
    reading = read(output, answer)
    assert reading.value == VALUE
    assert (only(reading).tool_call_id, only(reading).text) == ("c2", "Thanks.")
    assert read(output, says("", call("c1", "search"))) == Reading()
    assert read(StructuredOutput.of(Weather), says("{}", call("c1", "search")), model=NATIVE) == (
        Reading()
    )


def test_two_final_answers_in_one_turn_are_both_refused() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather | Point))
    answer = says("", call("c1", "Weather", **FIT), call("c2", "Point", x=1))
    reading = read(output, answer)
    assert reading.value is None
    results = [m for m in reading.following if isinstance(m, ToolMessage)]
    assert [(one.tool_call_id, one.status) for one in results] == [("c1", "error"), ("c2", "error")]
    assert "exactly one" in results[0].text


def test_arguments_that_cannot_be_parsed_are_repaired() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather))
    message = only(read(output, says("", ToolCall("c1", "Weather", invalid='{"day"'))))
    assert message.status == "error"
    assert '{"day"' in message.text


def test_prose_is_answered_by_one_forced_call() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather | Point, max_repairs=0))
    messages = play(output, says("It is warm."))
    asked = messages[-1]
    assert isinstance(asked, HumanMessage)
    assert asked.source == "structured_output"
    assert "Weather or Point" in asked.text
    forced = plan_of(output, messages)
    assert (names(forced), forced.tool_choice) == (["Weather", "Point"], "any")
    with pytest.raises(StructuredOutputError, match="no call of Weather or Point") as raised:
        play(output, says("It is warm."), says("Really."))
    assert raised.value.attempt is not None
    assert raised.value.attempt.text == "Really."
    final = output.read(says("", call("c1", "Weather", **FIT)), forced, messages)
    assert final.value == VALUE


def test_repairs_are_bounded_and_the_failure_holds_the_last_attempt() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, max_repairs=2))
    bad = [says("", ToolCall(f"c{n}", "Weather", dict(MISFIT))) for n in range(3)]
    messages = play(output, *bad[:2])
    with pytest.raises(StructuredOutputError, match=r"after 3 tries.*degrees") as raised:
        read(output, bad[2], *messages)
    assert raised.value.attempt is bad[2]
    assert "degrees" in raised.value.problems
    # The transcript is all there is to it: with the answer in it, and from anywhere else.
    with pytest.raises(StructuredOutputError):
        read(StructuredOutput.of(output.strategy), bad[2], *messages, bad[2])


def test_a_model_that_refuses_is_not_asked_again() -> None:
    refused = replace(says("I cannot."), stop_reason="refusal")
    with pytest.raises(StructuredOutputError, match="the model refused to answer"):
        play(StructuredOutput.of(ToolStrategy(Weather)), refused)


@pytest.mark.parametrize("source", [None, "task"])
def test_a_new_request_starts_the_count_anew(source: str | None) -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, max_repairs=1))
    bad = says("", ToolCall("c1", "Weather", dict(MISFIT)))
    messages = [*play(output, bad), HumanMessage("again", source=source)]
    assert only(read(output, bad, *messages)).status == "error"
    reminded = [*play(output, bad), HumanMessage("by the way", source="todos")]
    with pytest.raises(StructuredOutputError):
        read(output, bad, *reminded)


def test_two_refused_calls_of_one_turn_count_once() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather | Point, max_repairs=2))
    both = says("", call("c1", "Weather", **FIT), call("c2", "Point", x=1))
    assert len(read(output, both, *play(output, both)).following) == 2


def test_forced_prose_counts_as_a_repair() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, max_repairs=2))
    prose = [says("a"), says("b"), says("c")]
    assert len(play(output, *prose)) == 7
    with pytest.raises(StructuredOutputError, match="after 4 tries"):
        play(output, *prose, says("d"))


def test_a_native_answer_that_does_not_fit_is_repaired_and_bounded() -> None:
    output = StructuredOutput.of(AutoStrategy(Weather, max_repairs=1))
    for text, problem in (("Warm.", "not JSON"), (json.dumps(MISFIT), "degrees"), ("", "not JSON")):
        messages = play(output, says(text), model=NATIVE)
        told = messages[-1]
        assert isinstance(told, HumanMessage)
        assert told.source == "structured_output"
        assert problem in told.text
        with pytest.raises(StructuredOutputError, match=problem):
            read(output, says(text), *messages, model=NATIVE)
        fine = read(output, says(json.dumps(FIT)), *messages, model=NATIVE)
        assert fine == Reading((), VALUE)


def test_an_answer_that_was_cut_off_says_so() -> None:
    output = StructuredOutput.of(Weather)
    answer = replace(says('{"day": "20'), stop_reason="max_tokens")
    assert "cut off" in only(read(output, answer, model=NATIVE)).text


def test_a_native_union_says_which_member_it_is() -> None:
    output = StructuredOutput.of(ProviderStrategy(Town | Person))
    answer = {"schema": "Person", "value": {"name": "Ada"}}
    assert read(output, says(json.dumps(answer)), model=NATIVE).value == Person(name="Ada")
    unsaid = only(read(output, says('{"name": "Ada"}'), model=NATIVE))
    assert "which of Town, Person" in unsaid.text


# --- handle_errors -----------------------------------------------------------------------------

BAD = says("", ToolCall("c1", "Weather", dict(MISFIT)))
TWICE = says("", call("c1", "Weather", **FIT), call("c2", "Weather", **FIT))


def test_a_text_of_ones_own_replaces_ours() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, handle_errors="Once more."))
    assert only(read(output, BAD)).text == "Once more."
    made = ToolStrategy(Weather, handle_errors=lambda error: f"{type(error).__name__}!")
    assert only(read(StructuredOutput.of(made), BAD)).text == "StructuredOutputValidationError!"
    twice = read(StructuredOutput.of(made), TWICE).following
    assert isinstance(twice[0], ToolMessage)
    assert twice[0].text == "MultipleStructuredOutputsError!"


def test_without_repair_errors_are_raised_at_once() -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, handle_errors=False))
    with pytest.raises(StructuredOutputValidationError, match="degrees") as raised:
        read(output, BAD)
    assert raised.value.attempt is BAD
    assert isinstance(raised.value.__cause__, ValidationError)
    with pytest.raises(MultipleStructuredOutputsError):
        read(output, TWICE)
    assert only(read(output, says("Warm."))).source == "structured_output"


@pytest.mark.parametrize(
    ("kinds", "repaired", "raised"),
    [
        (StructuredOutputValidationError, BAD, TWICE),
        ((MultipleStructuredOutputsError, KeyError), TWICE, BAD),
        (ValidationError, BAD, TWICE),
    ],
)
def test_only_the_named_kinds_of_error_are_repaired(
    kinds: Any, repaired: AIMessage, raised: AIMessage
) -> None:
    output = StructuredOutput.of(ToolStrategy(Weather, handle_errors=kinds))
    assert read(output, repaired).following
    with pytest.raises(StructuredOutputError):
        read(output, raised)


# --- storing -----------------------------------------------------------------------------------


def stored(output: StructuredOutput, value: Any) -> Any:
    """Return what comes back from the journal."""
    key = Annotated[NotRequired[output.annotation], Mark.OMIT_FROM_INPUT]
    state: Any = TypedDict("state", {"structured_response": key})  # type: ignore[operator]
    assert get_type_hints(state)
    channel = StateSchema.of((state, "the agent"))["structured_response"]
    assert channel.coerce(value) == value
    return channel.decode(channel.encode(value))


class WideRow(TypedDict):
    day: date
    other: int


text = st.text(st.characters(exclude_categories=["Cs"]))
ANY_MEMBER = st.one_of(
    st.builds(Town, name=text),
    st.builds(Person, name=text),
    st.builds(Point, x=st.integers(-(2**60), 2**60), y=st.integers(0, 9)),
    st.fixed_dictionaries({"day": st.dates()}, optional={"note": text}),
    st.fixed_dictionaries({"day": st.dates(), "other": st.integers(-9, 9)}),
    st.none(),
)
UNION = StructuredOutput.of(Town | Person | Point | Row | WideRow)
UNION_ADAPTER: TypeAdapter[Any] = TypeAdapter(UNION.annotation)


@given(ANY_MEMBER)
def test_a_value_of_a_union_comes_back_as_the_class_it_was(value: Any) -> None:
    back = UNION_ADAPTER.validate_json(UNION_ADAPTER.dump_json(value))
    assert type(back) is type(value)
    assert back == value


def test_no_answer_yet_is_stored_as_none() -> None:
    for schema in (Weather, Weather | Point, JSON_SCHEMA):
        assert stored(StructuredOutput.of(schema), None) is None


def test_members_that_overlap_are_told_apart_in_what_people_read() -> None:
    assert UNION_ADAPTER.dump_python(Person(name="Ada"), mode="json") == {
        "schema": "Person",
        "value": {"name": "Ada"},
    }
    single: TypeAdapter[Any] = TypeAdapter(StructuredOutput.of(Person).annotation)
    assert single.dump_python(Person(name="Ada"), mode="json") == {"name": "Ada"}
