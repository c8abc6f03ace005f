"""How the MCP servers that agents use are doing, for those who watch this server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from ..runs.workplaces import Workplace

__all__ = ["mounted_servers"]


def mounted_servers(places: Iterable[Workplace]) -> Mapping[str, JsonValue]:
    """Return the state of each server by name under one key; nothing if there are none.

    It connects to no server, and builds no agent.
    """
    from ...harness.mcp_servers import MCPToolsMiddleware  # few look

    states: dict[str, JsonValue] = {}
    for agent in filter(None, (one.agent.built for one in places)):
        for one in agent.definition.middleware:
            if isinstance(one, MCPToolsMiddleware):
                states |= {name: status.state for name, status in one.status().items()}
    return {"mcp_servers": states} if states else {}
