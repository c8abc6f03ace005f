"""Tools from functions: their schema, their validation."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from harness.errors import AgentBuildError
from harness.tools import InvalidArguments, ToolRuntime, tool


class Item(BaseModel):
    """An item."""

    title: str = Field(description="Its name.")
    kind: Literal["a", "b"] = "a"


@tool
async def book(
    items: list[Item],
    runtime: ToolRuntime,
    limit: Annotated[int, Field(ge=1, description="How many.")] = 3,
) -> str:
    """Book items."""
    return f"{runtime.tool_call_id}: {items} {limit}"


def test_the_schema_is_flat_and_hides_what_is_injected():
    assert book.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["items"],
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "An item.",
                    "required": ["title"],
                    "properties": {
                        "title": {"type": "string", "description": "Its name."},
                        "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
                    },
                },
            },
            "limit": {"type": "integer", "minimum": 1, "default": 3, "description": "How many."},
        },
    }
    assert book.description == "Book items."


def test_arguments_are_validated_and_typed():
    assert book.validate({"items": [{"title": "x"}]}) == {"items": [Item(title="x")], "limit": 3}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "items: Field required"),
        ({"items": [], "limit": 0}, "limit: Input should be greater than or equal to 1"),
        ({"items": [{"title": "x", "kind": "c"}]}, "items.0.kind: Input should be 'a' or 'b'"),
        ({"items": [], "runtime": 1}, "runtime: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_name_the_problem_and_what_is_expected(args, problem):
    with pytest.raises(InvalidArguments) as caught:
        book.validate(args)
    assert "book was not run" in str(caught.value)
    assert problem in str(caught.value)
    assert '"limit"' in str(caught.value)


def test_a_signature_without_a_schema_is_refused():
    def bad(*args: int) -> None: ...

    with pytest.raises(AgentBuildError, match="'bad'"):
        tool(bad)
