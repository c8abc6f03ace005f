"""Which requests may be served again when the replica that served them has died."""

from __future__ import annotations

from typing import Protocol

from mcp.types import JSONRPCRequest

__all__ = ["NoCalls", "Repeats"]


class Repeats(Protocol):
    """Knows which requests may be served again."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a request as it is served, with what lets it be repeated."""
        ...

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving it a second time does nothing more than the first."""
        ...


class NoCalls:
    """Lets everything be repeated except calls of tools: all else reads, or sets what it names."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return it as it is."""
        return request

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether it calls no tool."""
        return request.method != "tools/call"
