"""The page as an app of MCP hosts (SEP-1865): a `ui://` resource that tools lead to.

A host that knows the extension shows it beside the result of such a tool, in a sandbox without a
network; to every other client the tools are what they were.
"""

from __future__ import annotations

from typing import Any

from mcp.types import ReadResourceResult, Resource, TextResourceContents

from ..viewer.page import viewer_html
from .uris import VIEWER_URI

__all__ = ["UI_EXTENSION", "UI_SETTINGS", "viewer_contents", "viewer_resource"]

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
