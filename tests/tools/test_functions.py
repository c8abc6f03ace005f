"""Tools from functions: their schema, their validation, how values arrive."""

import functools
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.tools.tool import InvalidArguments, ToolRuntime, tool
from tests.tools.calls import properties, result, value

if TYPE_CHECKING:
    from decimal import Decimal

pytestmark = pytest.mark.anyio


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
    names = "Expected arguments: items: {title: string, kind?: a | b}[], limit?: integer."
    assert (names in str(caught.value)) == ("should be" not in problem)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    deep: bool


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


async def test_values_arrive_as_the_types_of_the_annotations_say():
    seen: dict[str, Any] = {}

    @tool
    def take(
        item: Item,
        point: Point,
        options: Options,
        color: Color,
        mode: Literal["fast", "slow"],
        when: date,
        grid: list[list[Point]],
        note: str | None = None,
        size: int = 5,
        shade: Color = Color.BLUE,
        tags: tuple[str, ...] = (),
    ) -> None:
        seen.update(locals())

    await value(
        take,
        item={"title": "x"},
        point={"x": 1},
        options={"deep": True},
        color="red",
        mode="fast",
        when="2026-11-01",
        grid=[[{"x": 2, "y": 3}]],
    )
    assert {name: seen[name] for name in properties(take)} == {
        "item": Item(title="x"),
        "point": Point(1),
        "options": {"deep": True},
        "color": Color.RED,
        "mode": "fast",
        "when": date(2026, 11, 1),
        "grid": [[Point(2, 3)]],
        "note": None,
        "size": 5,
        "shade": Color.BLUE,
        "tags": (),
    }
    assert properties(take)["color"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties(take)["shade"]["default"] == "blue"


def test_a_type_that_contains_itself_is_written_out_once():
    @tool
    def plant(tree: Tree) -> None: ...

    tree = properties(plant)["tree"]
    assert tree["properties"]["children"]["items"] == {"type": "object"}
    assert plant.validate({"tree": {"name": "a", "children": [{"name": "b"}]}})


def test_data_in_a_schema_is_no_schema():
    @tool
    def make(options: dict[str, str] = {"title": "x"}) -> None: ...  # noqa: B006

    assert properties(make)["options"]["default"] == {"title": "x"}


@pytest.mark.filterwarnings("error")
async def test_parameters_may_have_any_name():
    @tool
    def odd(_private: int, json: str, model_config: int, schema: bool = False) -> str:
        return f"{_private} {json} {model_config} {schema}"

    assert list(properties(odd)) == ["_private", "json", "model_config", "schema"]
    assert await value(odd, _private=1, json="j", model_config=2) == "1 j 2 False"
    with pytest.raises(InvalidArguments, match="json: Field required"):
        odd.validate({"_private": 1, "model_config": 2})


async def test_positional_only_and_keyword_only_parameters_work():
    @tool
    def place(a: int, /, b: int, *, c: int = 3) -> str:
        return f"{a}{b}{c}"

    assert await value(place, a=1, b=2) == "123"


class Search:
    """A search engine."""

    def __init__(self, hits: int) -> None:
        self.hits = hits

    async def __call__(self, query: str) -> str:
        """Search for something."""
        return f"{self.hits} hits for {query}"

    def count(self, query: str) -> int:
        """Count hits."""
        return self.hits


class TestWhatCanBeATool:
    async def test_bound_methods(self):
        made = tool(Search(4).count)
        assert (made.name, made.description) == ("count", "Count hits.")
        assert await value(made, query="x") == 4

    async def test_objects_that_can_be_called(self):
        made = tool(Search(2))
        assert (made.name, made.description) == ("search", "Search for something.")
        assert await value(made, query="x") == "2 hits for x"

    async def test_lambdas_with_a_name(self):
        assert await value(tool(lambda a: a, name="same"), a=[1]) == [1]
        with pytest.raises(AgentBuildError, match="give it one with name="):
            tool(lambda a: a)

    async def test_partials_and_what_they_bind_stays_hidden(self):
        async def fetch(url: str, api_key: str, tries: int = 1) -> str:
            """Fetch a page."""
            return f"{url} {api_key} {tries}"

        made = tool(functools.partial(fetch, api_key="s3cret"))
        assert (made.name, made.description) == ("fetch", "Fetch a page.")
        assert "s3cret" not in str(made.parameters)
        assert list(properties(made)) == ["url", "tries"]
        assert await value(made, url="u") == "u s3cret 1"
        with pytest.raises(InvalidArguments):
            made.validate({"url": "u", "api_key": "other"})

    async def test_functions_behind_a_decorator(self):
        def twice(function):
            @functools.wraps(function)
            def inner(**kwargs):
                return function(**kwargs) * 2

            return inner

        @tool
        @twice
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        assert await value(add, a=1, b=2) == 6


def _unresolvable(amount: "Decimal") -> None: ...


def _returns_unresolvable(amount: int) -> "Decimal": ...


def _args(*args: int) -> None: ...


def _kwargs(**kwargs: int) -> None: ...


def _generator(a: int):
    yield a


async def _async_generator(a: int):
    yield a


def _no_schema(event: anyio.Event) -> None: ...


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (_args, ["'_args'", "*args: int"]),
        (_kwargs, ["'_kwargs'", "**kwargs: int"]),
        (_generator, ["'_generator'", "a generator cannot be a tool"]),
        (_async_generator, ["a generator cannot be a tool"]),
        (_unresolvable, ["'_unresolvable'", "'amount'", "'Decimal'", "TYPE_CHECKING"]),
        (_no_schema, ["'_no_schema'", "'event'", "Event"]),
        (Search.count, ["'count'", "bound method"]),
        (Item, ["Tool.from_model"]),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_when_it_is_made(function, texts):
    with pytest.raises(AgentBuildError) as caught:
        tool(function)
    for text in texts:
        assert text in str(caught.value)


def test_what_a_function_returns_need_not_be_resolved():
    assert tool(_returns_unresolvable).name == "_returns_unresolvable"


def test_a_typed_dict_of_the_old_kind_names_the_parameter():
    import sys
    from typing import TypedDict as OldTypedDict

    class Old(OldTypedDict):
        a: int

    def take(old: Old) -> None: ...

    if sys.version_info >= (3, 12):
        assert tool(take)
    else:
        with pytest.raises(AgentBuildError, match=r"'old' has no JSON schema.*typing_extensions"):
            tool(take)


async def test_content_and_artifact_are_two_values_of_one_return():
    @tool(returns="content_and_artifact")
    async def look(ok: bool) -> Any:
        return ("3 hits", {"hits": [1, 2, 3]}) if ok else "3 hits"

    found = await result(look, ok=True)
    assert (found.content, found.artifact) == ("3 hits", {"hits": [1, 2, 3]})
    with pytest.raises(TypeError, match="must return a pair; it returned a str"):
        await value(look, ok=False)

    @tool
    async def pair() -> Any:
        return ("a", {"b": 1})

    assert (await result(pair)).content == '["a", {"b": 1}]'
