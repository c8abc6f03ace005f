"""Fake of OpenAI's Responses API."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fake_vendors.chat import ERRORS, check_schema, check_strict
from tests.fake_vendors.server import FakeVendor, Refused, Reply, pieces

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_PARAMETERS = {
    "model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls",
    "text", "max_output_tokens", "temperature", "top_p", "reasoning", "include",
    "store", "truncation",
    "service_tier", "user", "metadata", "prompt_cache_key", "prompt_cache_options",
}  # fmt: skip
_ids = itertools.count(1)


class FakeResponses(FakeVendor):
    """The Responses API without storage: reasoning is encrypted and must be sent back unchanged."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self._reasoning: dict[str, str] = {}

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        return (method, path) == ("POST", "/v1/responses")

    def error(self, status: int, message: str) -> Any:
        code, kind = ERRORS.get(status, (None, "invalid_request_error"))
        return {"error": {"message": message, "type": kind, "code": code, "param": None}}

    def check(self, body: Mapping[str, Any]) -> None:
        for name in body:
            if name not in _PARAMETERS:
                raise Refused(f"Unknown parameter: '{name}'.")
        if body.get("store") is not False:
            raise Refused("this test's organisation stores nothing: 'store' must be false")
        for tool in body.get("tools", ()):
            if tool["type"] != "function" or not _NAME.fullmatch(tool["name"]):
                raise Refused(f"Invalid 'tools[0].name': {tool.get('name')!r}")
            check_schema(tool["name"], tool.get("parameters"))
            if tool.get("strict"):
                check_strict(tool["name"], tool["parameters"])
        form = body.get("text", {}).get("format", {"type": "text"})
        if form["type"] == "json_schema" and form.get("strict"):
            check_strict("text.format", form["schema"])
        self._input(body.get("input") or [])

    def _input(self, items: Sequence[Mapping[str, Any]]) -> None:
        if not items:
            raise Refused("One of 'input' or 'previous_response_id' must be provided.")
        for place, item in enumerate(items):
            match item.get("type", "message"):
                case "message":
                    self._message(item)
                case "reasoning":
                    self._thought(item, items[place + 1 : place + 2])
                case "function_call":
                    self._call(item)
                case "function_call_output":
                    pass
                case other:
                    raise Refused(f"Invalid value: '{other}'.")
        self._pairs(items)

    def _call(self, item: Mapping[str, Any]) -> None:
        if not isinstance(json.loads(item["arguments"]), dict):
            raise Refused("Invalid 'arguments'")
        if len(item["call_id"]) > 64 or not _NAME.fullmatch(item["name"]):
            raise Refused("Invalid 'input': function_call")

    def _pairs(self, items: Sequence[Mapping[str, Any]]) -> None:
        waiting: set[str] = set()
        for item in items:
            if item.get("type") == "function_call":
                waiting.add(item["call_id"])
            elif item.get("type") == "function_call_output":
                if item["call_id"] not in waiting:
                    raise Refused(f"No tool call found for call_id {item['call_id']}.")
                waiting.remove(item["call_id"])
        if waiting:
            raise Refused(f"No tool output found for function call {sorted(waiting)}.")

    def _message(self, item: Mapping[str, Any]) -> None:
        if item["role"] not in ("user", "assistant", "system", "developer"):
            raise Refused(f"Invalid value: {item['role']!r}")
        for block in item["content"] if isinstance(item["content"], list) else ():
            kinds = ("input_text", "input_image", "input_file")
            kinds = ("output_text", "refusal") if item["role"] == "assistant" else kinds
            if block["type"] not in kinds:
                raise Refused(f"Invalid value: {block['type']!r}. Supported values are: {kinds}")

    def _thought(self, item: Mapping[str, Any], following: Sequence[Mapping[str, Any]]) -> None:
        if self._reasoning.get(item["id"]) != item.get("encrypted_content"):
            raise Refused(f"The encrypted content for item {item['id']} could not be verified.")
        kind = following[0].get("type", "message") if following else None
        if kind not in ("message", "function_call") or following[0].get("role") == "user":
            raise Refused(
                f"Item '{item['id']}' of type 'reasoning' was provided without its required "
                "following item."
            )

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        numbers = itertools.count()

        def event(kind: str, **data: Any) -> bytes:
            data = {"type": kind, "sequence_number": next(numbers), **data}
            return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()

        def response(status: str, **more: Any) -> dict[str, Any]:
            return {"id": "resp_1", "object": "response", "created_at": 1, "model": body["model"],
                    "status": status, "output": [], "tools": [], "tool_choice": "auto",
                    "parallel_tool_calls": True, "error": None, "incomplete_details": None,
                    "instructions": None, "metadata": {}, "temperature": None, "top_p": None,
                    **more}  # fmt: skip

        yield event("response.created", response=response("in_progress"))
        places = itertools.count()
        if reply.thinking:
            yield from self._thinking(reply.thinking, event, next(places))
        if reply.text:
            yield from self._text(reply.text, event, next(places))
        for call in reply.calls:
            place, item_id = next(places), f"fc_{next(_ids)}"
            item = {"type": "function_call", "id": item_id, "call_id": call.id, "name": call.name,
                    "arguments": "", "status": "in_progress"}  # fmt: skip
            if call.namespace:
                item["namespace"] = call.namespace
            yield event("response.output_item.added", output_index=place, item=item)
            for piece in pieces(call.arguments):
                kind = "response.function_call_arguments.delta"
                yield event(kind, output_index=place, item_id=item_id, delta=piece)
            done = {**item, "arguments": call.arguments, "status": "completed"}
            yield event("response.output_item.done", output_index=place, item=done)
        usage = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16,
                 "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens_details": {"reasoning_tokens": 0}, **reply.usage}  # fmt: skip
        if reply.stop:
            why = {"reason": reply.stop}
            last = response("incomplete", usage=usage, incomplete_details=why)
            yield event("response.incomplete", response=last)
        else:
            yield event("response.completed", response=response("completed", usage=usage))

    def _thinking(self, text: str, event: Any, place: int) -> Iterable[bytes]:
        item_id = f"rs_{next(_ids)}"
        self._reasoning[item_id] = f"encrypted:{item_id}"
        item = {"type": "reasoning", "id": item_id, "summary": []}
        yield event("response.output_item.added", output_index=place, item=item)
        where = {"item_id": item_id, "output_index": place, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield event("response.reasoning_summary_part.added", part=part, **where)
        for piece in pieces(text):
            yield event("response.reasoning_summary_text.delta", delta=piece, **where)
        whole = {**item, "summary": [{"type": "summary_text", "text": text}],
                 "encrypted_content": self._reasoning[item_id]}  # fmt: skip
        yield event("response.output_item.done", output_index=place, item=whole)

    def _text(self, text: str, event: Any, place: int) -> Iterable[bytes]:
        item_id = f"msg_{next(_ids)}"
        item = {"type": "message", "id": item_id, "role": "assistant", "content": [],
                "status": "in_progress"}  # fmt: skip
        yield event("response.output_item.added", output_index=place, item=item)
        where = {"item_id": item_id, "output_index": place, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", part=part, **where)
        for piece in pieces(text):
            yield event("response.output_text.delta", delta=piece, logprobs=[], **where)
        yield event("response.output_text.done", text=text, logprobs=[], **where)
        whole = {**item, "content": [{**part, "text": text}], "status": "completed"}
        yield event("response.output_item.done", output_index=place, item=whole)
