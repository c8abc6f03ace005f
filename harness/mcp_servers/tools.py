"""A server's tools, as tools of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue
from wcmatch import fnmatch

from .._internal.records import record
from ..errors import AgentBuildError
from ..tools.schemas import check_schema, flat_schema, schema_problems
from ..tools.tool import Tool, ToolFunction
from .names import offered_names

if TYPE_CHECKING:
    from mcp.types import Tool as WireTool

__all__ = ["Listing", "MCPTool", "listing", "usable_schema"]

_MAX_SCHEMA_NODES = 20_000
_DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True)
class MCPTool(Tool):
    """A tool of an MCP server. Its hints are the server's word, not a fact.

    Attributes:
        server: The server, as the middleware names it.
        remote_name: What the server calls the tool.
        schema: The server's own schema of the arguments, which they are checked against.
    """

    server: str = ""
    remote_name: str = ""
    schema: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the arguments as they are sent, which is as they came.

        Raises:
            InvalidArguments: They do not fit the server's schema; nothing was sent.
        """
        problems = list(schema_problems(self.schema, args))
        if problems:
            raise self._refused(problems)
        return dict(args)


@record
class Listing:
    """What a server offers.

    Attributes:
        tools: Its tools, by name.
        left_out: Why some are missing, by the server's own names.
    """

    tools: tuple[MCPTool, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


def listing(
    server: str,
    wire: Sequence[WireTool],
    only: Sequence[str] | None,
    servers: Collection[str],
    function: Callable[[str], ToolFunction],
) -> Listing:
    """Return a server's tools in a stable order, so that the provider's prompt cache holds.

    A tool that no model could be offered is left out: one bad schema would fail every model call.

    Args:
        server: The server's name.
        wire: What it listed.
        only: Globs over the tools' own names; None for all.
        servers: All configured servers.
        function: Makes the body of a tool from its own name.
    """
    known = {one.name: one for one in wire if _wanted(one.name, only)}
    names = offered_names(server, list(known), servers)
    tools: list[MCPTool] = []
    left_out: dict[str, str] = {}
    for remote, name in sorted(names.items(), key=lambda pair: pair[1]):
        try:
            tools.append(_tool(server, name, known[remote], function(remote)))
        except AgentBuildError as error:
            left_out[remote] = str(error)
    return Listing(tuple(tools), left_out)


def _wanted(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(fnmatch.fnmatch(name, one, flags=fnmatch.CASE) for one in only)


def _tool(server: str, name: str, wire: WireTool, function: ToolFunction) -> MCPTool:
    schema = cast(dict[str, JsonValue], wire.input_schema)
    hints = wire.annotations
    read_only = hints is not None and hints.read_only_hint is True
    return MCPTool(
        name=name,
        description=wire.description or wire.title or "",
        parameters=usable_schema(f"tool {wire.name!r}", schema),
        function=function,
        title=wire.title or (hints.title if hints else None) or wire.name,
        read_only=read_only,
        # The protocol's defaults: a tool that says nothing may destroy, and reaches outside.
        destructive=not read_only and (hints is None or hints.destructive_hint is not False),
        idempotent=read_only or (hints is not None and hints.idempotent_hint is True),
        open_world=hints is None or hints.open_world_hint is not False,
        output_schema=_output_schema(wire),
        server=server,
        remote_name=wire.name,
        schema=schema,
    )


def _output_schema(wire: WireTool) -> dict[str, JsonValue] | None:
    if wire.output_schema is None:
        return None
    try:
        return usable_schema(wire.name, wire.output_schema)
    except AgentBuildError:
        return None  # it only describes: results are checked against the server's own


def usable_schema(owner: str, schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a server's schema of an object, written out flat.

    Raises:
        AgentBuildError: It is not valid, refers to something outside, or is too large.
    """
    _check_size(owner, schema)
    check_schema(schema, owner)
    return flat_schema(schema)


def _check_size(owner: str, schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is huge once its references are written out.

    A few definitions that each use the one before twice make billions of nodes.

    Raises:
        AgentBuildError: It is too large or too deep.
    """
    left = _MAX_SCHEMA_NODES

    def walk(node: Any, inside: tuple[str, ...]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise AgentBuildError(f"{owner}: its JSON schema is too large")
        if isinstance(node, list):
            for item in cast(list[Any], node):
                walk(item, inside)
        elif isinstance(node, dict):
            node = cast(dict[str, Any], node)
            ref = node.get("$ref")
            if isinstance(ref, str) and ref not in inside:
                walk(_referred(schema, ref), (*inside, ref))
            for key, value in node.items():
                if key not in _DEFINITIONS:
                    walk(value, inside)

    try:
        walk(schema, ("#",))
    except RecursionError as error:
        raise AgentBuildError(f"{owner}: its JSON schema is too deep") from error


def _referred(schema: Mapping[str, Any], ref: str) -> Any:
    node: Any = schema
    for part in ref.removeprefix("#").strip("/").split("/"):
        if not isinstance(node, dict):
            return None
        node = cast(dict[str, Any], node).get(part.replace("~1", "/").replace("~0", "~"))
    return node
