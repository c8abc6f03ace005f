"""Lists that were stored apart and are read as one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasGenerator, BaseModel, ConfigDict, Field, PrivateAttr, computed_field
from pydantic.alias_generators import to_camel

from deep_agent_mcp.harness.errors import CheckpointError, InvalidUpdate
from deep_agent_mcp.harness.messages.message import (
    REMOVE_ALL,
    HumanMessage,
    Message,
    MessageWrite,
    RemoveMessage,
)
from deep_agent_mcp.harness.messages.transcript import add_messages
from deep_agent_mcp.harness.state.channels import AgentState, Channel, Overwrite
from deep_agent_mcp.harness.state.schema import StateSchema

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
LISTS = Channel("lists", list[Any], "test")
SPACE = st.text(" \t\r\n", max_size=3)


@pytest.mark.parametrize(
    ("values", "joined"),
    [
        ([], []),
        ([b"[]"], []),
        ([b"[]", b"[]", b"[]"], []),
        ([b"[1]"], [1]),
        ([b"[]", b"[1]", b"[]", b"[2]", b"[]"], [1, 2]),
        ([b" [ ] ", b"\n[\t1 ,2\r\n] ", b"[ ]"], [1, 2]),
        ([b"[[]]", b"[]"], [[]]),
        ([b"[[1], []]", b"[[[2]]]"], [[1], [], [[2]]]),
        ([b'["]", "["]', b'[{"a": ["]"]}]'], ["]", "[", {"a": ["]"]}]),
        ([b'[" "]', b'["\\""]'], [" ", '"']),
        ([b"[null]", b"[[]]", b"[{}]", b'[""]'], [None, [], {}, ""]),
        (['["é"]'.encode(), b'["\\u00e9"]'], ["é", "é"]),
    ],
)
def test_the_items_of_all_come_in_order(values: list[bytes], joined: list[Any]) -> None:
    assert LISTS.decode_lists(values) == joined


@given(st.lists(st.lists(ANY_JSON, max_size=4), max_size=4), st.data())
def test_any_lists_however_they_are_spaced(lists: list[list[Any]], data: st.DataObject) -> None:
    def text(one: list[Any]) -> bytes:
        indent = data.draw(st.sampled_from([None, 0, 2]))
        written = json.dumps(one, indent=indent, ensure_ascii=data.draw(st.booleans()))
        return f"{data.draw(SPACE)}{written}{data.draw(SPACE)}".encode()

    items = LISTS.decode_lists([text(one) for one in lists])
    assert items == [x for one in lists for x in one]


NAMES = st.sampled_from(["m1", "m2", "m3"])
WRITES = st.lists(
    st.builds(lambda name, text: HumanMessage(text, id=name), NAMES, st.sampled_from("ab"))
    | st.builds(RemoveMessage, NAMES | st.just(REMOVE_ALL)),
    max_size=4,
)


@given(st.lists(WRITES, max_size=6))
def test_messages_read_as_one_list_are_those_of_the_writes_one_by_one(
    writes: Sequence[Sequence[MessageWrite]],
) -> None:
    channel = StateSchema.of((AgentState, "agent"))["messages"]
    assert channel.joins
    stored: list[bytes] = []
    current: list[Message] = []
    for write in writes:
        try:
            current = add_messages(current, list(write))
        except ValueError:
            continue  # refused when it was written, so it is not stored
        stored.append(channel.encode(list(write)))
    read = channel.decode_lists(stored)
    assert add_messages([], read) == current
    assert channel.decode(channel.encode(Overwrite(current)), overwrite=True) == Overwrite(current)


def test_any_number_of_writes_is_read_in_order() -> None:
    channel = StateSchema.of((AgentState, "agent"))["messages"]
    written: list[MessageWrite] = [HumanMessage(str(n)) for n in range(100)]
    for each in (1, 3):
        parts = [written[n : n + each] for n in range(0, len(written), each)]
        assert channel.decode_lists([channel.encode(part) for part in parts]) == written


@pytest.mark.parametrize("damaged", [b"[1]", b"null", b'[{"type": "os.system"}]', b"[", b""])
def test_one_damaged_write_among_many_is_refused(damaged: bytes) -> None:
    channel = StateSchema.of((AgentState, "agent"))["messages"]
    good = channel.encode([HumanMessage("hi")])
    with pytest.raises(CheckpointError, match="'messages' does not fit"):
        channel.decode_lists([*[good] * 50, damaged, *[good] * 50])


class Aliased(BaseModel):
    size: int = Field(alias="the size")


class Renamed(BaseModel):
    size: int = Field(0, serialization_alias="theSize")


class RenamedAndRequired(BaseModel):
    size: int = Field(serialization_alias="theSize")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))
    the_size: int = 0


class Optional(BaseModel):
    size: int = Field(0, alias="the size")


class Mixed(BaseModel):
    size: int = Field(0, alias="the size")
    pair: Any
    _seen: bool = PrivateAttr(default=False)


@dataclass(eq=False)
class Incomparable:
    """As arrays are: whether two are equal is not a truth value."""

    size: int

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Excluded(BaseModel):
    secret: str = Field(exclude=True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Aliased, Aliased(**{"the size": 3})),
        (Optional, Optional(**{"the size": 3})),
        (Renamed, Renamed(size=3)),
        (RenamedAndRequired, RenamedAndRequired(size=3)),
        (Camel, Camel(the_size=3)),
        (Computed, Computed(side=3)),
        (float, 1.5),
        (list[Any], [(1, 2)]),
        (Mixed, Mixed(**{"the size": 3, "pair": [1, 2]})),
        (Incomparable, Incomparable(3)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_stored_is_read_again_as_it_was(kind: type, value: object) -> None:
    channel = Channel("own", kind, "test")
    stored = channel.encode(value)
    again = channel.decode(stored)
    assert type(again) is (kind if isinstance(kind, type) else list)
    assert json.loads(channel.encode(again)) == json.loads(stored)
    assert getattr(again, "size", 3) == 3 and getattr(again, "the_size", 3) == 3


@pytest.mark.parametrize(
    ("kind", "value"),
    [(float, math.inf), (float, math.nan), (list[float], [1.0, -math.inf]), (Excluded, None)],
    ids=["infinity", "no number", "in a list", "excluded"],
)
def test_what_could_not_be_read_again_is_not_stored(kind: type, value: object) -> None:
    channel = Channel("own", kind, "test")
    with pytest.raises(InvalidUpdate, match=r"'own' could not be read again.*nothing was stored"):
        channel.encode(Excluded(secret="x") if value is None else value)
