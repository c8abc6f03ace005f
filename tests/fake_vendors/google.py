"""Fake of Google's Gemini API."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fake_vendors.server import FakeVendor, Refused, Reply, pieces

_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$")
_PATH = re.compile(r"/v1beta/models/([^:]+):streamGenerateContent\?alt=sse")
_FIELDS = {
    "contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings",
    "cachedContent",
}  # fmt: skip
_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}


def _only_results(content: Mapping[str, Any]) -> bool:
    """Whether a turn only contains results of calls, so that another user turn may follow."""
    return all("functionResponse" in part for part in content.get("parts") or [{}])


class FakeGoogle(FakeVendor):
    """The Gemini API with strict checks of turns, calls and signatures of thinking."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self._signatures: set[str] = set()

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        found = _PATH.fullmatch(path)
        return method == "POST" and found is not None

    def error(self, status: int, message: str) -> Any:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "")}}

    def check(self, body: Mapping[str, Any]) -> None:
        for name in body:
            if name not in _FIELDS:
                raise Refused(f'Invalid JSON payload received. Unknown name "{name}"')
        for tool in body.get("tools", ()):
            for function in tool.get("functionDeclarations", ()):
                if not _NAME.fullmatch(function["name"]):
                    raise Refused(f"Invalid function name: {function['name']!r}")
        self._contents(body.get("contents") or [])

    def _contents(self, contents: Sequence[Mapping[str, Any]]) -> None:
        roles = [
            content["role"]
            for place, content in enumerate(contents)
            if not (place and content["role"] == "user" and _only_results(contents[place - 1]))
        ]
        if roles[::2] != ["user"] * len(roles[::2]) or roles[1::2] != ["model"] * len(roles[1::2]):
            raise Refused("Please ensure that roles alternate, beginning with a user turn.")
        before: list[str] = []
        for place, content in enumerate(contents):
            parts = content.get("parts") or []
            if not parts:
                raise Refused(f"contents[{place}].parts must not be empty")
            results = [part["functionResponse"] for part in parts if "functionResponse" in part]
            if before != [one["name"] for one in results]:
                raise Refused(
                    "Please ensure that the number of function response parts is equal to the "
                    "number of function call parts of the function call turn."
                )
            if not all(isinstance(one["response"], dict) for one in results):
                raise Refused("Invalid value at 'function_response.response'")
            self._signed(place, parts)
            before = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if not roles or roles[-1] != "user":
            raise Refused("Please ensure that the conversation ends with a user turn.")

    def _signed(self, place: int, parts: Sequence[Mapping[str, Any]]) -> None:
        calls = [part for part in parts if "functionCall" in part]
        if self._signatures and calls:
            signature = calls[0].get("thoughtSignature")
            if signature is None:
                raise Refused(f"Function call in contents[{place}] is missing a thought_signature.")
            if signature not in self._signatures:
                raise Refused("Thought signature is not valid.")

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        def chunk(part: Any = None, stop: str | None = None, **more: Any) -> bytes:
            content = {"role": "model", "parts": [] if part is None else [part]}
            candidate = {"index": 0, "content": content} | ({"finishReason": stop} if stop else {})
            data = {"candidates": [candidate], "modelVersion": "gemini-3-pro", "responseId": "r1"}
            return f"data: {json.dumps(data | more)}\r\n\r\n".encode()

        for piece in pieces(reply.thinking):
            yield chunk({"text": piece, "thought": True})
        for piece in pieces(reply.text):
            yield chunk({"text": piece})
        for place, call in enumerate(reply.calls):
            try:
                args = json.loads(call.arguments)
            except ValueError:  # the API sends parsed data, so it cannot send a malformed call
                yield chunk(None, "MALFORMED_FUNCTION_CALL")
                return
            part: dict[str, Any] = {"functionCall": {"name": call.name, "args": args}}
            if reply.thinking and place == 0:
                signature = base64.b64encode(f"signed {call.id}".encode()).decode()
                self._signatures.add(signature)
                part["thoughtSignature"] = signature
            yield chunk(part)
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 5, "totalTokenCount": 16}
        yield chunk({"text": ""}, reply.stop or "STOP", usageMetadata=usage | reply.usage)
