"""Access for web pages of other origins: browsers block it unless the server allows it (CORS)."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..settings.hosts import ServedHosts

__all__ = ["AllowedPages"]

_PATHS = ("/mcp", "/sse")
_BEGINNINGS = ("/messages/", "/.well-known/oauth-protected-resource")

_SENT = (
    "Authorization",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Session-Id",
)
"""Headers that MCP clients send, besides those that every page may send."""

_READ = ("Mcp-Session-Id", "Retry-After", "WWW-Authenticate")
"""Headers of answers that MCP clients need."""


class AllowedPages(CORSMiddleware):
    """ASGI middleware that lets pages of hosts that the operator named use the MCP endpoints.

    It has to be in front of authentication: a browser asks first, without the token. Cookies are
    never allowed. Requests of all other pages, and for other paths, pass unchanged.

    Args:
        app: The app that serves the requests.
        served: The allowed hosts and origins.
    """

    def __init__(self, app: ASGIApp, served: ServedHosts) -> None:
        methods = ("GET", "POST", "DELETE")
        super().__init__(app, allow_methods=methods, allow_headers=_SENT, expose_headers=_READ)
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; if it is of such a page, answer the browser's question or tell it."""
        is_allowed = scope["type"] == "http" and self._allows(scope)
        await (super().__call__ if is_allowed else self.app)(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        """Return True: only requests of allowed origins come this far."""
        return True

    def _allows(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers = Headers(scope=scope)
        return (path in _PATHS or path.startswith(_BEGINNINGS)) and self._served.names_page(
            headers.getlist("host"), headers.getlist("origin")
        )
