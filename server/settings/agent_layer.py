"""The agent file among the settings: its keys, its JSON Schema, and its bounds inside the root.

The schema of agent files has the tables of the agent, and `[server]` from the settings.

The operator trusts its text, but does not give it rights. So it may describe an agent, but may not
run code, refer to files outside the root, send a key or a variable somewhere, or extend the rights
of agents. Everything that is not listed here is refused, so new keys are refused until they are
added.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from ...harness import middleware as shipped
from ...harness._internal.code_folders import import_from
from ...harness._internal.records import record
from ...harness.agent_file.middlewares import class_names, options_of
from ...harness.agent_file.reading import AgentFileText, plugin_names, python_names
from ...harness.agent_file.schema import AgentFile
from ...harness.agent_file.values import AgentFileError, expanded
from ...harness.definitions import no_such
from ...harness.definitions.confined_files import ConfinedFiles
from ...harness.definitions.frontmatter import DefinitionError
from ...harness.plugins import is_object_name
from .definition import ServedDefinition
from .settings import Settings, SettingsError

__all__ = ["agent_schema", "served_definition"]

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
    """Refuse keys that a file in the root may not have. Reads no other file and imports nothing.

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
    """Refuse names of Python objects and plugins in lists of tools.

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


OF_AGENT = frozenset(
    {
        "agents",
        "approve",
        "background_subagents",
        "beyond_allowed_tools",
        "memory",
        "model",
        "model_patience",
        "models",
        "policy",
        "profiles",
        "skills",
    }
)
"""Keys of `[agent]` that are settings of the server."""

_RENAMED = {"models": "task_models"}
"""Those that have another name as settings."""

NOT_IN_SERVER = frozenset(
    {
        *("agent_file", "config_file", "definition", "trust_root"),
        *("journal_key", "webhook_secret"),
    }
)
"""Settings that `[server]` cannot have."""


@record
class AgentFileLayer:
    """An agent file, read.

    Attributes:
        definition: The agent.
        settings: Values of settings by key, each with the keys of its place in the file.
        place: Returns where keys stand, for messages.
    """

    definition: ServedDefinition
    settings: Mapping[str, tuple[object, tuple[str, ...]]]
    place: Callable[[tuple[str, ...]], str]


def served_definition(
    path: Path,
    environ: Mapping[str, str],
    known: Collection[str],
    tables: Collection[str],
    *,
    untrusted: Path | None = None,
) -> AgentFileLayer:
    """Read an agent file. Blocks, and imports what it names.

    Python modules beside the file can be named, besides those that are installed.

    Args:
        path: The file.
        environ: The environment, for `${NAME}`.
        known: Dotted keys of settings that `[server]` may have.
        tables: Settings that are tables.
        untrusted: The root that the file was found in: links out of it are not followed, and it
            may only describe agents, see `root_agent_file`.

    Raises:
        SettingsError: Something in it is wrong; the text has file, line and key.
    """
    try:
        files = ConfinedFiles() if untrusted is None else ConfinedFiles().also((untrusted,))
        text = AgentFileText.read(path, files)
        rest = dict(text.tables)
        settings: dict[str, tuple[object, tuple[str, ...]]] = {}
        for table in rest.keys() - {*AgentFile.model_fields, "server"}:
            raise text.error((table,), no_such("table", table, [*AgentFile.model_fields, "server"]))
        if untrusted is not None:
            require_plain(text, untrusted)
        _take_server(text, rest, settings, known, tables)
        _take_agent(text, rest, settings, known)
        _take_root(rest, settings)
        _take_urls(text, rest, settings, environ)
        _take_principals(rest, settings)
        file, named = text.validated(rest)
        if untrusted is not None:
            require_no_code(text, file)
        else:
            objects = (name for _, name in python_names(file) if is_object_name(name))
            import_from(path.parent, [name.partition(":")[0] for name in objects])
        parts = text.parts(file, environ)
    except DefinitionError as error:
        raise SettingsError(str(error)) from error

    def place(keys: tuple[str, ...]) -> str:
        line = str(text.error(keys, "")).partition(": ")[0]
        return f"{line}, key {'.'.join(keys)}"

    definition = ServedDefinition(path, file, parts, tuple(named), _modules(file), text)
    return AgentFileLayer(definition, settings, place)


def _modules(file: AgentFile) -> tuple[Path, ...]:
    """Return the files of the modules that a file names, all of which are imported by now."""
    names = dict.fromkeys(name.partition(":")[0] for _, name in python_names(file))
    places = (getattr(sys.modules.get(one), "__file__", None) for one in names)
    return tuple(Path(one) for one in places if one)


def _take_server(
    text: AgentFileText,
    rest: dict[str, Any],
    settings: dict[str, tuple[object, tuple[str, ...]]],
    known: Collection[str],
    tables: Collection[str],
) -> None:
    server = rest.pop("server", {})
    if not isinstance(server, dict):
        raise text.error(("server",), "a table of settings is expected")
    for key, value in cast("dict[str, object]", server).items():
        if key not in tables or not isinstance(value, dict):
            settings[key] = (value, ("server", key))
            continue
        for name, one in cast("dict[str, object]", value).items():
            settings[f"{key}.{name}"] = (one, ("server", key, name))
    for key, (_, keys) in settings.items():
        if key not in known or key in NOT_IN_SERVER:
            near = [one for one in known if one.startswith(f"{keys[1]}.") or "." not in one]
            raise text.error(keys, no_such("setting", key, {*near} - NOT_IN_SERVER))


def _take_principals(
    rest: Mapping[str, Any], settings: dict[str, tuple[object, tuple[str, ...]]]
) -> None:
    """Take over who is bound to which agents; what is wrong with the table is found later."""
    table: object = rest.get("principals")
    if not isinstance(table, dict) or not table:
        return
    rows = cast("dict[str, Any]", table)
    bound = {name: row["agents"] for name, row in rows.items() if _names_agents(row)}
    settings["principal_agents"] = (bound, ("principals",))


def _names_agents(row: object) -> bool:
    return isinstance(row, dict) and isinstance(cast("dict[str, Any]", row).get("agents"), list)


def _take_agent(
    text: AgentFileText,
    rest: dict[str, Any],
    settings: dict[str, tuple[object, tuple[str, ...]]],
    known: Collection[str],
) -> None:
    agent = rest.get("agent")
    if not isinstance(agent, dict):
        return
    table = dict(cast("dict[str, Any]", agent))
    for key in OF_AGENT & table.keys():
        value = table[key]
        if key == "model":
            value = value.get("name") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if not isinstance(value, str):
                continue
            if isinstance(table[key], str):
                del table[key]
        else:
            del table[key]
        settings[_RENAMED.get(key, key)] = (value, ("agent", key))
    limits = table.pop("limits", {})
    if isinstance(limits, dict):
        names = [one.removeprefix("limits.") for one in known if one.startswith("limits.")]
        for name, value in cast("dict[str, object]", limits).items():
            keys = ("agent", "limits", name)
            if name not in names:
                raise text.error(keys, no_such("limit", name, names))
            settings[f"limits.{name}"] = (value, keys)
    else:
        table["limits"] = limits
    rest["agent"] = table


def _take_root(rest: dict[str, Any], settings: dict[str, tuple[object, tuple[str, ...]]]) -> None:
    files = rest.get("files")
    main: Any = cast("dict[str, Any]", files).get("/") if isinstance(files, dict) else None
    if isinstance(main, dict) and isinstance(cast("dict[str, Any]", main).get("root"), str):
        settings["root"] = (main["root"], ("files", "/", "root"))


def _take_urls(
    text: AgentFileText,
    rest: Mapping[str, Any],
    settings: dict[str, tuple[object, tuple[str, ...]]],
    environ: Mapping[str, str],
) -> None:
    """Take the URLs of `[journal]` and `[store]`, with the variables in them."""
    for key in ("journal", "store"):
        table = rest.get(key)
        url: object = cast("dict[str, Any]", table).get("url") if isinstance(table, dict) else None
        if isinstance(url, str):
            keys = (key, "url")
            try:
                settings[key] = (expanded(url, environ), keys)
            except AgentFileError as error:
                raise text.error(keys, error.problem) from error


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def agent_schema() -> dict[str, Any]:
    """Return the schema, with the options of every middleware that ships."""
    schema = AgentFile.model_json_schema(by_alias=True)
    server = Settings.model_json_schema(by_alias=True)
    for key in NOT_IN_SERVER:
        server["properties"].pop(key)
    definitions = {**schema.pop("$defs"), **server.pop("$defs")}
    definitions["MiddlewareTable"] = _middleware(definitions["MiddlewareTable"])
    definitions["Server"] = {**server, "description": "What `serve` has as flags."}
    properties = {**schema["properties"], "server": {"$ref": "#/$defs/Server"}}
    return {
        "$schema": _DIALECT,
        **schema,
        "title": "Agent file of deep-agent-mcp",
        "properties": properties,
        "$defs": dict(sorted(definitions.items())),
    }


def _middleware(table: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an entry: of one that ships, or any other by its name."""
    common = table["properties"]
    known: list[dict[str, Any]] = []
    for name, kind in sorted(class_names().items()):
        options = dict.fromkeys(options_of(getattr(shipped, kind)), True)
        properties = {**options, **common, "use": {"const": name}}
        known.append({"properties": properties, "additionalProperties": False})
    other = {"properties": {"use": {"not": {"enum": sorted(class_names())}}}}
    return {**table, "anyOf": [*known, other]}
