"""The MCP server around the engine: command line, transports and handlers.

`serve` and `asgi_app` put an agent of yours behind it. They are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .embedding import serve
    from .embedding.asgi import asgi_app
    from .python_agents.loading import ServeContext

if __name__ == "server":
    raise ImportError("server is a part of a package: import deep_agent_mcp.server instead")

__all__ = ["ServeContext", "asgi_app", "serve"]

_HOMES = {
    "ServeContext": ".python_agents.loading",
    "asgi_app": ".embedding.asgi",
    "serve": ".embedding",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
