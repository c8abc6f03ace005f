"""Mounted MCP servers of the agent file: one connection to each, whatever agents there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..settings.definition import definition_of
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.mcp_servers.config import MCPServer
    from ...harness.mcp_servers.middleware import MCPToolsMiddleware

__all__ = ["MountedServers"]


class MountedServers:
    """The servers of the agents there have been; a run may still use an earlier set."""

    def __init__(self) -> None:
        self._made: list[tuple[Mapping[str, MCPServer], MCPToolsMiddleware]] = []

    def of(self, settings: Settings) -> MCPToolsMiddleware | None:
        """Return what offers the tools of these settings' servers; None without any.

        Nothing is connected before a run needs it.
        """
        described = definition_of(settings)
        if described is None or not described.parts.mcp_servers:
            return None
        wanted = described.parts.mcp_servers
        for known, middleware in self._made:
            if known == wanted:
                return middleware
        from ...harness.mcp_servers.middleware import MCPToolsMiddleware

        middleware = MCPToolsMiddleware(with_tokens(wanted, settings))
        self._made.append((wanted, middleware))
        return middleware

    async def aclose(self) -> None:
        """Close all connections."""
        for _, middleware in self._made:
            await middleware.aclose()


def with_tokens(servers: Mapping[str, MCPServer], settings: Settings) -> dict[str, MCPServer]:
    """Return servers that know where logins to them are kept."""
    from ...harness.mcp_servers.config import HttpServer
    from ..auth.mounted_logins import login_store

    tokens = login_store(settings)
    return {
        name: replace(one, auth=replace(one.auth, tokens=tokens))
        if isinstance(one, HttpServer) and one.auth is not None
        else one
        for name, one in servers.items()
    }
