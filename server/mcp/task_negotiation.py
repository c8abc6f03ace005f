"""Task negotiation: whether a client takes tasks, and for which calls."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp.types import MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .services import Context

__all__ = [
    "TASKS_EXTENSION",
    "TASK_VERSION",
    "has_extension",
    "missing_extension",
    "require_tasks",
    "takes_tasks",
]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"


TASK_VERSION = "2025-11-25"
"""The revision of the handshake era that has tasks, of another shape."""


def takes_tasks(ctx: Context, params: CallToolRequestParams) -> bool:
    """Whether this call may be answered with a task: its client says so each time.

    In 2026-07-28 by declaring the extension (SEP-2663), in 2025-11-25 by `params.task` (SEP-1686).
    """
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return has_extension(ctx)
    return ctx.protocol_version == TASK_VERSION and params.task is not None


def has_extension(ctx: Context) -> bool:
    """Whether the client of this request declares the extension."""
    capabilities = ctx.session.client_capabilities
    extensions = (capabilities.extensions if capabilities else None) or {}
    return TASKS_EXTENSION in extensions


def require_tasks(ctx: Context) -> None:
    """Refuse a request whose client has not declared the extension.

    Raises:
        MCPError: It has not.
    """
    if not has_extension(ctx):
        raise missing_extension()


def missing_extension() -> MCPError:
    """Return the error for a client that would have to declare the extension."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"This needs the extension {TASKS_EXTENSION}; declare it in the request's "
        "clientCapabilities.",
        {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
    )
