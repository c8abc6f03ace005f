"""Calls that another replica may serve again when the one that served them has died.

Replicas only. A `task` gets a key, so that the second call finds the run that the first has begun.
Other calls are repeated only if they just read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.types import JSONRPCRequest

from ...harness.messages.message import new_id
from .base import FaceTool

__all__ = ["RepeatedCalls"]

_KEY = "idempotency_key"


class RepeatedCalls:
    """Knows which requests of clients may be served again.

    Args:
        tools: Returns the tools that are offered, by name.
    """

    def __init__(self, tools: Callable[[], Mapping[str, FaceTool]]) -> None:
        self._tools = tools

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a request as it is served: a `task` without a key gets one."""
        arguments = _arguments(request)
        if _tool(request) != "task" or arguments is None or arguments.get(_KEY):
            return request
        keyed = {**arguments, _KEY: new_id("call")}
        params = {**(request.params or {}), "arguments": keyed}
        return request.model_copy(update={"params": params})

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving a request a second time does nothing more than the first."""
        if request.method != "tools/call":
            return True  # all else reads, or sets what it names
        name = _tool(request)
        if name == "task":
            return bool((_arguments(request) or {}).get(_KEY))
        tool = self._tools().get(name)
        hints = None if tool is None else tool.definition.annotations
        return hints is not None and hints.read_only_hint is True


def _tool(request: JSONRPCRequest) -> str:
    if request.method != "tools/call":
        return ""
    return str((request.params or {}).get("name"))


def _arguments(request: JSONRPCRequest) -> dict[str, Any] | None:
    arguments = (request.params or {}).get("arguments")
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
