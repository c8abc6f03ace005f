"""Cancelled requests: tells a user's cancellation from a lost connection.

A handler is cancelled in all of these cases. `notifications/cancelled` says that the client wanted
it, and its free text says why: clients send it too when a call took longer than they wait. A lost
connection sends nothing, and over HTTP 2026-07-28 a client that cancels closes its connection.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

__all__ = ["CancelledRequests", "ServedRequest"]

Context: TypeAlias = ServerRequestContext[Any, Any]

REASON_SECONDS = 1.0
"""How long to wait for the reason, which arrives right after the cancellation."""

_TIMED_OUT = re.compile(r"timed?[ -]?out|deadline", re.IGNORECASE)
"""How the SDKs for Python, TypeScript and Rust say that a call took too long."""


@dataclass(slots=True)
class ServedRequest:
    """A request being served.

    Attributes:
        cancelled: Set by the SDK once the client has cancelled it.
        reason: What the client says of it.
        told: Set once that is known.
    """

    cancelled: anyio.Event
    reason: str = ""
    told: anyio.Event = field(default_factory=anyio.Event)

    async def is_cancelled_by_user(self) -> bool:
        """Whether somebody stopped it on purpose; to be asked once its handler is cancelled."""
        if not self.cancelled.is_set():
            return False
        with anyio.move_on_after(REASON_SECONDS):
            await self.told.wait()
        return _TIMED_OUT.search(self.reason) is None


class CancelledRequests:
    """The requests whose cancellation matters. Append `middleware` to `Server.middleware`."""

    def __init__(self) -> None:
        self._served: dict[tuple[int, str], ServedRequest] = {}

    async def middleware(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Note why a client cancels a request."""
        if ctx.method == "notifications/cancelled":
            params = ctx.params or {}
            served = self._served.get(_key(ctx, params.get("requestId")))
            if served is not None:
                served.reason = str(params.get("reason") or "")
                served.told.set()
        return await call_next(ctx)

    @contextmanager
    def serving(self, ctx: Context) -> Generator[ServedRequest]:
        """Watch for the cancellation of a request until the end of the block."""
        # The SDK gives handlers no public name for the channel a request came on.
        channel = ctx.session._request_outbound  # pyright: ignore[reportPrivateUsage]
        key = _key(ctx, ctx.request_id)
        served = self._served[key] = ServedRequest(channel.cancel_requested)
        try:
            yield served
        finally:
            if self._served.get(key) is served:
                del self._served[key]


def _key(ctx: Context, request_id: object) -> tuple[int, str]:
    # Connections of 2026-07-28 are made anew for each message; what they send through is not.
    connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
    return id(connection.outbound), str(request_id)
