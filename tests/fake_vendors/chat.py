"""Fake of OpenAI's Chat Completions API, which most vendors and local servers support."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fake_vendors.server import FakeVendor, Refused, Reply, pieces

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_PARAMETERS = {
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "max_completion_tokens", "temperature", "top_p", "reasoning_effort", "seed",
    "stop", "verbosity", "service_tier", "store", "user", "metadata", "prompt_cache_key",
}  # fmt: skip
_MESSAGE_KEYS = {
    "system": {"content", "name"},
    "developer": {"content", "name"},
    "user": {"content", "name"},
    "assistant": {"content", "name", "tool_calls", "refusal"},
    "tool": {"content", "tool_call_id"},
}
_TOP = ("anyOf", "oneOf", "allOf", "enum", "not")
ERRORS = {
    401: ("invalid_api_key", "invalid_request_error"),
    429: ("rate_limit_exceeded", "requests"),
}


def check_schema(where: str, schema: Any) -> None:
    """Refuse a schema that the API refuses because of its top level."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise Refused(f"Invalid schema for function '{where}': schema must have type 'object'")
    for key in _TOP:
        if key in schema:
            raise Refused(f"Invalid schema for function '{where}': '{key}' at the top level")
    if "properties" not in schema:
        raise Refused(f"Invalid schema for function '{where}': object schema missing properties")


def check_strict(where: str, schema: Any) -> None:
    """Refuse a strict schema with an open object, or with optional fields."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            if schema.get("additionalProperties") is not False:
                raise Refused(f"Invalid schema for {where}: additionalProperties must be false")
            if sorted(schema.get("required", ())) != sorted(schema.get("properties", {})):
                raise Refused(f"Invalid schema for {where}: 'required' must name every property")
        for value in schema.values():
            check_strict(where, value)
    elif isinstance(schema, list):
        for value in schema:
            check_strict(where, value)


class FakeChat(FakeVendor):
    """Chat Completions with strict checks of everything except the model.

    Args:
        replies: Its answers.
        path: Its path.
        thinking_field: Field of a message that contains reasoning; None for none.
        wants_thinking: Whether to refuse earlier calls without their reasoning.
        extras: Additional parameters that this server accepts.
    """

    def __init__(
        self,
        *replies: Reply,
        path: str = "/v1/chat/completions",
        thinking_field: str | None = None,
        wants_thinking: bool = True,
        extras: Sequence[str] = (),
    ) -> None:
        super().__init__(*replies)
        self.path = path
        self.thinking_field = thinking_field
        self.wants_thinking = wants_thinking
        self.parameters = _PARAMETERS | set(extras)
        self._thoughts: set[str] = set()

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        return (method, path) == ("POST", self.path)

    def error(self, status: int, message: str) -> Any:
        code, kind = ERRORS.get(status, (None, "invalid_request_error"))
        return {"error": {"message": message, "type": kind, "code": code, "param": None}}

    def check(self, body: Mapping[str, Any]) -> None:
        for name in body:
            if name not in self.parameters:
                raise Refused(f"Unrecognized request argument supplied: {name}")
        for tool in body.get("tools", ()):
            function = tool["function"]
            if tool["type"] != "function" or not _NAME.fullmatch(function["name"]):
                raise Refused(f"Invalid 'tools[0].function.name': {function['name']!r}")
            check_schema(function["name"], function.get("parameters"))
            if function.get("strict"):
                check_strict(function["name"], function["parameters"])
        if "tools" not in body and {"tool_choice", "parallel_tool_calls"} & body.keys():
            raise Refused("'tool_choice' is only allowed when 'tools' are specified.")
        if (form := body.get("response_format")) and form["type"] == "json_schema":
            if not _NAME.fullmatch(form["json_schema"]["name"]):
                raise Refused("Invalid 'response_format.json_schema.name'")
            if form["json_schema"].get("strict"):
                check_strict("response_format", form["json_schema"]["schema"])
        self._messages(body.get("messages") or [])

    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if not messages:
            raise Refused("[] is too short - 'messages'")
        open_calls: list[str] = []
        for place, message in enumerate(messages):
            role = message["role"]
            extra = {self.thinking_field} if self.thinking_field and role == "assistant" else set()
            allowed = _MESSAGE_KEYS[role] | extra
            if unknown := message.keys() - allowed - {"role"}:
                raise Refused(f"Unrecognized key: messages[{place}].{sorted(unknown)[0]}")
            if role == "tool":
                if message["tool_call_id"] not in open_calls:
                    raise Refused(
                        "messages with role 'tool' must be a response to a preceeding message "
                        "with 'tool_calls'."
                    )
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                raise Refused(
                    "An assistant message with 'tool_calls' must be followed by tool messages "
                    f"responding to each 'tool_call_id'. Missing: {open_calls}"
                )
            open_calls = self._one(role, message)
        if open_calls:
            raise Refused(f"No tool output found for {open_calls}")

    def _one(self, role: str, message: Mapping[str, Any]) -> list[str]:
        content, calls = message.get("content"), message.get("tool_calls") or []
        if role == "assistant":
            if content is None and not calls:
                raise Refused("Invalid value for 'content': expected a string, got null.")
            thought = message.get(self.thinking_field or "")
            if self.wants_thinking and self._thoughts and calls and thought not in self._thoughts:
                raise Refused(f"Missing `{self.thinking_field}` field in the assistant message")
        elif content is None:
            raise Refused("Invalid value for 'content': expected a string, got null.")
        for block in content if isinstance(content, list) else ():
            self._block(role, block)
        for call in calls:
            function = call["function"]
            if not _NAME.fullmatch(function["name"]):
                raise Refused(f"Invalid 'tool_calls[].function.name': {function['name']!r}")
            if len(call["id"]) > 40 or not isinstance(json.loads(function["arguments"]), dict):
                raise Refused("Invalid 'tool_calls[]'")
        return [call["id"] for call in calls]

    def _block(self, role: str, block: Mapping[str, Any]) -> None:
        kinds = ("text", "image_url", "file", "input_audio") if role == "user" else ("text",)
        if block["type"] not in kinds:
            raise Refused(f"Invalid value: {block['type']!r}. Supported values are: {kinds}")
        if block["type"] == "image_url" and not re.match(
            r"data:image/(png|jpeg|gif|webp);base64,.", block["image_url"]["url"]
        ):
            raise Refused("You uploaded an unsupported image.")
        if block["type"] == "file" and not block["file"]["file_data"].startswith(
            "data:application/pdf;base64,"
        ):
            raise Refused("Invalid file data: expected application/pdf")

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        def chunk(delta: Any = None, stop: str | None = None, **more: Any) -> bytes:
            choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": stop}]
            data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                    "model": body["model"], "choices": choices, **more}  # fmt: skip
            return f"data: {json.dumps(data)}\n\n".encode()

        yield chunk({"role": "assistant", "content": ""})
        if reply.thinking and self.thinking_field:
            self._thoughts.add(reply.thinking)
            for piece in pieces(reply.thinking):
                yield chunk({self.thinking_field: piece})
        for piece in pieces(reply.text):
            yield chunk({"content": piece})
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": ""}
            start = {"index": index, "id": call.id, "type": "function", "function": function}
            yield chunk({"tool_calls": [start]})
            for piece in pieces(call.arguments):
                more = {"index": index, "function": {"arguments": piece}}
                yield chunk({"tool_calls": [more]})
        yield chunk({}, reply.stop or ("tool_calls" if reply.calls else "stop"))
        usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16, **reply.usage}
        yield chunk(usage=usage, x_groq={"id": "req_1", "usage": usage})
        yield b"data: [DONE]\n\n"
