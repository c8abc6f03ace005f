"""The JSON Schema of agent files: the tables of the agent, and `[server]` from the settings."""

from __future__ import annotations

from typing import Any

from ...harness import middleware as shipped
from ...harness.agent_file.middlewares import class_names, options_of
from ...harness.agent_file.schema import AgentFile
from .agent_layer import NOT_IN_SERVER
from .settings import Settings

__all__ = ["agent_schema"]

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
