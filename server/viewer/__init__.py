"""The page for people, and what it may do.

`studio.html` is built from the sources in `page/` and delivered as it is.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.types import ReadResourceResult, Resource, TextResourceContents

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = [
    "UI_EXTENSION",
    "UI_PATH",
    "UI_SETTINGS",
    "VIEWER_URI",
    "viewer_contents",
    "viewer_headers",
    "viewer_html",
    "viewer_resource",
    "viewer_routes",
]

UI_PATH = "/ui"


@cache
def viewer_html() -> str:
    """Return the document, complete in itself."""
    return (Path(__file__).parent / "studio.html").read_text(encoding="utf-8")


@cache
def viewer_headers() -> dict[str, str]:
    """Return the headers of `/ui`: nothing runs but the page's own script, and nobody frames it."""
    policy = {
        "default-src": "'none'",
        "script-src": _digest("script"),
        "style-src": _digest("style"),
        "img-src": "data:",  # images of results, and the icon that is none
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }


def viewer_routes() -> list[Route]:
    """Return the routes of `/ui`, also with a slash at its end, and of `/`, which leads there."""
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse
    from starlette.routing import Route

    def show(_: Request) -> HTMLResponse:
        return HTMLResponse(viewer_html(), headers=viewer_headers())

    def lead(_: Request) -> RedirectResponse:
        return RedirectResponse(f"..{UI_PATH}")  # also where a proxy has put a path before it

    def begin(_: Request) -> RedirectResponse:
        return RedirectResponse(UI_PATH[1:])

    return [
        Route(UI_PATH, show, methods=["GET"]),
        Route(f"{UI_PATH}/", lead, methods=["GET"]),
        Route("/", begin, methods=["GET"]),
    ]


def _digest(element: str) -> str:
    """Return the digest of the page's only script, or its only style."""
    _, _, rest = viewer_html().partition(f"<{element}>")
    text, _, _ = rest.partition(f"</{element}>")
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# As in `mcp.server.apps`, which would import the SDK's high-level server.
UI_EXTENSION = "io.modelcontextprotocol/ui"

APP_MIME_TYPE = "text/html;profile=mcp-app"

UI_SETTINGS: dict[str, Any] = {}

_META: dict[str, Any] = {
    "ui": {"csp": {}, "prefersBorder": True}
}  # no domains: it needs nothing from elsewhere


def viewer_resource() -> Resource:
    """Return how the page is listed."""
    return Resource(
        uri=VIEWER_URI,
        name="run-viewer",
        title="Run viewer",
        description="A page that hosts of MCP Apps show: a run's steps, agents, todos, questions "
        "and cost.",
        mime_type=APP_MIME_TYPE,
        _meta=_META,
    )


def viewer_contents() -> ReadResourceResult:
    """Return the page."""
    page = TextResourceContents(
        uri=VIEWER_URI, mime_type=APP_MIME_TYPE, text=viewer_html(), _meta=_META
    )
    return ReadResourceResult(contents=[page])


VIEWER_URI = "ui://deep-agent/runs"
