"""Request limits of one caller: `429` with `Retry-After` beyond them."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RequestLimits"]

_WAIT_SECONDS = 10.0
_MOST_CALLERS = 10_000
"""How many callers are remembered; those who have been quiet longest are forgotten first."""


@dataclass(slots=True)
class _Bucket:
    """How many requests a caller may make right now; filled up evenly, a minute's worth at most."""

    left: float
    at: float


class RequestLimits:
    """ASGI middleware that bounds the requests of each principal.

    Without authentication there is one user, who is not bounded.

    Args:
        app: What is guarded.
        per_minute: Requests in a minute; half of them may come at once.
        at_once: Requests and streams that may be open.
    """

    def __init__(self, app: ASGIApp, per_minute: int, at_once: int) -> None:
        self._app = app
        self._at_once = at_once
        self._open: Counter[str] = Counter()
        self._rate = per_minute / 60
        self._burst = max(1.0, per_minute / 2)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say when to come again."""
        user = scope.get("user")
        if scope["type"] != "http" or not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        caller = user.access_token.subject or user.access_token.client_id
        wait = self._take(caller) if self._open[caller] < self._at_once else _WAIT_SECONDS
        if wait > 0:
            await _refuse(send, wait)
            return
        self._open[caller] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def _take(self, caller: str) -> float:
        """Take one request from a caller's bucket; return how long to wait if it is empty."""
        now = time.monotonic()
        bucket = self._buckets.pop(caller, None) or _Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        self._buckets[caller] = bucket  # the last in order of use
        while len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= 1
        return 0.0


async def _refuse(send: Send, wait: float) -> None:
    seconds = math.ceil(wait)
    text = f"Too many requests. Nothing was done; try again in {seconds} s."
    body = json.dumps({"error": "too_many_requests", "error_description": text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(seconds).encode()),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
