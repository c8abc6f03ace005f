"""Tools from pydantic models and from JSON schemas, and subclasses that validate themselves."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.tools.schemas import without_nulls
from deep_agent_mcp.harness.tools.tool import (
    InvalidArguments,
    Tool,
    flat_schema,
    is_provider_tool,
    tool,
)
from tests.tools.calls import properties, value

pytestmark = pytest.mark.anyio


class SearchWeb(BaseModel):
    """Search the web."""

    query: str = Field(min_length=1)
    limit: int = 3


async def search(asked: SearchWeb) -> str:
    """Not the description."""
    return f"{asked.query} {asked.limit}"


async def test_a_model_gives_name_description_and_schema_and_arrives_as_an_instance():
    made = Tool.from_model(SearchWeb, search, read_only=True)
    assert (made.name, made.description, made.read_only) == ("search_web", "Search the web.", True)
    assert properties(made) == {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "default": 3},
    }
    assert await value(made, query="x") == "x 3"
    with pytest.raises(InvalidArguments, match=r"search_web was not run: query: .*at least 1"):
        made.validate({"query": ""})


def test_name_and_description_of_a_model_tool_can_be_given():
    made = Tool.from_model(SearchWeb, search, name="find", description="Find.")
    assert (made.name, made.description) == ("find", "Find.")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"$ref": "#/$defs/address"},
        "cc": {"type": "array", "items": {"$ref": "#/$defs/address"}},
    },
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {"address": {"type": "string", "pattern": "@"}},
}


def send(args: dict[str, Any]) -> str:
    return f"sent to {args['to']}"


async def test_a_json_schema_is_shown_flat_and_arguments_arrive_as_a_dict():
    made = Tool.from_schema("send", "Send it.", SCHEMA, send)
    address = {"type": "string", "pattern": "@"}
    assert properties(made) == {"to": address, "cc": {"type": "array", "items": address}}
    assert "$defs" not in made.parameters
    assert await value(made, to="a@b") == "sent to a@b"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "arguments: 'to' is a required property"),
        ({"to": "ab"}, "to: 'ab' does not match '@'"),
        ({"to": "a@b", "cc": ["a@b", 3]}, "cc.1: 3 is not of type 'string'"),
        ({"to": "a@b", "bcc": "x"}, "'bcc' was unexpected"),
        ({"to": "x" * 10_000}, "…"),
    ],
)
def test_arguments_that_do_not_fit_a_schema_are_refused(args, problem):
    with pytest.raises(InvalidArguments) as caught:
        Tool.from_schema("send", "Send it.", SCHEMA, send).validate(args)
    assert "send was not run" in str(caught.value)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_a_definition_may_allow_anything():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/any"}},
        "$defs": {"any": {}},
    }
    assert properties(Tool.from_schema("take", "", schema, send)) == {"a": {}}


def test_a_type_inside_itself_is_still_validated():
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "additionalProperties": False,
    }
    made = Tool.from_schema("grow", "Grow.", tree, lambda tree: None)
    assert properties(made)["children"]["items"] == {"type": "object"}
    made.validate({"children": [{"children": []}]})
    with pytest.raises(InvalidArguments, match=r"children\.0"):
        made.validate({"children": [{"leaf": 1}]})


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, '"type": "object"'),
        ({}, '"type": "object"'),
        ({"type": "object", "properties": 3}, "not a valid JSON schema"),
        (
            {"type": "object", "properties": {"a": {"$ref": "http://localhost:1/x.json"}}},
            "which is not in it",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "which is not in it"),
    ],
)
def test_a_schema_that_cannot_describe_arguments_is_refused(schema, text):
    with pytest.raises(AgentBuildError) as caught:
        Tool.from_schema("bad", "", schema, send)
    assert "'bad'" in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize("function", [lambda: None, lambda a, b: None])
def test_the_function_takes_the_arguments_as_one(function):
    for make in (
        lambda: Tool.from_model(SearchWeb, function),
        lambda: Tool.from_schema("x", "", {"type": "object"}, function),
    ):
        with pytest.raises(AgentBuildError, match="as one parameter"):
            make()


async def test_a_subclass_may_validate_by_itself():
    class Loud(Tool):
        def validate(self, args):
            return {key: str(text).upper() for key, text in args.items()}

    async def echo(args, runtime):
        return args["text"]

    made = Loud("loud", "Echo.", {"type": "object"}, echo)
    assert await value(made, text="hi") == "HI"


def test_a_tool_whose_arguments_nothing_validates_is_refused_when_it_is_made():
    class Loud(Tool):
        """Validates no more than its base."""

    for kind in (Tool, Loud):
        with pytest.raises(AgentBuildError, match=r"tool 'x': nothing validates its arguments"):
            kind("x", "", {"type": "object"}, search)
    with pytest.raises(AgentBuildError, match="nothing validates"):
        replace(tool(search), arguments=None)


def test_a_validate_that_asks_a_base_without_a_model_refuses_the_call_and_not_the_run():
    class Loud(Tool):
        def validate(self, args):
            return super().validate(args)

    made = Loud("loud", "", {"type": "object"}, search)
    with pytest.raises(InvalidArguments, match="loud was not run"):
        made.validate({"text": "hi"})


def test_flattening_keeps_properties_with_the_names_of_keywords():
    schema = {
        "type": "object",
        "title": "Dropped",
        "properties": {"title": {"type": "string", "title": "Title"}, "$defs": {"type": "null"}},
    }
    assert flat_schema(schema) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "$defs": {"type": "null"}},
    }


def test_provider_tools_are_mappings_with_the_providers_type():
    assert is_provider_tool({"type": "web_search_20250305", "name": "web_search"})
    assert not is_provider_tool(search)
    assert not is_provider_tool(Tool.from_model(SearchWeb, search))


@pytest.mark.parametrize(
    "value", [{}, {"name": "web_search"}, {"type": 3}, {"type": "function"}, {"type": "custom"}]
)
def test_other_mappings_are_refused(value):
    with pytest.raises(AgentBuildError, match=r"Tool\.from_schema"):
        is_provider_tool(value)


def test_null_is_left_out_only_where_the_schema_refuses_it():
    schema = {
        "type": "object",
        "properties": {
            "kept": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
            "refused": {"$ref": "#/$defs/Place"},
            "needed": {"type": "string"},
        },
        "required": ["needed"],
        "$defs": {"Place": {"type": "object"}},
    }
    given = {"kept": None, "refused": None, "needed": None, "unknown": None}
    assert without_nulls(schema, given) == {"kept": None, "needed": None, "unknown": None}
