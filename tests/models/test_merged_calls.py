"""Parallel calls that a server streams under one index are calls of their own again."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_vendors import FakeChat, Reply
from tests.models.calls import ask

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytestmark = pytest.mark.anyio

LONG = "i" * 40
TOOLS = tuple(
    ToolSpec(name, "Does it.", {"type": "object", "properties": {}})
    for name in ("read", "read_all", "write")
)

Piece = tuple[str, str, str]
"""The id, the name and the arguments that one piece of a call has."""


class OneIndex(FakeChat):
    """Gives every call the index 0."""

    pieces: tuple[Piece, ...] = ()
    stop = "tool_calls"

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        if reply.text:
            yield from super().frames(reply, body)
            return

        def chunk(delta: Any, stop: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": stop}
            return f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n".encode()

        for call_id, name, arguments in self.pieces:
            function = {"name": name, "arguments": arguments}
            yield chunk({"tool_calls": [{"index": 0, "id": call_id, "function": function}]})
        yield chunk({}, self.stop)
        yield b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (
            [(LONG, "read", '{"path": "/a"}'), (LONG, "read", '{"path": "/b"}')],
            [("read", {"path": "/a"}), ("read", {"path": "/b"})],
        ),
        (
            [("1", "read", '{"a": "}{"}\n'), ("2", "write", "{}"), ("3", "read_all", '{"c": 3}')],
            [("read", {"a": "}{"}), ("write", {}), ("read_all", {"c": 3})],
        ),
        ([("1", "read", '{"path": '), ("1", "read", '"/a"}')], [("read", {"path": "/a"})]),
        ([("1", "read", '{"path": '), ("1", "", '"/a"}')], [("read", {"path": "/a"})]),
        ([("1", "no_tool", "{}")], [("no_tool", {})]),
    ],
)
async def test_each_call_has_its_name_its_arguments_and_an_id(
    pieces: list[Piece], calls: list[tuple[str, dict[str, Any]]]
) -> None:
    async with OneIndex(Reply(), Reply("ok")) as server:
        server.pieces = tuple(pieces)
        model = init_chat_model("openai:m", base_url=f"{server.url}/v1", api_key="test-key")
        answer = await ask(model, "go", tools=TOOLS)
        assert [(one.name, one.args) for one in answer.tool_calls] == calls
        assert not any(one.invalid for one in answer.tool_calls)
        results = [ToolMessage(one.id, "done", name=one.name) for one in answer.tool_calls]
        await ask(model, "go", answer, *results, tools=TOOLS)  # which needs ids that differ
        await model.aclose()


async def test_what_was_cut_off_in_the_second_call_does_not_run() -> None:
    async with OneIndex(Reply()) as server:
        server.pieces, server.stop = (("1", "read", '{"a": 1}'), ("2", "read", '{"a')), "length"
        model = init_chat_model("openai:m", base_url=f"{server.url}/v1", api_key="test-key")
        (call,) = (await ask(model, "go", tools=TOOLS)).tool_calls
        assert (call.name, call.invalid) == ("read", '{"a": 1}{"a')
        await model.aclose()
