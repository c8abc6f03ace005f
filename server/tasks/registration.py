"""Puts tasks into a server: the two eras have other methods, and shapes, under the same names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST, METHOD_NOT_FOUND, PaginatedRequestParams, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..mcp.requests import TASKS_EXTENSION, Context, Services
from .handshake import HandshakeTasks
from .methods import TaskMethods, TaskParams, TaskUpdateParams

__all__ = ["add_tasks"]

P = TypeVar("P", bound=RequestParams)
Method: TypeAlias = Callable[[Context, P], Awaitable[dict[str, Any]]]


def add_tasks(server: Server[Any], services: Services, old: HandshakeTasks) -> None:
    """Declare the extension and add `tasks/*`."""
    new = TaskMethods(services)
    cancel = _by_era(_writing(services, new.cancel), _writing(services, old.cancel))
    update = _by_era(_writing(services, new.update), None)
    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, _by_era(new.get, old.get))
    server.add_request_handler("tasks/cancel", TaskParams, cancel)
    server.add_request_handler("tasks/update", TaskUpdateParams, update)
    server.add_request_handler("tasks/result", TaskParams, _by_era(None, old.result))
    server.add_request_handler("tasks/list", PaginatedRequestParams, _by_era(None, old.list))


def _writing(services: Services, method: Method[P]) -> Method[P]:
    """Return a method that is refused by a server that changes nothing."""

    async def handle(ctx: Context, params: P) -> dict[str, Any]:
        if services.settings.read_only:
            raise MCPError(INVALID_REQUEST, "This server is read-only; nothing was done.")
        return await method(ctx, params)

    return handle


def _by_era(modern: Method[P] | None, handshake: Method[P] | None) -> Method[P]:
    async def handle(ctx: Context, params: P) -> dict[str, Any]:
        method = modern if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else handshake
        if method is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await method(ctx, params)

    return handle
