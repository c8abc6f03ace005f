"""MCP tools: conversion of a server's tools and results to ours; tools found on demand.

Found tools are stored in the thread's state, so they can be called from then on, even after a
restart. They are offered after all other tools and in the order in which they were found, so the
start of the prompt, which the provider caches, does not change.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, cast

from pydantic import Field, JsonValue
from wcmatch import fnmatch

from .._internal.records import record
from ..backends.file_tools.results import binary_notice, media_content
from ..errors import AgentBuildError
from ..messages.message import ContentBlock, TextBlock
from ..state.channels import Mark, Reducer
from ..store.texts import indexed_words, query_words
from ..tools.schemas import check_schema, flat_schema, schema_problems
from ..tools.tool import Tool, ToolFunction, ToolResult, tool
from .config import offered_names

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, TextResourceContents
    from mcp.types import ContentBlock as WireBlock
    from mcp.types import Tool as WireTool

__all__ = [
    "FoundTools",
    "Listing",
    "MCPTool",
    "find_tools_tool",
    "listing",
    "tool_result",
    "usable_schema",
]

_MAX_SCHEMA_NODES = 20_000
_DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True)
class MCPTool(Tool):
    """A tool of an MCP server. Its hints are the server's word, not a fact.

    Attributes:
        server: The server's name in the middleware.
        remote_name: The server's name of the tool.
        schema: The server's own schema, against which arguments are checked.
    """

    server: str = ""
    remote_name: str = ""
    schema: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the arguments to send, which are unchanged.

        Raises:
            InvalidArguments: They do not match the server's schema; nothing was sent.
        """
        problems = list(schema_problems(self.schema, args))
        if problems:
            raise self._misfit(problems)
        return dict(args)


@record
class Listing:
    """Tools that a server offers.

    Attributes:
        tools: Its tools, by name.
        left_out: Reasons for missing tools, by the server's own names.
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
    """Return a server's tools in a stable order, so that the provider's prompt cache works.

    A tool that models cannot use is left out: one bad schema would fail every model call.

    Args:
        server: The server's name.
        wire: The listed tools.
        only: Globs over the tools' own names; None for all.
        servers: All configured servers.
        function: Creates the body of a tool from its own name.
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
        # The protocol's defaults: a tool without hints may be destructive and open-world.
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
        AgentBuildError: It is not valid, has external references, or is too large.
    """
    _check_size(owner, schema)
    check_schema(schema, owner)
    return flat_schema(schema)


def _check_size(owner: str, schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is huge once its references are expanded.

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


def tool_result(result: CallToolResult) -> ToolResult:
    """Convert a server's result for the model and our programs.

    Text and images are unchanged; links, embedded files, audio and unsupported images become text
    that describes them. Structured content is the artifact, and also the text if there is none.
    """
    blocks = [_block(one) for one in result.content]
    artifact = cast(JsonValue, result.structured_content)
    if artifact is not None and not any(isinstance(one, TextBlock) for one in blocks):
        blocks.insert(0, TextBlock(json.dumps(artifact, ensure_ascii=False)))
    status = "error" if result.is_error else "success"
    if all(isinstance(one, TextBlock) for one in blocks):
        text = "\n".join(one.text for one in blocks if isinstance(one, TextBlock))
        return ToolResult(text, artifact, status)
    return ToolResult(tuple(blocks), artifact, status)


def _block(block: WireBlock) -> ContentBlock:
    match block.type:
        case "text":
            return TextBlock(block.text)
        case "image":
            return _binary(f"image of type {block.mime_type}", block.data)
        case "audio":
            return TextBlock(f"[audio, {block.mime_type}; it cannot be shown here]")
        case "resource_link":
            facts = [block.title or block.name, block.description, block.mime_type]
            return TextBlock(f"[resource {block.uri}: {', '.join(filter(None, facts))}]")
        case "resource":
            return _embedded(block.resource)


def _embedded(resource: TextResourceContents | BlobResourceContents) -> ContentBlock:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        kind = resource.mime_type or "text"
        return TextBlock(f"[resource {resource.uri}, {kind}]\n{text}")
    return _binary(f"resource {resource.uri}", str(getattr(resource, "blob", "")))


def _binary(what: str, data: str) -> ContentBlock:
    """Return an image, or a note about anything else.

    The bytes decide, not the type that is claimed: an image that the provider refuses would end
    the thread.
    """
    try:
        content = base64.b64decode(data, validate=True)
        shown = media_content(what, content) or binary_notice(what, content)
    except (binascii.Error, ValueError):
        return TextBlock(f"[{what} is broken: its base64 cannot be decoded]")
    return TextBlock(shown) if isinstance(shown, str) else shown[-1]


FIND_TOOLS = "find_tools"

_MOST_FOUND = 8
_MOST_NAMED = 100
_MOST_KEPT = 200
_MOST_CHARS = 200


def _joined(current: Sequence[str], write: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*current, *write]))[:_MOST_KEPT]


class FoundTools(TypedDict):
    """State of the middleware: the names of found tools, in order."""

    found_tools: Annotated[
        NotRequired[list[str]], Reducer(_joined, default=list[str]), Mark.PRIVATE, Mark.CONTROL
    ]


def find_tools_tool(
    servers: Sequence[str],
    tools: Callable[[], Awaitable[Sequence[MCPTool]]],
    problems: Callable[[], Sequence[str]],
) -> Tool:
    """Return the tool that finds tools.

    Args:
        servers: The servers with searchable tools.
        tools: Returns the tools of usable servers.
        problems: Returns why other servers are not usable.
    """
    named = ", ".join(servers)
    description = (
        f"Find tools of these servers: {named}. You can call what is found from your next answer "
        "on. Describe what you want to do, or give a tool's name."
    )

    @tool(name=FIND_TOOLS, description=description, read_only=True)
    async def find_tools(
        query: Annotated[str, Field(description="Words, such as 'create issue', or a name.")],
    ) -> ToolResult:
        known = await tools()
        found = _found(query, known)
        lines = [f"- {one.name}: {_first_line(one.description)}" for one in found]
        if found:
            lines.insert(0, "You can call these tools now:")
        else:
            names = [one.name for one in known]
            shown = ", ".join(names[:_MOST_NAMED]) or "none"
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            lines = [f"No tool fits. Try other words. Tools: {shown}{more}."]
        lines += problems()
        names = [one.name for one in found]
        return ToolResult("\n".join(lines), {"found": [*names]}, update={"found_tools": names})

    return find_tools


def _found(query: str, tools: Sequence[MCPTool]) -> list[MCPTool]:
    """Return the best matching tools; names count more than descriptions."""
    named = [one for one in tools if query.strip() in (one.name, one.remote_name)]
    if named:
        return named[:_MOST_FOUND]
    wanted = query_words(query.replace("_", " "))
    scored = [(_score(one, wanted), one) for one in tools]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
    return [one for _, one in best[:_MOST_FOUND]]


def _score(tool: MCPTool, wanted: Sequence[str]) -> float:
    name = indexed_words([f"{tool.name} {tool.title or ''}".replace("_", " ")])
    about = indexed_words([tool.description[:2_000].replace("_", " ")])
    score = 0.0
    for word in wanted:
        score += 3.0 * any(_alike(word, one) for one in name)
        score += 1.0 * any(_alike(word, one) for one in about)
    return score


def _alike(left: str, right: str) -> bool:
    """Whether two words are the same, ignoring endings such as a plural."""
    short, long = sorted((left, right), key=len)
    return left == right or (len(short) > 3 and long.startswith(short))


def _first_line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _MOST_CHARS else f"{first[:_MOST_CHARS]}…"
