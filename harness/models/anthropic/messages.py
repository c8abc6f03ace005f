"""The messages of an Anthropic request: alternating roles, and each result after its call.

Content that the API would refuse is never sent: empty text, errors without a message, malformed or
duplicate ids and names, thinking without a signature or at the end of an answer, and a transcript
that starts or ends with the assistant. The caller has already paired calls and results (`paired`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..._internal import clean_text
from ...messages.message import (
    AIMessage,
    Content,
    DocumentBlock,
    HumanMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from ..base import ChatRequest
from ..wire import CONTINUE, OPENING, sendable

__all__ = ["CacheMarks", "continued", "messages_of", "render_answer", "tool_use_id"]

_FAILED = "(This call failed.)"
_IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")
_MOST_TITLE = 500

_THOUGHTS = ("thinking", "redacted_thinking")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BAD_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")

_Json = dict[str, Any]  # a JSON object in a request


def tool_use_id(call_id: str) -> str:
    """Return an id that the API accepts; equal ids stay equal, so calls match their results."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def _tool_name(name: str) -> str:
    return _BAD_IN_NAME.sub("_", name)[:128] or "unknown"


def _text(text: str) -> list[_Json]:
    return [{"type": "text", "text": clean_text(text)}] if text.strip() else []


def _content(content: Content) -> list[_Json]:
    if isinstance(content, str):
        return _text(content)
    blocks: list[_Json] = []
    for block in content:
        match block:
            case TextBlock(text):
                blocks += _text(text)
            case ImageBlock(media_type, data) if media_type in _IMAGES:
                blocks.append({"type": "image", "source": _source(media_type, data)})
            case DocumentBlock("application/pdf" as media_type, data, name):
                title = {"title": clean_text(name)[:_MOST_TITLE]} if name.strip() else {}
                source = _source(media_type, data)
                blocks.append({"type": "document", "source": source, **title})
            case _:
                what = f"{block.type}, {block.media_type}"
                blocks += _text(f"[{what}: left out, as this model does not take it]")
    return blocks


def _source(media_type: str, data: str) -> _Json:
    return {"type": "base64", "media_type": media_type, "data": data}


def _result(message: ToolMessage) -> _Json:
    block: _Json = {"type": "tool_result", "tool_use_id": tool_use_id(message.tool_call_id)}
    content = _content(message.content)
    if message.status == "error":
        content = content or _text(_FAILED)  # the API refuses an error without content
        if any(one["type"] != "text" for one in content):  # the API only accepts text in an error
            content.insert(0, {"type": "text", "text": _FAILED})
        else:
            block["is_error"] = True
    if content:
        block["content"] = content
    return block


def render_answer(content: Sequence[Any]) -> list[_Json]:
    """Convert an answer's blocks to the API's format, in order.

    Blocks that the API would refuse are left out: thinking without a signature, provider blocks of
    another provider, and thinking with nothing after it.
    """
    blocks: list[_Json] = []
    for block in content:
        match block:
            case TextBlock(text):
                blocks += _text(text)
            case ThinkingBlock(thinking, signature) if signature:
                thought = {"type": "thinking", "thinking": thinking, "signature": signature}
                blocks.append(thought)
            case RedactedThinkingBlock(data) if data:
                blocks.append({"type": "redacted_thinking", "data": data})
            case ToolCall(call_id, name, args):
                # `input` must be an object, so it is empty for a call with malformed arguments.
                # The call's error result describes them.
                use: _Json = {"type": "tool_use", "id": tool_use_id(call_id)}
                use |= {"name": _tool_name(name), "input": sendable(args)}
                blocks.append(use)
            case ProviderBlock("anthropic", data):
                blocks.append(sendable(data))
            case _:
                pass
    while blocks and blocks[-1]["type"] in _THOUGHTS:
        blocks.pop()
    return blocks


def _render(message: Message) -> tuple[str, list[_Json]]:
    match message:
        case HumanMessage():
            return "user", _content(message.content)
        case AIMessage():
            return "assistant", render_answer(message.content)
        case ToolMessage():
            return "user", [_result(message)]


