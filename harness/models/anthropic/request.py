"""A `ChatRequest` as the body of an Anthropic Messages request.

What the API refuses is never sent: more than four cache breakpoints, alternatives or odd names at
the top of a tool's schema, a forced call where it is not taken or together with thinking, and what
`_anthropic_messages` says of messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from ...errors import ModelError
from ...tools.spec import ToolSpec
from .._native_schema import open_place
from ..base import ChatRequest, PromptSection
from ..tool_schema import taken_and_told
from ..wire import clean_text
from .messages import CacheMarks, messages_of

__all__ = ["MAX_BREAKPOINTS", "PRIVATE_SETTINGS", "body_of"]

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

_Json = dict[str, Any]  # a JSON object that goes to the API


def _system(sections: Sequence[PromptSection], marks: CacheMarks) -> list[_Json]:
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
    tools: Sequence[ToolSpec | Mapping[str, JsonValue]],
    deferred: Collection[str],
    marks: CacheMarks,
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
    marks = CacheMarks(settings.get("cache_ttl"))
    body: _Json = {"model": model, "max_tokens": max_tokens}
    body["messages"] = messages_of(request, marks)
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
