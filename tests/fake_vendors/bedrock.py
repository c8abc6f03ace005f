"""Fake of Amazon Bedrock's ConverseStream: its binary events with checksums, and its rules."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fake_vendors.server import FakeVendor, Refused, Reply, pieces

SIGNATURE = "c2lnbmVk"

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_FIELDS = frozenset(
    {
        *("messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"),
        *("guardrailConfig", "performanceConfig", "requestMetadata", "promptVariables"),
        *("additionalModelResponseFieldPaths", "serviceTier", "outputConfig"),
    }
)
_BLOCKS = ("text", "image", "document", "video", "toolUse", "toolResult", "reasoningContent")
_KINDS = (*_BLOCKS, "cachePoint", "guardContent")


class FakeBedrock(FakeVendor):
    """ConverseStream with the refusals of the real API."""

    content_type = "application/vnd.amazon.eventstream"

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        return method == "POST" and path.startswith("/model/") and path.endswith("/converse-stream")

    def error(self, status: int, message: str) -> Any:
        return {"message": message}

    def check(self, body: Mapping[str, Any]) -> None:
        if unknown := body.keys() - _FIELDS:
            raise Refused(f"#: extraneous keys {sorted(unknown)} are not permitted")
        messages = body.get("messages") or []
        if not messages or messages[0]["role"] != "user":
            raise Refused("A conversation must start with a user message.")
        tools = _tools(body.get("toolConfig"))
        called: list[str] = []
        before = "assistant"
        for message in messages:
            if message["role"] == before:
                raise Refused("A conversation must alternate between user and assistant roles.")
            before = message["role"]
            called = _blocks(message, called, has_tools=tools is not None)
        if called:
            raise Refused("Expected toolResult blocks at the end of the conversation.")
        for block in body.get("system") or ():
            _kind(block, ("text", "cachePoint", "guardContent"))

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        yield event("messageStart", role="assistant")
        at = 0
        if reply.thinking:
            for piece in pieces(reply.thinking):
                yield _delta(at, reasoningContent={"text": piece})
            yield _delta(at, reasoningContent={"signature": SIGNATURE})
            yield event("contentBlockStop", contentBlockIndex=at)
            at += 1
        if reply.text:
            for piece in pieces(reply.text):
                yield _delta(at, text=piece)
            yield event("contentBlockStop", contentBlockIndex=at)
            at += 1
        for call in reply.calls:
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            yield event("contentBlockStart", contentBlockIndex=at, start=start)
            for piece in pieces(call.arguments):
                yield _delta(at, toolUse={"input": piece})
            yield event("contentBlockStop", contentBlockIndex=at)
            at += 1
        stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
        yield event("messageStop", stopReason=stop)
        usage = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16} | reply.usage
        yield event("metadata", usage=usage, metrics={"latencyMs": 1})


def _tools(config: Mapping[str, Any] | None) -> Sequence[str] | None:
    if config is None:
        return None
    names: list[str] = []
    for one in config["tools"]:
        if "cachePoint" in one:
            continue
        spec = one["toolSpec"]
        if not _NAME.fullmatch(spec["name"]):
            raise Refused(
                f"toolConfig.tools: {spec['name']!r} must satisfy [a-zA-Z0-9_-]+, 1 to 64"
            )
        if spec.get("description") == "":
            raise Refused("toolSpec.description: the minimum length is 1")
        if spec["inputSchema"]["json"].get("type") != "object":
            raise Refused("The value at toolSpec.inputSchema.json.type must be one of: object.")
        names.append(spec["name"])
    if not names:
        raise Refused("toolConfig.tools: expected at least one")
    if len(set(names)) != len(names):
        raise Refused("The toolConfig has two tools of one name.")
    return names


def _blocks(message: Mapping[str, Any], called: list[str], *, has_tools: bool) -> list[str]:
    """Check a message; return the ids of its calls."""
    if not message["content"]:
        raise Refused("The content field in the Message object is empty.")
    kinds = [_kind(block, _KINDS) for block in message["content"]]
    if not has_tools and {"toolUse", "toolResult"} & {*kinds}:
        raise Refused("The toolConfig field must be defined when using toolUse and toolResult.")
    others = {"user": {"toolUse", "reasoningContent"}, "assistant": {"toolResult"}}
    if wrong := others[message["role"]] & {*kinds}:
        raise Refused(f"A message of role {message['role']} cannot have {sorted(wrong)}.")
    answered = [one["toolResult"]["toolUseId"] for one in message["content"] if "toolResult" in one]
    if message["role"] == "user" and sorted(answered) != sorted(called):
        raise Refused("The number of toolResult blocks does not match the toolUse blocks before.")
    ids = [one["toolUse"]["toolUseId"] for one in message["content"] if "toolUse" in one]
    if len(set(ids)) != len(ids):
        raise Refused("Two toolUse blocks have the same id.")
    return ids


def _kind(block: Mapping[str, Any], kinds: Sequence[str]) -> str:
    (kind,) = block
    if kind not in kinds:
        raise Refused(f"unknown content block {kind!r}")
    value = block[kind]
    if kind == "text" and not value.strip():
        raise Refused("The text field in the ContentBlock object is blank. Add text to it.")
    if kind == "toolUse":
        if not isinstance(value["input"], dict):
            raise Refused("toolUse.input: expected an object")
        if not _NAME.fullmatch(value["name"]) or not _ID.fullmatch(value["toolUseId"]):
            raise Refused(
                f"toolUse: {value['name']!r}, {value['toolUseId']!r} must satisfy patterns"
            )
    if kind == "toolResult" and not value["content"]:
        raise Refused("toolResult.content: the minimum length is 1")
    if kind == "toolResult" and value.get("status", "success") not in ("success", "error"):
        raise Refused("toolResult.status: expected success or error")
    if kind == "reasoningContent":
        thought = value.get("reasoningText")
        if thought is not None and thought.get("signature") != SIGNATURE:
            raise Refused("The signature of a reasoning block is invalid.")
    return kind


def _delta(at: int, **delta: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=at, delta=delta)


def event(name: str, kind: str = "event", **payload: Any) -> bytes:
    """Return an event, or an exception, in the binary format."""
    headers = _header(":message-type", kind) + _header(f":{kind}-type", name)
    headers += _header(":content-type", "application/json")
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    length = struct.pack(">H", len(value))
    return bytes([len(name)]) + name.encode() + b"\x07" + length + value.encode()
