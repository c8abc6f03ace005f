"""A `ChatRequest` as the body of an Anthropic Messages request.

What the API refuses is never sent: empty text, errors that say nothing, ids and names it does not
know, a transcript that starts or ends with the assistant, more than four cache breakpoints,
alternatives or odd names at the top of a tool's schema, a forced call where it is not taken or
together with thinking.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from ..errors import ModelError
from ..messages.message import (
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
from ._anthropic_stream import clean_text
from ._native_schema import open_place
from ._tool_schema import taken_and_told
from .base import ChatRequest, PromptSection, ToolSpec

__all__ = ["MAX_BREAKPOINTS", "PRIVATE_SETTINGS", "body_of", "render_answer", "tool_use_id"]

MAX_BREAKPOINTS = 4
"""Cache breakpoints the API accepts in one request."""

PRIVATE_SETTINGS = frozenset({"betas", "cache_ttl", "deferred_tools"})
"""Settings that are not parameters of the API."""

_UNFORCED = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-mythos-preview",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
)
"""Models, by the start of their id, that refuse a `tool_choice` which forces a call."""

_FAILED = "(This call failed.)"
_IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")
_MOST_TITLE = 500

_OPENING = "(The conversation starts with what was already done.)"
_CONTINUE = "Continue."
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BAD_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")

_Json = dict[str, Any]  # a JSON object that goes to the API


def tool_use_id(call_id: str) -> str:
    """Return an id the API accepts; equal ids stay equal, so call and result stay a pair."""
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
        content = content or _text(_FAILED)  # an error without content is refused
        if any(one["type"] != "text" for one in content):  # an error is of text only
            content.insert(0, {"type": "text", "text": _FAILED})
        else:
            block["is_error"] = True
    if content:
        block["content"] = content
    return block


def render_answer(content: Sequence[Any]) -> list[_Json]:
    """Return an answer's blocks as the API takes them back, in their order.

    Thinking travels only with its signature, and provider blocks only to the provider they came
    from: anything else would be refused.
    """
    blocks: list[_Json] = []
    for block in content:
        match block:
            case TextBlock(text):
                blocks += _text(text)
            case ThinkingBlock(thinking, signature) if signature:
                thought = {"type": "thinking", "thinking": thinking, "signature": signature}
                blocks.append(thought)
            case RedactedThinkingBlock(data):
                blocks.append({"type": "redacted_thinking", "data": data})
            case ToolCall(call_id, name, args):
                # `input` must be an object. A call with broken arguments has none; the error
                # result that answers it says what was wrong with them.
                use: _Json = {"type": "tool_use", "id": tool_use_id(call_id)}
                use |= {"name": _tool_name(name), "input": args}
                blocks.append(use)
            case ProviderBlock("anthropic", data):
                blocks.append(dict(data))
            case _:
                pass
    return blocks


def _render(message: Message) -> tuple[str, list[_Json]]:
    match message:
        case HumanMessage():
            return "user", _content(message.content)
        case AIMessage():
            return "assistant", render_answer(message.content)
        case ToolMessage():
            return "user", [_result(message)]


@dataclass(slots=True)
class _Marks:
    """Blocks that ask for a cache breakpoint, by part of the request, in order."""

    ttl: str | None
    tools: list[_Json] = field(default_factory=list[_Json])
    system: list[_Json] = field(default_factory=list[_Json])
    messages: list[_Json] = field(default_factory=list[_Json])

    def apply(self, limit: int) -> None:
        """Mark the most valuable blocks, at most `limit` of them.

        A breakpoint caches everything before it, so the last one of the messages is worth most.
        Next come the last two of the system prompt: they hold when the transcript is rewritten,
        and the second when only the volatile end of the prompt changed (peers B17, C9.4).
        """
        control: _Json = {"type": "ephemeral"} | ({"ttl": self.ttl} if self.ttl else {})
        messages, system = self.messages[::-1], self.system[::-1]
        tools = self.tools[::-1]
        ranked = [*messages[:1], *system[:2], *messages[1:2], *tools[:1]]
        ranked += [*system[2:], *messages[2:], *tools[1:]]
        for place, block in enumerate(ranked):
            own: _Json = block.pop("cache_control", None) or {}
            # The API refuses one that lives long after one that does not.
            short = self.ttl == "1h" and own.get("ttl") != "1h"
            if place < limit:
                block["cache_control"] = own if own and not short else control


def _last_cacheable(blocks: Sequence[_Json]) -> _Json | None:
    uncacheable = ("thinking", "redacted_thinking")
    return next((block for block in reversed(blocks) if block["type"] not in uncacheable), None)


def _results_first(message: _Json) -> _Json:
    results = [block for block in message["content"] if block["type"] == "tool_result"]
    others = [block for block in message["content"] if block["type"] != "tool_result"]
    return {"role": message["role"], "content": results + others}


def _messages(request: ChatRequest, marks: _Marks) -> list[_Json]:
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
        merged.insert(0, {"role": "user", "content": _text(_OPENING)})
    # Current models refuse to go on from an assistant message, except from a paused turn.
    if isinstance(last, AIMessage) and last.stop_reason != "pause_turn" and not last.tool_calls:
        merged.append({"role": "user", "content": _text(_CONTINUE)})
    ordered = [_results_first(message) for message in merged]
    _tell_apart(block for message in ordered for block in message["content"])
    return ordered


def _tell_apart(blocks: Iterable[_Json]) -> None:
    """Number ids that come again: models may count their calls anew, the API takes each id once."""
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


def _system(sections: Sequence[PromptSection], marks: _Marks) -> list[_Json]:
    """Return the prompt as one block per stretch between breakpoints."""
    blocks: list[_Json] = []
    open_block = False
    for section in sections:
        if section.text.strip():
            text = clean_text(section.text)
            if open_block:
                blocks[-1]["text"] += f"\n\n{text}"
            else:
                blocks.append({"type": "text", "text": text if not blocks else f"\n\n{text}"})
            open_block = True
        if section.cache and open_block:
            marks.system.append(blocks[-1])
            open_block = False
    return blocks


def _tools(
    tools: Sequence[ToolSpec | Mapping[str, JsonValue]], deferred: Collection[str], marks: _Marks
) -> list[_Json]:
    """Return the tools; those put off for a tool search cannot carry a breakpoint themselves."""
    rendered: list[_Json] = []
    loaded: _Json | None = None
    for tool in tools:
        if isinstance(tool, ToolSpec):
            schema, rest = taken_and_told({"type": "object", **tool.parameters})
            block: _Json = {"name": tool.name, "input_schema": schema}
            if texts := [one for one in (tool.description, rest) if one.strip()]:
                block["description"] = clean_text("\n\n".join(texts))
            if tool.name in deferred:
                block["defer_loading"] = True
            wanted = tool.cache
        else:
            block = dict(tool)
            wanted = "cache_control" in block
        rendered.append(block)
        if not block.get("defer_loading"):
            loaded = block
        if wanted and loaded is not None and all(loaded is not one for one in marks.tools):
            marks.tools.append(loaded)
    return rendered


def _drop_lost_references(messages: Sequence[_Json], tools: Sequence[_Json]) -> None:
    """Take out of results of a tool search the tools that are not there any more.

    The API refuses a reference to a tool that the request does not hold.
    """
    names = {tool.get("name") for tool in tools}
    for message in messages:
        for block in message["content"]:
            found: Any = block.get("content")
            if block["type"] == "tool_search_tool_result" and "tool_references" in (found or ()):
                references: list[_Json] = found["tool_references"]
                known = [one for one in references if one.get("tool_name") in names]
                block["content"] = {**found, "tool_references": known}


def _unthought(messages: Sequence[_Json]) -> bool:
    """Whether the newest results answer calls before which there is no thinking.

    Somebody else wrote them, such as another model in this one's place. The API refuses thinking
    with a budget then; a model that decides itself when to think takes them.
    """
    kinds = [one["type"] for one in messages[-1]["content"]] if messages else []
    if "tool_result" not in kinds or len(messages) < 2:
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _tool_choice(choice: str, model: str) -> _Json | None:
    """Return the choice on the wire; None for the default, the model's own choice."""
    if choice == "none":
        return {"type": "none"}
    if choice == "auto" or model.startswith(_UNFORCED):
        return None
    return {"type": "any"} if choice == "any" else {"type": "tool", "name": choice}


