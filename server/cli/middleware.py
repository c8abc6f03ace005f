"""`deep-agent-mcp middleware`: lists the middleware of an agent, as text or data."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, cast

import click

from .shared import Refused, json_option

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ...harness.agent import Agent
    from ...harness.loop.hooks.middleware import AgentMiddleware
    from ..results import Answer

__all__ = ["list_middleware", "middleware", "with_plugins"]

MOST = 100
"""Maximum characters of a setting's value in the text; the data contain the whole value."""

_SECRET = re.compile(r"env|header|key|token|salt|secret|password")
"""Names of settings that may contain secrets."""

_DATA = (str, int, float, Mapping, list, tuple, set, frozenset)


@click.command()
@click.option("--agent", "agent_file", metavar="FILE")
@click.option("--trust-root", is_flag=True, default=None)
@click.option("--root", metavar="DIR")
@click.option("--skills", multiple=True, metavar="DIR")
@click.option("--agents", metavar="DIR")
@click.option("--memory", multiple=True, metavar="FILE")
@click.option("--model", metavar="NAME")
@click.option("--profiles", multiple=True, metavar="DIR")
@click.option("--approve", multiple=True, metavar="GLOB")
@click.option("--policy", multiple=True, metavar="FILE")
@click.option("--protect", metavar="ask|deny|off")
@click.option("--protect-path", "protect_paths", multiple=True, metavar="GLOB")
@click.option("--execute", metavar="off|bubblewrap|docker|host")
@click.option("--config", metavar="FILE")
@json_option
def middleware(config: str | None, as_json: bool, **flags: object) -> None:
    """List the main agent's middleware, outermost first.

    Shows hooks, tools and settings of each, then the installed plugins. The options mean the same
    as for `serve`.
    """
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    try:
        settings = load_settings(flags, os.environ, config=config)
    except SettingsError as error:
        raise Refused(str(error)) from None
    from ...harness.errors import HarnessError
    from ..app import built_agent

    try:
        listed = with_plugins(list_middleware(built_agent(settings)))
    except HarnessError as error:
        raise Refused(str(error)) from None
    click.echo(json.dumps(listed.data, indent=2) if as_json else listed.text)


def list_middleware(agent: Agent) -> Answer:
    """Return an agent's middleware, outermost first, with hooks, tools and settings."""
    from ..results import Answer

    rows = [_row(one) for one in agent.definition.middleware]
    lines = [f"Middleware of {agent.name}, outermost first:"]
    for number, row in enumerate(rows, 1):
        lines.append(f"{number}. {row['name']}")
        lines += [
            f"   {label}: {', '.join(cast('list[str]', row[label]))}"
            for label in ("hooks", "tools")
            if row[label]
        ]
        settings = cast("dict[str, JsonValue]", row["settings"])
        if settings:
            shown = ", ".join(f"{name}={_short(value)}" for name, value in settings.items())
            lines.append(f"   settings: {shown}")
    return Answer("\n".join(lines), {"agent": agent.name, "middleware": cast("JsonValue", rows)})


def with_plugins(listed: Answer) -> Answer:
    """Add the installed plugins to a listing, without importing them."""
    from ...harness.plugins import GROUPS, entry_points
    from ..results import Answer

    found = {group: entry_points(group) for group in GROUPS}
    lines = [
        f"- {group}: {name} = {one.value} ({one.source})"
        for group, plugins in found.items()
        for name, same in plugins.items()
        for one in same
    ]
    data: dict[str, JsonValue] = {
        group: [
            {"name": one.name, "value": one.value, "package": one.package, "version": one.version}
            for same in plugins.values()
            for one in same
        ]
        for group, plugins in found.items()
        if plugins
    }
    text = "\n".join([listed.text, "Plugins installed:", *lines]) if lines else listed.text
    return Answer(text, {**(listed.data or {}), "plugins": data})


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= MOST else f"{text[:MOST]} …"


def _row(one: AgentMiddleware) -> dict[str, JsonValue]:
    from ...harness.loop.hooks.middleware import HOOKS, hooks_of

    return {
        "name": one.name,
        "hooks": [hook for hook in HOOKS if hooks_of([one], hook)],
        "tools": [tool.name for tool in one.tools],
        "settings": _settings(one),
    }


def _settings(one: AgentMiddleware) -> dict[str, JsonValue]:
    """Return the arguments of a middleware; attributes with the same names take precedence.

    Values that are not plain data are shown by name, and only if they were passed explicitly.
    """
    from ...harness.loop.hooks.middleware import AgentMiddleware

    if type(one).__init__ is object.__init__:
        return {}
    args, options = one.made_with
    try:
        given = inspect.signature(type(one).__init__).bind(one, *args, **options)
    except (TypeError, ValueError):  # it was not created by a normal call
        return {}
    chosen = {*given.arguments}
    given.apply_defaults()
    found: dict[str, JsonValue] = {}
    for name, argument in [*given.arguments.items()][1:]:
        if given.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            continue
        kept = getattr(one, f"_{name}", argument)
        value = kept if hasattr(AgentMiddleware, name) else getattr(one, name, kept)
        if _is_plain(value) or name in chosen:
            found[name] = _told(name, value)
    return found


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, _DATA)


def _told(name: str, value: object, depth: int = 4) -> JsonValue:
    """Return a value as data, with `…` in place of possible secrets."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if _SECRET.search(name):
        return "…"
    if isinstance(value, str):
        return value
    if depth == 0:
        return "…"
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "name"):
        # A field that is not in the `repr` may be a secret.
        value = {one.name: getattr(value, one.name) if one.repr else "…" for one in fields(value)}
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _told(str(key), one, depth - 1) for key, one in items}
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return [_told(name, one, depth - 1) for one in cast("Collection[object]", value)]
    return _named(value)


def _named(value: object) -> str:
    """Return the name of an object that is not data."""
    for attribute in ("name", "__name__"):
        name: object = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(value).__name__
