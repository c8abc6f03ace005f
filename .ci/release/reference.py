"""The reference pages that are made from the code: Python API, command line, tools.

They are written when the site is built, so they cannot be out of date.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

import deep_agent_mcp
from deep_agent_mcp import server
from deep_agent_mcp.server.cli.main import cli

__all__ = ["command_line", "python_api", "tools_page"]

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}[\w`., ]+?):\s*(.*)$")

API_HEAD = """\
# Python API

Every name below is imported from `deep_agent_mcp`, except `serve`, `asgi_app` and `ServeContext`,
which come from `deep_agent_mcp.server`. [The library](../library.md) shows how to use them.
"""
COMMANDS_HEAD = """\
# Command line

Every command of `deep-agent-mcp` with its options. The options of `serve` are explained in
[settings](../settings.md).
"""
TOOLS_HEAD = """\
# Tools

The tools that MCP clients see, with the text that their models read. [Settings of the
server](../clients.md#fewer-tools) decide which of them it offers.
"""


def python_api() -> str:
    """Return the page about the public names of the package."""
    names = {name: getattr(deep_agent_mcp, name) for name in deep_agent_mcp.__all__}
    serving = {name: getattr(server, name) for name in server.__all__}
    functions = {n: o for n, o in names.items() if not inspect.isclass(o)}
    classes = {n: o for n, o in names.items() if inspect.isclass(o)}
    parts = [API_HEAD]
    for title, group in (("Functions", functions), ("Classes", classes), ("Server", serving)):
        parts.append(f"\n## {title}\n")
        parts += [_entry(name, thing) for name, thing in group.items()]
    return "".join(parts)


def _entry(name: str, thing: Any) -> str:
    parts = [f"\n### {name}\n", _signature(name, thing), _prose(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing):
        for member, value in inspect.getmembers(thing, inspect.isroutine):
            function = getattr(value, "__func__", value)
            ours = str(getattr(function, "__module__", "")).startswith("deep_agent_mcp")
            if ours and not member.startswith("_") and inspect.getdoc(function):
                parts.append(f"\n#### {name}.{member}\n")
                parts += [_signature(member, function), _prose(inspect.getdoc(function) or "")]
    return "".join(parts)


def _signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    given = [
        str(one.replace(annotation=_plain(one.annotation))).replace("'", "")
        if one.default is inspect.Parameter.empty
        else _with_default(one)
        for one in found.parameters.values()
        if one.name != "self"
    ]
    if sum(map(len, given)) > 70:
        shown = "(\n    " + ",\n    ".join(given) + ",\n)"
    else:
        shown = f"({', '.join(given)})"
    return f"\n```text\n{name}{shown}\n```\n"


def _with_default(one: inspect.Parameter) -> str:
    kind = "" if one.annotation is inspect.Parameter.empty else f": {_plain(one.annotation)}"
    default = repr(one.default)
    if " at 0x" in default or default.startswith("<"):
        default = "…"
    return f"{one.name}{kind} = {default}"


def _plain(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return annotation
    return getattr(annotation, "__name__", str(annotation))


def _prose(doc: str) -> str:
    """Turn a Google-style docstring into Markdown."""
    head, *rest = SECTION.split(doc)
    parts = ["\n", head.strip(), "\n"]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        entries, _, after = body.partition("\n\n")
        parts.append(f"\n**{title}**\n\n" + "\n".join(_entries(entries)) + "\n")
        if after.strip():
            parts.append("\n" + inspect.cleandoc(after) + "\n")
    return "".join(parts)


def _entries(body: str) -> Iterator[str]:
    """Yield a list item for each entry; deeper lines belong to the entry above."""
    lines = [line for line in inspect.cleandoc("\n" + body).splitlines() if line.strip()]
    for line in lines:
        found = None if line.startswith(" ") else ENTRY.match(line)
        if found:
            yield f"- `{found[1].strip('`')}`: {found[2]}"
        else:
            yield f"  {line.strip()}" if line is not lines[0] else f"- {line}"


def command_line() -> str:
    """Return the page about the commands."""
    return COMMANDS_HEAD + "".join(_commands(cli, "deep-agent-mcp", None))


def _commands(command: click.Command, path: str, above: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=path.rsplit(" ", 1)[-1], parent=above)
    level = min(path.count(" ") + 2, 4)
    yield f"\n{'#' * level} {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            if not below.hidden:
                yield from _commands(below, f"{path} {name}", context)


def tools_page(tools: list[dict[str, Any]]) -> str:
    """Return the page about the tools, from a server's own answer to `tools/list`."""
    return TOOLS_HEAD + "".join(map(_tool, tools))


def _tool(listed: Mapping[str, Any]) -> str:
    properties: dict[str, Any] = listed["inputSchema"].get("properties", {})
    required = listed["inputSchema"].get("required", ())
    rows = [
        f"| `{name}` | {_kind(one)} | {'yes' if name in required else ''} | {_meaning(one)} |\n"
        for name, one in properties.items()
    ]
    table = "\n| Argument | Type | Required | Meaning |\n|---|---|---|---|\n" + "".join(rows)
    return f"\n## `{listed['name']}`\n\n{listed['description']}\n" + (table if rows else "")


def _kind(schema: Mapping[str, Any]) -> str:
    choices = [one.get("type", "") for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    found = schema.get("type") or " or ".join(filter(None, choices)) or "any"
    return found if isinstance(found, str) else " or ".join(found)


def _meaning(schema: Mapping[str, Any]) -> str:
    parts = [schema.get("description", "")]
    if "enum" in schema:
        parts.append("One of " + ", ".join(f"`{one}`" for one in schema["enum"]) + ".")
    if schema.get("default") is not None:
        parts.append(f"Default: `{json.dumps(schema['default'])}`.")
    return " ".join(filter(None, parts)).replace("|", "\\|").replace("\n", " ")