def _output_format(schema: Mapping[str, JsonValue]) -> _Json:
    """Return the format that holds an answer to a schema.

    The SDK closes objects and moves what the API does not know into descriptions; it would also
    close an object that is meant to be open, so such a schema is refused here.

    Raises:
        ModelError: The API cannot hold an answer to this schema.
    """
    place = open_place(schema)
    if place is not None:
        raise ModelError(
            f"Anthropic cannot hold an answer to this output schema: at {place} it is open (free "
            "keys, a value of any type, a tuple, or a type that holds itself). Nothing was sent. "
            "Describe that place closely, or use ToolStrategy.",
            kind="invalid_request",
        )
    from anthropic import transform_schema  # slow to import; the client has done it by now

    return {"type": "json_schema", "schema": transform_schema(dict(schema))}


def body_of(
    request: ChatRequest, parameters: Mapping[str, Any], *, model: str, max_tokens: int
) -> _Json:
    """Return the request's body.

    Args:
        request: The call.
        parameters: The model's own defaults; the request's settings win. Sampling parameters are
            sent only when one of the two has them. `cache_ttl` (`5m`, `1h`) is how long
            breakpoints live, `deferred_tools` names tools that wait for a tool search.
        model: Id of the model.
        max_tokens: Sent when neither names it: the API requires it.

    Raises:
        ModelError: The output schema is one the API cannot enforce.
    """
    settings = {**parameters, **request.settings}
    marks = _Marks(settings.get("cache_ttl"))
    body: _Json = {"model": model, "max_tokens": max_tokens}
    body["messages"] = _messages(request, marks)
    if system := _system(request.system, marks):
        body["system"] = system
    tools = _tools(request.tools, settings.get("deferred_tools") or (), marks)
    _drop_lost_references(body["messages"], tools)
    if tools:
        body["tools"] = tools
        if choice := _tool_choice(request.tool_choice, model):
            body["tool_choice"] = choice
            if choice["type"] != "none":
                settings.pop("thinking", None)
    thinking: _Json = settings.get("thinking") or {}
    if thinking.get("type") == "enabled" and _unthought(body["messages"]):
        del settings["thinking"]
    body |= {
        key: value
        for key, value in settings.items()
        if key not in PRIVATE_SETTINGS and value is not None
    }
    if request.output_schema is not None:
        config: _Json = dict(settings.get("output_config") or {})
        body["output_config"] = config | {"format": _output_format(request.output_schema)}
    # The API's automatic breakpoint counts as one.
    marks.apply(MAX_BREAKPOINTS - ("cache_control" in body))
    return body
