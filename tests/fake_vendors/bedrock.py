"""Amazon Bedrock's ConverseStream: binary events, each with its checksums."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tests.fake_vendors.server import FakeVendor, Refused, Reply, pieces


class FakeBedrock(FakeVendor):
    """The part of ConverseStream that text needs; its request is hardly checked."""

    content_type = "application/vnd.amazon.eventstream"

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        return method == "POST" and path.endswith("/converse-stream")

    def error(self, status: int, message: str) -> Any:
        return {"message": message}

    def check(self, body: Mapping[str, Any]) -> None:
        if not body.get("messages") or body["messages"][0]["role"] != "user":
            raise Refused("A conversation must start with a user message.")

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        yield event("messageStart", role="assistant")
        for piece in pieces(reply.text):
            yield event("contentBlockDelta", contentBlockIndex=0, delta={"text": piece})
        if reply.text:
            yield event("contentBlockStop", contentBlockIndex=0)
        yield event("messageStop", stopReason=reply.stop or "end_turn")
        usage = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16}
        yield event("metadata", usage=usage, metrics={"latencyMs": 1})


def event(name: str, kind: str = "event", **payload: Any) -> bytes:
    """Return an event, or one of kind `exception`, as it is on the wire."""
    headers = _header(":message-type", kind) + _header(f":{kind}-type", name)
    headers += _header(":content-type", "application/json")
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    length = struct.pack(">H", len(value))
    return bytes([len(name)]) + name.encode() + b"\x07" + length + value.encode()
