"""Tools of the MCP server. Their names and schemas are stable."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar, cast

from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from ...harness._internal.records import record
from ...harness.tools.schemas import refusal, without_nulls
from ...harness.tools.tool import InvalidArguments, flat_schema
from ..auth.caller import ALL_SCOPES, Scope
from ..mcp.requests import Context
from ..settings.toolsets import COMPACT_ARGUMENTS, without

__all__ = [
    "Arguments",
    "FaceTool",
    "Handler",
    "TaskStarted",
    "ToolReply",
    "brief",
    "compact",
    "define",
    "parse",
    "plain_schema",
    "without_advice",
]

TaskSupport: TypeAlias = Literal["forbidden", "optional"]
"""Whether a call may become a task, if the client supports tasks."""


@record
class TaskStarted:
    """The reply of a call that continues as a task; its run is in the journal.

    Attributes:
        run_id: The run.
        notes: Notes for the caller; the status of the new task shows them.
    """

    run_id: str
    notes: Sequence[str] = ()


ToolReply: TypeAlias = CallToolResult | InputRequiredResult | TaskStarted
Handler: TypeAlias = Callable[
    [Context, CallToolRequestParams, dict[str, JsonValue]], Awaitable[ToolReply]
]


@record
class FaceTool:
    """A tool of the MCP server: its definition and its handler.

    Attributes:
        definition: Definition for `tools/list`.
        handler: Function that handles calls.
        scopes: Scopes for the tool; a caller needs one of them.
    """

    definition: Tool
    handler: Handler
    scopes: frozenset[Scope] = ALL_SCOPES

    def unaware_of(self, withheld: frozenset[str]) -> FaceTool:
        """Return the tool with a description that does not mention withheld tools."""
        description = without(self.definition.description or "", withheld)
        if description == self.definition.description:
            return self
        changed = self.definition.model_copy(update={"description": description.strip()})
        return replace(self, definition=changed)


def compact(tool: Tool) -> Tool:
    """Return the definition for the toolset `compact`, with only the most used arguments."""
    shown = COMPACT_ARGUMENTS.get(tool.name)
    schema = tool.input_schema
    if shown is not None:
        properties = cast("dict[str, Any]", schema["properties"])
        schema = {**schema, "properties": {name: properties[name] for name in shown}}
    return tool.model_copy(update={"input_schema": schema})


class Arguments(BaseModel):
    """Base class for a tool's arguments; unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_A = TypeVar("_A", bound=Arguments)
_R = TypeVar("_R", bound=ToolReply)


def parse(model: type[_A], name: str, args: Mapping[str, JsonValue]) -> _A:
    """Return validated arguments.

    Raises:
        InvalidArguments: The arguments are invalid; the text names each problem and the accepted
            values.
    """
    try:
        return model.model_validate(args)
    except ValidationError as error:
        schema = plain_schema(model)
        kept = without_nulls(schema, args)
        if len(kept) < len(args):
            return parse(model, name, kept)
        problems = refusal(error, schema)
        raise InvalidArguments(f"{name} did nothing: {problems}") from error


def plain_schema(model: type[BaseModel]) -> dict[str, JsonValue]:
    """Return a model's schema for `tools/list`; see `plain` and `brief`."""
    return json.loads(_plain_schema(model))


@lru_cache(maxsize=64)
def _plain_schema(model: type[BaseModel]) -> str:
    return json.dumps(brief(plain(model.model_json_schema())))


def plain(schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a schema that every client understands: without `$ref` and `anyOf`."""
    return cast("dict[str, JsonValue]", _without_unions(flat_schema(dict(schema))))


def _without_unions(node: Any) -> Any:
    """Replace "X or null" by X: clients leave the argument out instead of sending null."""
    if isinstance(node, list):
        return [_without_unions(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    node = cast("dict[str, Any]", node)
    choices = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        node = {**choices[0], **rest}
    kept = {key: value for key, value in node.items() if key != "description" or value}
    return {key: _without_unions(value) for key, value in kept.items()}


def brief(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema of an object without parts that a model does not need.

    These are the object's own description, `additionalProperties`, empty defaults, and length
    limits. The server checks everything anyway.
    """
    kept = {
        key: value
        for key, value in schema.items()
        if key not in ("description", "additionalProperties", "minLength", "maxLength")
        and not (key == "default" and not value)
        and not (key in ("minimum", "exclusiveMinimum") and value in (0, 1))
    }
    properties, items = kept.get("properties"), kept.get("items")
    if isinstance(properties, dict):
        kept["properties"] = {name: _brief_argument(one) for name, one in properties.items()}
    if isinstance(items, dict):
        kept["items"] = brief(items)
    return kept


def _brief_argument(schema: JsonValue) -> JsonValue:
    if not isinstance(schema, dict):
        return schema
    said = schema.get("description")
    return {**({"description": said} if said else {}), **brief(schema)}


def define(
    name: str,
    title: str,
    description: str,
    schema: Mapping[str, JsonValue],
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    always_load: bool = False,
    tasks: TaskSupport = "forbidden",
    page: str = "",
) -> Tool:
    """Return a definition with all hints: clients assume the worst case for a missing hint.

    There is no output schema: structured content does not require one, and models do not see it.
    Some clients would drop all fields that it does not name.
    `page` is the `ui://` resource that hosts of MCP Apps show with its results.
    """
    meta: dict[str, Any] = {"anthropic/alwaysLoad": True} if always_load else {}
    if page:
        meta["ui"] = {"resourceUri": page}
    return Tool(
        name=name,  # clients of all revisions read the title from the annotations
        description=" ".join(description.split()) if "\n\n" not in description else description,
        input_schema=dict(schema),
        annotations=ToolAnnotations(
            title=title,
            read_only_hint=read_only,
            destructive_hint=destructive,
            idempotent_hint=idempotent,
            open_world_hint=open_world,
        ),
        execution=None if tasks == "forbidden" else ToolExecution(task_support=tasks),
        _meta=meta or None,
    )


def without_advice(reply: _R, withheld: frozenset[str]) -> _R:
    """Return a reply without advice to use withheld tools.

    Only errors and the field `next` are changed, because they are our own texts. An error that
    contains nothing else stays unchanged.
    """
    if not isinstance(reply, CallToolResult):
        return reply
    facts = dict(cast("dict[str, object]", reply.structured_content or {}))
    changed: dict[str, str] = {}
    for key, instead in (("next", "pass the thread_id on in your next call."), ("error", "")):
        said = facts.get(key)
        if isinstance(said, str) and (kept := without(said, withheld)) != said:
            facts[key] = changed[said] = kept or instead or said

    def shown(text: str) -> str:
        for said, instead in changed.items():
            text = text.replace(said, instead)
        return (without(text, withheld) or text) if reply.is_error else text

    content = [
        one.model_copy(update={"text": shown(one.text)}) if isinstance(one, TextContent) else one
        for one in reply.content
    ]
    return reply.model_copy(
        update={"content": content, "structured_content": facts or reply.structured_content}
    )
