"""What a tool returns, as the model sees it."""

import json
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from deep_agent_mcp.harness.messages.message import ImageBlock, TextBlock, ToolMessage
from deep_agent_mcp.harness.tools.tool import ToolResult, result_of

IMAGE = ImageBlock("image/png", "AAAA")


class Level(Enum):
    HIGH = "high"


class Rank(IntEnum):
    FIRST = 1


class Mood(StrEnum):
    GOOD = "good"


class Item(BaseModel):
    title: str
    when: date


@dataclass
class Point:
    x: int
    level: Level = Level.HIGH
    inner: list[Item] = field(default_factory=list)


Pair = namedtuple("Pair", "a b")
ITEM = Item(title="ä", when=date(2026, 11, 1))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", "(no output)"),
        (" \n", "(no output)"),
        (None, "(no output)"),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        ([], "[]"),
        ({}, "{}"),
        ((), "[]"),
        (["a", "b"], '["a", "b"]'),
        ({"größe": [1, None]}, '{"größe": [1, null]}'),
        (Level.HIGH, "high"),
        (Mood.GOOD, "good"),
        (Rank.FIRST, "1"),
        ([Level.HIGH, Rank.FIRST, Mood.GOOD], '["high", 1, "good"]'),
        (ITEM, '{"title": "ä", "when": "2026-11-01"}'),
        (
            Point(1, inner=[ITEM]),
            '{"x": 1, "level": "high", "inner": [{"title": "ä", "when": "2026-11-01"}]}',
        ),
        (Pair(1, ITEM), '[1, {"title": "ä", "when": "2026-11-01"}]'),
        (datetime(2026, 11, 1, tzinfo=UTC), '"2026-11-01T00:00:00Z"'),
        ([timedelta(hours=1), Decimal("1.10")], '["PT1H", "1.10"]'),
        ([PurePosixPath("/a"), UUID(int=0)], '["/a", "00000000-0000-0000-0000-000000000000"]'),
        ({1}, "[1]"),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (TextBlock("x"), (TextBlock("x"),)),
        ((TextBlock("x"), IMAGE), (TextBlock("x"), IMAGE)),
        (["x", IMAGE], (TextBlock("x"), IMAGE)),
        ([TextBlock(""), IMAGE], (IMAGE,)),
        ([TextBlock(" ")], "(no output)"),
        ("half \ud83d", "half ?"),
        ({"a": "\udc80"}, '{"a": "?"}'),
    ],
)
def test_values_become_what_a_model_can_read(value, content):
    assert result_of(value, "t") == ToolResult(content)


def _cycle() -> list[object]:
    cycle: list[object] = []
    cycle.append({"again": cycle})
    return cycle


def _deep() -> list[object]:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def _generator():
    yield 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"x", "bytes"),
        ({"a": [b"x"]}, "bytes"),
        (Point(bytearray(b"x")), "bytes"),  # type: ignore[arg-type]
        (float("nan"), "float"),
        ({"a": float("inf")}, "float"),
        (_cycle(), "Circular"),
        (_deep(), "recursion"),
        (_generator(), "read only once"),
        (object(), "object"),
        ({(1, 2): 3}, "keys"),
        ([TextBlock("x"), object()], "object"),
    ],
)
def test_what_is_no_data_is_an_error_result_that_names_the_tool(value, why):
    result = result_of(value, "look_up")
    assert result.status == "error"
    assert isinstance(result.content, str)
    assert result.content.startswith("look_up ran, and may have changed something")
    assert why in result.content


def test_a_tool_result_stays_and_its_parts_become_data():
    update = {"todos": []}
    result = result_of(ToolResult("", {"at": ITEM}, "error", update))  # type: ignore[arg-type,dict-item]
    assert result == ToolResult(
        "(no output)", {"at": {"title": "ä", "when": "2026-11-01"}}, "error", update
    )
    assert result_of(ToolResult("x", float("nan")), "t").status == "error"
    assert result_of(ToolResult({"a": 1})).content == '{"a": 1}'  # type: ignore[arg-type]


def test_a_tool_message_is_its_content_artifact_and_status():
    message = ToolMessage("call_9", "no", status="error", artifact=[1])
    assert result_of(message) == ToolResult("no", [1], "error")


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_data)
def test_any_value_gives_a_result_that_can_be_stored(value):
    result = result_of(value)
    assert isinstance(result.content, str)
    assert result.content.strip()
    result.content.encode()
    if result.status == "success" and not isinstance(value, str) and value is not None:
        assert json.loads(result.content) == value
