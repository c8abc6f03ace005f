"""Scripted answers of the fake server, and their event streams."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_KEY = b"fake-anthropic"
_ids = itertools.count(1)

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def sign(thinking: str) -> str:
    """Return this server's signature of a thinking text."""
    mac = hmac.new(_KEY, thinking.encode(), hashlib.sha256).digest()
    return base64.b64encode(mac).decode()


class Answer(BaseModel):
    """One scripted answer. Blocks are sent in the order of the fields.

    Attributes:
        match: Text in the system prompt or last message of requests that get this answer.
        repeat: Whether the answer stays in the queue after use.
        thinking: Thinking, with a signature.
        redacted: Data of a redacted thinking block.
        blocks: Raw blocks, such as those of server tools.
        text: Text.
        tool_calls: `{name, input}` or, for arguments as raw text, `{name, raw}`; `id` optional.
        stop_reason: Default: `tool_use` with calls, else `end_turn`.
        stop_details: Details of the stop reason.
        usage: Overrides of the usage counts.
        model: Model id in the answer. Default: the requested one.
        status: HTTP status; every status except 200 is an error.
        message: Text of the error.
        error_type: Type of the error. Default: the API's type for the status.
        headers: Additional response headers.
        hang_up_after: Close the connection after this many events.
        truncate_after: End the response properly after this many events.
        stall_after: After this many events, stay silent until the client hangs up.
        error_after: After this many events, send an `error` event of `error_type`.
        stream: Text of the whole event stream, sent unchanged instead of the answer's own.
        delay: Seconds before the answer begins.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    match: str | None = None
    repeat: bool = False
    thinking: str | None = None
    redacted: str | None = None
    blocks: list[dict[str, Any]] = Field(default_factory=list)
    text: str = ""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    stop_reason: str | None = None
    stop_details: dict[str, str] | None = None
    usage: dict[str, int] = Field(default_factory=dict)
    model: str | None = None
    status: int = 200
    message: str = "scripted error"
    error_type: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    hang_up_after: int | None = None
    truncate_after: int | None = None
    stall_after: int | None = None
    error_after: int | None = None
    stream: str | None = None
    delay: float = 0.0

    def error_body(self) -> dict[str, Any]:
        kind = self.error_type or ERROR_TYPES.get(self.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}

    def content(self) -> list[tuple[dict[str, Any], str]]:
        """Return the blocks, each with the raw JSON of its input (empty if it has none)."""
        blocks: list[tuple[dict[str, Any], str]] = []
        if self.thinking is not None:
            block = {"thinking": self.thinking, "signature": sign(self.thinking)}
            blocks.append(({"type": "thinking", **block}, ""))
        if self.redacted is not None:
            blocks.append(({"type": "redacted_thinking", "data": self.redacted}, ""))
        for raw_block in self.blocks:
            has_input = raw_block.get("type") == "server_tool_use"
            blocks.append((raw_block, json.dumps(raw_block.get("input")) if has_input else ""))
        if self.text:
            blocks.append(({"type": "text", "text": self.text}, ""))
        for call in self.tool_calls:
            use = {
                "type": "tool_use",
                "id": call.get("id") or f"toolu_{next(_ids):024d}",
                "name": call["name"],
                "input": call.get("input", {}),
            }
            blocks.append((use, call["raw"] if "raw" in call else json.dumps(use["input"])))
        return blocks

    def body(self, asked: str) -> dict[str, Any]:
        """Return the whole message, for an answer without streaming."""
        default = "tool_use" if self.tool_calls else "end_turn"
        return {
            "id": f"msg_{next(_ids):024d}",
            "type": "message",
            "role": "assistant",
            "model": self.model or asked,
            "content": [block for block, _ in self.content()],
            "stop_reason": self.stop_reason or default,
            "stop_sequence": None,
            "stop_details": self.stop_details,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                **self.usage,
            },
        }

    def events(self, asked: str) -> Iterator[dict[str, Any]]:
        """Yield the events of the answer like the real API."""
        body = self.body(asked)
        opening = {**body, "content": [], "stop_reason": None}
        opening["usage"] = {**body["usage"], "output_tokens": 1}
        yield {"type": "message_start", "message": opening}
        yield {"type": "ping"}
        for index, (block, raw) in enumerate(self.content()):
            yield from _block_events(index, block, raw)
        yield {
            "type": "message_delta",
            "delta": {
                "stop_reason": body["stop_reason"],
                "stop_sequence": None,
                "stop_details": body["stop_details"],
            },
            "usage": {"output_tokens": body["usage"]["output_tokens"]},
        }
        yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any], raw: str) -> Iterator[dict[str, Any]]:
    start, deltas = _split(block, raw)
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _split(block: dict[str, Any], raw: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            pieces = _pieces(block["text"])
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in pieces
            ]
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            thoughts = [
                {"type": "thinking_delta", "thinking": piece}
                for piece in _pieces(block["thinking"])
            ]
            return start, [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use" | "server_tool_use":
            pieces = ["", *_pieces(raw)]
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // 3))
    return [text[start : start + size] for start in range(0, len(text), size)]


def load_answers(path: Path) -> list[Answer]:
    """Return the answers in a YAML or JSON file (a list)."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return TypeAdapter(list[Answer]).validate_python(data)