def continued(body: Mapping[str, Any], answer: Sequence[Any]) -> Mapping[str, Any]:
    """Return the request that continues a paused answer, or `body` if it has no content yet.

    Args:
        body: The request that was answered.
        answer: The blocks of the answer so far.
    """
    so_far = render_answer(answer)
    if not so_far:
        return body
    *before, last = body["messages"]
    if last["role"] == "assistant":  # the paused answer of an earlier call
        so_far = [*last["content"], *so_far]
    else:
        before.append(last)
    return {**body, "messages": [*before, {"role": "assistant", "content": so_far}]}


@dataclass(slots=True)
class CacheMarks:
    """Candidates for cache breakpoints: blocks by part of the request, in order."""

    ttl: str | None
    tools: list[_Json] = field(default_factory=list[_Json])
    system: list[_Json] = field(default_factory=list[_Json])
    messages: list[_Json] = field(default_factory=list[_Json])

    def apply(self, limit: int) -> None:
        """Mark the most valuable blocks, at most `limit` of them.

        A breakpoint caches everything before it, so the last one of the messages saves most. Next
        come the last two of the system prompt: both stay valid if the transcript is rewritten, and
        the earlier one also if only the volatile end of the prompt changes.
        """
        control: _Json = {"type": "ephemeral"} | ({"ttl": self.ttl} if self.ttl else {})
        messages, system = self.messages[::-1], self.system[::-1]
        tools = self.tools[::-1]
        ranked = [*messages[:1], *system[:2], *messages[1:2], *tools[:1]]
        ranked += [*system[2:], *messages[2:], *tools[1:]]
        for place, block in enumerate(ranked):
            own: _Json = block.pop("cache_control", None) or {}
            # The API refuses a breakpoint with a long TTL after one with a short TTL.
            short = self.ttl == "1h" and own.get("ttl") != "1h"
            if place < limit:
                block["cache_control"] = own if own and not short else control


def _last_cacheable(blocks: Sequence[_Json]) -> _Json | None:
    return next((block for block in reversed(blocks) if block["type"] not in _THOUGHTS), None)


def _results_first(message: _Json) -> _Json:
    results = [block for block in message["content"] if block["type"] == "tool_result"]
    others = [block for block in message["content"] if block["type"] != "tool_result"]
    return {"role": message["role"], "content": results + others}


def _is_paused(answer: AIMessage, blocks: Sequence[_Json]) -> bool:
    """Whether the provider paused this answer while running its own tools."""
    own = ("text", "tool_use", *_THOUGHTS)
    return answer.stop_reason == "pause_turn" and blocks[-1]["type"] not in own


def messages_of(request: ChatRequest, marks: CacheMarks) -> list[_Json]:
    """Return the messages in the API's format, and add candidates for breakpoints to `marks`."""
    cached = {index % len(request.messages) for index in request.cache_messages if request.messages}
    merged: list[_Json] = []
    last: Message | None = None
    for index, message in enumerate(request.messages):
        role, blocks = _render(message)
        if not blocks:
            continue
        last = message
        marks.messages += [block for block in blocks if "cache_control" in block]
        block = _last_cacheable(blocks) if index in cached else None
        if block is not None and "cache_control" not in block:
            marks.messages.append(block)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    if not merged or merged[0]["role"] == "assistant":
        merged.insert(0, {"role": "user", "content": _text(OPENING)})
    # Current models refuse to continue an assistant message, except a paused turn.
    if isinstance(last, AIMessage) and not _is_paused(last, merged[-1]["content"]):
        merged.append({"role": "user", "content": _text(CONTINUE)})
    ordered = [_results_first(message) for message in merged]
    _tell_apart(block for message in ordered for block in message["content"])
    return ordered


def _tell_apart(blocks: Iterable[_Json]) -> None:
    """Number duplicate ids: a model may reuse ids in a later answer, but the API refuses that."""
    used: set[str] = set()
    now: dict[str, list[str]] = {}
    for block in blocks:
        if block["type"] == "tool_use":
            own, count = block["id"], 2
            while block["id"] in used:
                block["id"], count = f"{own}_{count}", count + 1
            used.add(block["id"])
            now.setdefault(own, []).append(block["id"])
        elif block["type"] == "tool_result" and now.get(block["tool_use_id"]):
            block["tool_use_id"] = now[block["tool_use_id"]].pop(0)
