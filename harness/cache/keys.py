"""Cache keys: equal requests get equal keys."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, cast

from pydantic import JsonValue

from ..messages.message import AIMessage, Content, Message, ToolCall, ToolMessage
from ..models.base import ChatRequest
from ..tools.spec import ToolSpec

__all__ = ["model_key", "tool_key"]

_VERSION = 1
"""Part of every key; raise it when what is stored changes, and old entries are not found."""


def model_key(model_name: str, request: ChatRequest) -> str:
    """Return the key of a model call, made of everything that decides its answer.

    Left out are ids that are made up anew for each run, the agent's name and cache markers. A
    tool call counts by its place among the calls, so pairs of call and result stay distinct. A
    setting that is not JSON data makes the key unique: such a request is never found again.

    Args:
        model_name: Full name of the model. Two models of one name that are set up differently
            (another server, other parameters of their own) must not share a cache.
        request: The call.
    """
    places: dict[str, int] = {}
    return _key(
        "model",
        [
            model_name,
            [_message(message, places) for message in request.messages],
            [section.text for section in request.system],
            [_tool(tool) for tool in request.tools],
            request.tool_choice,
            request.settings,
            request.output_schema,
        ],
    )


def tool_key(
    tool_name: str,
    args: Mapping[str, JsonValue],
    custom: Callable[[Mapping[str, JsonValue]], str] | None = None,
) -> str:
    """Return the key of a tool call.

    Args:
        tool_name: The tool.
        args: Its arguments; their order does not matter.
        custom: Makes a text of the arguments that stands for them.
    """
    return _key("tool", [tool_name, args if custom is None else [custom(args)]])


def _key(kind: str, parts: Sequence[Any]) -> str:
    text = json.dumps([_VERSION, *parts], sort_keys=True, separators=(",", ":"), default=_foreign)
    return f"{kind}:{blake2b(text.encode(), digest_size=32).hexdigest()}"


def _foreign(value: object) -> object:
    # A repr may hold an address, and another object may get the same one.
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else _unique()


def _unique() -> str:
    return secrets.token_hex(16)


def _message(message: Message, places: dict[str, int]) -> list[Any]:
    if isinstance(message, AIMessage):
        blocks = [
            ["call", _place(block.id, places), block.name, block.args, block.invalid]
            if isinstance(block, ToolCall)
            else asdict(block)
            for block in message.content
        ]
        return ["ai", message.source, message.stop_reason, blocks]
    content = _content(message.content)
    if isinstance(message, ToolMessage):
        place = _place(message.tool_call_id, places)
        return ["tool", place, message.name, message.status, content]
    return ["human", message.source, content]


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [asdict(block) for block in content]


def _place(call_id: str, places: dict[str, int]) -> int:
    return places.setdefault(call_id, len(places))


def _tool(tool: ToolSpec | Mapping[str, JsonValue]) -> Any:
    if isinstance(tool, ToolSpec):
        return ["tool", tool.name, tool.description, tool.parameters]
    return ["provider", dict(tool)]
