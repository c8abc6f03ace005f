"""Who sends a line that is too long hears of it by their request's id, wherever that stands."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from mcp.types import JSONRPCError

from deep_agent_mcp.server.transports.lines import LineSplitter, Refused, parse

MOST = 50_000
LONG = "x" * (2 * MOST)

IDS: tuple[Any, ...] = (0, 7, -1, 2**53, "7", "", "a b", 'quote " and \\', "ünï", "\n", "id", "}")
NO_IDS = (None, True, 1.5, [1], {"id": 1})


def arguments(text: str) -> dict[str, Any]:
    """Return what only looks like an id: nested ones, and ones inside of text."""
    return {
        "id": 98,
        "text": text,
        "like": '{"id": 97}, "id": 96}',
        "items": [{"id": 95}, '"id":94'],
        "last": {"text": ',"id":93}', "id": 92},
    }


def read(line: str, step: int = 8_192, ends: str = "\n") -> Any:
    """Return what becomes of a line that comes in pieces."""
    splitter = LineSplitter(MOST)
    data = (line + ends).encode()
    pieces = [data[place : place + step] for place in range(0, len(data), step)]
    found = [one for piece in pieces for one in splitter.feed(piece)]
    found += splitter.end()
    (only,) = found
    return parse(only)


def refused(line: str, **how: Any) -> Any:
    """Return the id that a line is refused with."""
    parsed = read(line, **how)
    assert isinstance(parsed, Refused)
    assert f"{len(line.encode())} bytes" in parsed.answer.error.message
    return parsed.answer.id


def orders(request_id: Any) -> list[dict[str, Any]]:
    """Return a request as clients of different languages write it."""
    call = {"name": "task", "arguments": arguments(LONG), "id": 99}
    version, own = {"jsonrpc": "2.0"}, {"id": request_id}
    method, params = {"method": "tools/call"}, {"params": call}
    return [
        {**version, **own, **method, **params},  # Python
        {**method, **params, **version, **own},  # TypeScript
        {**own, **method, **version, **params},
        {**method, **version, **own, **params},
        {**params, **method, **version, **own},
    ]


@pytest.mark.parametrize("request_id", IDS)
def test_the_id_of_a_request_is_found_at_either_end(request_id: Any) -> None:
    for message, style in itertools.product(orders(request_id), ("compact", "spaced", "ascii")):
        separators = (",", ":") if style == "compact" else (" , ", " : ")
        line = json.dumps(message, separators=separators, ensure_ascii=style == "ascii")
        found = refused(line)
        assert (found, type(found)) == (request_id, type(request_id)), (style, [*message])


@pytest.mark.parametrize("wrong", NO_IDS)
def test_what_is_no_id_is_answered_with_none(wrong: Any) -> None:
    for message in orders(wrong):
        assert refused(json.dumps(message)) is None, [*message]


@pytest.mark.parametrize("order", range(5))
def test_without_an_id_none_is_taken_from_the_arguments(order: int) -> None:
    message = orders(5)[order]
    del message["id"]
    assert refused(json.dumps(message)) is None


@pytest.mark.parametrize(
    "line",
    [
        f'{{"text": "{LONG}"}}',
        f'{{"id": 5, "text": "{LONG}"}}',
        f'[{{"jsonrpc":"2.0","id":5,"method":"ping","params":"{LONG}"}}]',
        f'"{LONG}"',
        LONG,
        f"\x00{LONG}",
        f'{{"method":"ping","params":["{LONG}"',
        f'{{"method":"ping","params":{{"a":"{LONG}","id":5}}}}',
        f'{{"method":"ping","params":"{LONG},\\"id\\":5}}"}}',
        f'{{"method":"ping","params":"{LONG}","id":{"9" * 101}}}',
        f'{{"method":"ping","params":"{LONG}","id":"\\ud800"}}',
        f'{{"method":"ping"}}{{"id":5,"x":"{LONG}',
    ],
    ids=range(12),
)
def test_where_no_request_can_be_told_the_answer_has_no_id(line: str) -> None:
    assert refused(line) is None


@pytest.mark.parametrize("step", [1_000, 16_384, 49_999, 50_000, 50_001, 1_000_000])
@pytest.mark.parametrize("ends", ["\n", "", "\r\n"])
def test_it_makes_no_difference_in_what_pieces_a_line_comes(step: int, ends: str) -> None:
    for message in orders("abc"):
        parsed = read(json.dumps(message), step, ends)
        assert isinstance(parsed, Refused) and parsed.answer.id == "abc"


@pytest.mark.parametrize("key", ["result", "error"])
@pytest.mark.parametrize("last", [False, True])
def test_an_answer_that_is_too_long_reaches_who_asked_as_an_error(key: str, last: bool) -> None:
    content = {key: {"code": 1, "message": LONG, "id": 9}}
    message = {"jsonrpc": "2.0", **content, "id": 3} if last else {"id": 3, **content}
    parsed = read(json.dumps(message))
    assert isinstance(parsed, JSONRPCError)
    assert parsed.id == 3 and "not read" in parsed.error.message


def test_lines_around_one_that_is_too_long_are_read() -> None:
    splitter = LineSplitter(MOST)
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    exact = ping + b" " * (MOST - len(ping))
    stream = b"\n".join([ping, LONG.encode(), b"  ", exact, exact + b" ", ping])
    lines = [*splitter.feed(stream), *splitter.end()]
    assert [line if isinstance(line, bytes) else None for line in lines] == [
        ping,
        None,
        exact,
        None,
        ping,
    ]
