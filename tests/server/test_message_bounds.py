"""What a message may become in memory is known before it is parsed, in whatever pieces it comes."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import JSONRPCRequest

from deep_agent_mcp.server.transports import message_bounds
from deep_agent_mcp.server.transports.lines import LineSplitter, Refused, parse
from deep_agent_mcp.server.transports.message_bounds import (
    MAX_TEXT_BYTES,
    MAX_VALUES,
    MessageBounds,
    MessageTooLarge,
)

texts = st.text(st.sampled_from(list('",[]{}:\\a é中😀\n\x00')), max_size=30)
values = st.recursive(
    st.one_of(st.none(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=40,
)


def values_in(value: Any) -> int:
    """Return how often a value is the first of its container, or follows a comma or a bracket."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    nested = [*inner]
    here = 1 if isinstance(value, dict | list) else 0
    return here + max(len(nested) - 1, 0) + sum(map(values_in, nested))


def pieces(data: bytes, seed: int) -> list[bytes]:
    cuts = sorted(random.Random(seed).randrange(len(data) + 1) for _ in range(seed % 7))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(values, st.booleans(), st.integers(0, 10_000))
def test_values_and_width_are_those_of_the_parsed_message(
    value: Any, ascii_only: bool, seed: int
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    bounds = MessageBounds()
    for piece in pieces(data, seed):
        bounds._count(piece)
    assert bounds._values == 1 + values_in(value)
    highest = max(map(ord, json.dumps(value, ensure_ascii=False)))
    assert bounds._width == (1 if highest < 256 else 2 if highest < 65_536 else 4)


def call(arguments: str) -> bytes:
    return (
        '{"jsonrpc":"2.0","id":7,"method":"tools/call",'
        f'"params":{{"name":"ls","arguments":{arguments}}}}}\n'
    ).encode()


def read(data: bytes) -> Any:
    splitter = LineSplitter()
    step = 256 * 1024
    parts = [data[place : place + step] for place in range(0, len(data), step)]
    (line,) = [one for part in parts for one in splitter.feed(part)]
    return parse(line)


@pytest.mark.parametrize("item", ["[]", "{}", "1", '""', '{"a":[]}'])
def test_too_many_values_are_refused_by_the_id_of_their_request(item: str) -> None:
    refused = read(call(f'{{"x":[{",".join([item] * 200_000)}]}}'))
    assert isinstance(refused, Refused) and refused.answer.id == 7
    assert f"more than {MAX_VALUES:,} values" in refused.answer.error.message


def test_what_only_looks_like_values_inside_of_text_is_none() -> None:
    text = json.dumps('a,b,"c",[1,{2}],\\' * 200_000)
    assert isinstance(read(call(f'{{"content":{text}}}')), JSONRPCRequest)


@pytest.mark.parametrize("wide", ["😀", "\\ud83d\\ude00", "\\uD83D\\uDE00"])
def test_one_wide_character_makes_all_of_a_long_text_wide(wide: str) -> None:
    size = MAX_TEXT_BYTES // 4
    within = read(call(f'{{"content":"{wide}{"a" * (size - 10_000)}"}}'))
    assert isinstance(within, JSONRPCRequest)
    refused = read(call(f'{{"content":"{"a" * size}{wide}"}}'))
    assert isinstance(refused, Refused) and refused.answer.id == 7
    assert "4 bytes for each character" in refused.answer.error.message


def test_text_of_wide_characters_alone_is_counted_in_characters() -> None:
    size = (13 << 20) // 3
    assert isinstance(read(call(f'{{"content":"{"中" * size}"}}')), JSONRPCRequest)
    escaped = "\\u4e2d" * ((13 << 20) // 6)
    assert isinstance(read(call(f'{{"content":"{escaped}"}}')), JSONRPCRequest)


@pytest.mark.parametrize("text", [b'"', b"\\", b'\\"', b"[],", b'"",', b"\xf0\x9f\x98\x80"])
def test_no_piece_of_a_message_takes_long_to_count(text: bytes) -> None:
    bounds = MessageBounds()
    piece = text * (256 * 1024 // len(text))
    longest = 0.0
    for _ in range(16):
        began = time.thread_time()
        try:
            bounds.feed(piece)
        except MessageTooLarge:
            break
        finally:
            longest = max(longest, time.thread_time() - began)
    assert longest < 0.1  # processor time; about 0.01


def test_small_messages_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(message_bounds.MessageBounds, "_count", never)
    assert isinstance(read(call(f'{{"content":"{"a" * 15_000}"}}')), JSONRPCRequest)
