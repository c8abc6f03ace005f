"""The middleware of an agent in words and as data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue

from harness.agent import Agent
from harness.loop.middleware import HOOKS, AgentMiddleware, hooks_of
from server.results import Answer

__all__ = ["list_middleware"]

MOST = 100
"""Characters of a setting's value in the text; the data have all of it."""

_SECRET = re.compile(r"env|header|key|token|salt|secret|password")
"""Names of settings that may hold what nobody shall read over a shoulder."""

_UNKNOWN = object()


def list_middleware(agent: Agent) -> Answer:
    """Return an agent's middleware, outermost first, with hooks, tools and settings."""
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


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= MOST else f"{text[:MOST]} …"


def _row(one: AgentMiddleware) -> dict[str, JsonValue]:
    return {
        "name": one.name,
        "hooks": [hook for hook in HOOKS if hooks_of([one], hook)],
        "tools": [tool.name for tool in one.tools],
        "settings": _settings(one),
    }


def _settings(one: AgentMiddleware) -> dict[str, JsonValue]:
    """Return the arguments it was made with, as far as it kept them and they are plain data."""
    found: dict[str, JsonValue] = {}
    for name in inspect.signature(type(one).__init__).parameters:
        value = getattr(one, name, getattr(one, f"_{name}", _UNKNOWN))
        if value is not _UNKNOWN and _is_plain(value):
            found[name] = "…" if _SECRET.search(name) and value else cast("JsonValue", value)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return all(isinstance(key, str) and _is_plain(one) for key, one in pairs)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return all(map(_is_plain, cast("Sequence[object]", value)))
    return value is None or isinstance(value, str | int | float)
