"""Mounted servers: connects to each MCP server that agents use, and says how it is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .findings import Finding, broken, note, ok

if TYPE_CHECKING:
    from ...harness.mcp_servers import MCPServer

__all__ = ["examine_mounted"]


async def examine_mounted(servers: Mapping[str, MCPServer]) -> list[Finding]:
    """Connect to servers, all at once, each within its `connect_timeout`.

    Raises:
        AgentBuildError: Two names read alike.
    """
    if not servers:
        return []
    from ...harness.mcp_servers import MCPToolsMiddleware

    mounted = MCPToolsMiddleware(servers)
    try:
        status = await mounted.connect()
    finally:
        await mounted.aclose()
    found: list[Finding] = []
    for name, one in status.items():
        about = f"MCP server {name}"
        if one.state != "connected":
            fix = "Agents work without it. Fix what the text says, or set disabled = true for it."
            found.append(broken(about, one.reason or "it closed the connection", fix))
        elif one.left_out:
            text = f"{one.tools} tools; left out: {', '.join(one.left_out)}"
            found.append(note(about, text))
        else:
            found.append(ok(about, f"connected, {one.tools} tools"))
    return found
