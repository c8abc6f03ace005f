"""Bounds of an agent file in the root, where agents and strangers can write.

The operator trusts its words, not its powers. So it may have what describes an agent, and nothing
that runs code, names files outside of the root, sends a key or a variable somewhere, or widens what
agents may do. Everything that is not named here is refused, so a new key is until it is added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from ...harness.agent_file.reading import AgentFileText, plugin_names, python_names
from ...harness.agent_file.schema import AgentFile

__all__ = ["require_no_code", "require_plain"]

Keys: TypeAlias = tuple[str | int, ...]

_SHARED = frozenset(
    {
        "description",
        "capabilities",
        "model",
        "model_role",
        "vision",
        "instructions",
        "answer",
        "approve",
    }
)
_OF_AGENT = _SHARED | {"name", "skills", "agents", "memory"}
_OF_SUBAGENT = _SHARED | {
    *("limits", "mcp_servers", "mode", "permissions", "public", "skills", "tools")
}
_OF_MODEL = frozenset({"name", "effort", "max_tokens", "temperature", "thinking"})
"""Not `base_url`, which would be sent the key and every conversation."""

_WHERE = "is in the root, where agents and strangers can write"
_OPERATOR = f"and this file {_WHERE}. Move the file elsewhere and name it with --agent"


def require_plain(text: AgentFileText, root: Path) -> None:
    """Refuse what a file in the root may not say. Reads no other file and imports nothing.

    Args:
        text: The file.
        root: The root.

    Raises:
        DefinitionError: It says something else; the text has file, line and key.
    """
    for table in text.tables:
        if table not in ("agent", "agents"):
            raise text.error((table,), f"only the operator may set [{table}], {_OPERATOR}")
    _check(text, ("agent",), _table(text.tables.get("agent")), _OF_AGENT, root)
    for name, given in _table(text.tables.get("agents")).items():
        _check(text, ("agents", name), _table(given), _OF_SUBAGENT, root)


def require_no_code(text: AgentFileText, file: AgentFile) -> None:
    """Refuse names of Python objects and plugins where names of tools may be.

    Raises:
        DefinitionError: There is one.
    """
    for keys, name in (*python_names(file), *plugin_names(file)):
        raise text.error(keys, f"{name!r} would run code, {_OPERATOR}")


def _check(
    text: AgentFileText, at: Keys, table: Mapping[str, Any], accepted: frozenset[str], root: Path
) -> None:
    for key in table:
        if key not in accepted:
            raise text.error((*at, key), f"only the operator may set {key!r}, {_OPERATOR}")
    _check_model(text, (*at, "model"), table.get("model"))
    for keys, path in _paths(at, table):
        place = os.path.normpath(root / Path(path).expanduser())
        if not Path(place).is_relative_to(root):
            raise text.error(keys, f"{path} is outside of the root, {_OPERATOR}")


def _check_model(text: AgentFileText, at: Keys, model: object) -> None:
    table = _table(model)
    for key in table:
        if key not in _OF_MODEL:
            raise text.error((*at, key), f"only the operator may set {key!r}, {_OPERATOR}")
    if "${" in repr(table):
        raise text.error(at, f"variables are for the operator's files, {_OPERATOR}")
    name = table.get("name", model)
    if isinstance(name, str) and name.strip().lower().startswith("scripted:"):
        raise text.error(at, f"{name} would open a file, {_OPERATOR}")


def _paths(at: Keys, table: Mapping[str, Any]) -> Sequence[tuple[Keys, str]]:
    """Return the paths of an agent, each with its keys."""
    found: list[tuple[Keys, Any]] = [
        ((*at, "instructions"), _table(table.get("instructions")).get("file")),
        ((*at, "answer", "schema"), _table(table.get("answer")).get("schema")),
    ]
    if at == ("agent",):
        found.append(((*at, "agents"), table.get("agents")))
        for key in ("skills", "memory"):
            given = table.get(key)
            if isinstance(given, list):
                places = enumerate(cast("list[object]", given))
                found += [((*at, key, place), path) for place, path in places]
    return [(keys, path) for keys, path in found if isinstance(path, str)]


def _table(value: object) -> Mapping[str, Any]:
    """Return a table; what is none has no keys here and is refused later for its type."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
