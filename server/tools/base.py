"""What every tool of the MCP face is: a definition, validated arguments and a handler."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast

from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from harness.tools import InvalidArguments, flat_schema
from server.auth.caller import ALL_SCOPES, Scope
from server.services import Context

__all__ = [
    "Arguments",
    "FaceTool",
    "Handler",
    "TaskStarted",
    "TaskSupport",
    "ToolReply",
    "define",
    "parse",
    "plain_schema",
]

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The reply of a call that goes on as a task; its run is in the journal."""

    run_id: str


ToolReply: TypeAlias = CallToolResult | InputRequiredResult | TaskStarted
Handler: TypeAlias = Callable[
    [Context, CallToolRequestParams, dict[str, JsonValue]], Awaitable[ToolReply]
]


@dataclass(frozen=True, slots=True)
class FaceTool:
    """A tool as clients see it, and what runs when they call it.

    Attributes:
        definition: What `tools/list` shows.
        handler: What runs.
        scopes: Who may call it: who has one of them.
    """

    definition: Tool
    handler: Handler
    scopes: frozenset[Scope] = ALL_SCOPES

    @property
    def tasks(self) -> TaskSupport:
        """Whether a call may, or must, become a task where the client takes one."""
        execution = self.definition.execution
        return (execution and execution.task_support) or "forbidden"


class Arguments(BaseModel):
    """Base of the arguments of a tool: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_A = TypeVar("_A", bound=Arguments)


def parse(model: type[_A], name: str, args: Mapping[str, JsonValue]) -> _A:
    """Return validated arguments.

    Raises:
        InvalidArguments: They do not fit; the text names each problem and what is accepted.
    """
    try:
        return model.model_validate(args)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
            for item in error.errors(include_url=False, include_context=False)
        )
        expected = json.dumps(plain_schema(model)["properties"], ensure_ascii=False)
        raise InvalidArguments(
            f"{name} did nothing: {problems}. Expected arguments: {expected}"
        ) from error


def plain_schema(model: type[BaseModel]) -> dict[str, JsonValue]:
    """Return the schema of a model's fields as every client understands it; see `plain`."""
    return plain(model.model_json_schema())


def plain(schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the schema of arguments as every client understands it: no `$ref`, no `anyOf`."""
    return cast("dict[str, JsonValue]", _without_unions(flat_schema(dict(schema))))


def _without_unions(node: Any) -> Any:
    """Replace "X or null" by X: leaving an argument out is how a client says null."""
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
    output: Mapping[str, JsonValue] | None = None,
) -> Tool:
    """Return a definition with every hint stated: an omitted one is read as its worst case."""
    return Tool(
        name=name,
        title=title,
        description=" ".join(description.split()) if "\n\n" not in description else description,
        input_schema=dict(schema),
        output_schema=dict(output) if output is not None else None,
        annotations=ToolAnnotations(
            title=title,
            read_only_hint=read_only,
            destructive_hint=destructive,
            idempotent_hint=idempotent,
            open_world_hint=open_world,
        ),
        execution=None if tasks == "forbidden" else ToolExecution(task_support=tasks),
        _meta={"anthropic/alwaysLoad": True} if always_load else None,
    )
