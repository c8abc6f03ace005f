"""Checks of HTTP requests: Host and Origin, size of the body, and whether it arrives in full.

A body is checked piece by piece while the app reads it, so callers without a token are refused
before the size of their body matters.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError

from ..settings.hosts import ServedHosts
from .message_bounds import MessageBounds, MessageTooLarge

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CheckedRequests"]

logger = logging.getLogger(__name__)


class CheckedRequests:
    """ASGI middleware that checks Host and Origin before any route sees the request.

    A client that vanishes while it sends a request is not logged as our error. Bodies are
    limited here, because the SDK's refusal of a large one does not say what to do.

    Args:
        app: The app that serves the requests.
        served: The allowed hosts and origins.
        max_body_bytes: The most bytes of one request.
        health: Paths for probes and collectors of metrics, which may use the server's address as
            its host, because they know no other name.
    """

    def __init__(
        self, app: ASGIApp, served: ServedHosts, max_body_bytes: int, health: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._served = served
        self._most = max_body_bytes
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or let the app serve it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.datastructures import Headers
        from starlette.requests import ClientDisconnect
        from starlette.responses import PlainTextResponse

        headers = Headers(scope=scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        refusal = self._served.refusal(
            headers.getlist("host"), headers.getlist("origin"), by_address=path in self._health
        )
        if refusal is not None:
            await PlainTextResponse(refusal.text, refusal.status)(scope, receive, send)
            return
        arriving = receive
        if scope["method"] == "POST":
            arriving = _arriving(receive, headers.get("content-length", ""), self._most)
        try:
            await self._app(scope, arriving, send)
        except ClientDisconnect:
            logger.debug("a client went away before its request had come whole")
        except MessageTooLarge as error:
            await _too_large(error)(scope, receive, send)


def _arriving(receive: Receive, declared: str, most: int) -> Receive:
    """Return a `receive` that raises `ClientDisconnect` if a body does not arrive in full.

    The SDK would log a traceback for that. A body beyond the limits of messages raises
    `MessageTooLarge`, before anything has read it.

    Args:
        receive: Receives the body from the client.
        declared: The size that its sender declared, unchecked.
        most: The most bytes allowed.
    """
    from starlette.requests import ClientDisconnect

    is_whole = False
    size = 0
    bounds = MessageBounds()

    async def next_message() -> Message:
        nonlocal is_whole, size
        if declared.isdecimal() and len(declared) < 20 and int(declared) > most:
            raise _body_too_large(most)
        message = await receive()
        if message["type"] == "http.disconnect" and not is_whole:
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise _body_too_large(most)
        bounds.feed(piece)
        is_whole = is_whole or not message.get("more_body", False)
        return message

    return next_message


def _body_too_large(most: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the request has more than {most:,} bytes and was not read. Nothing was done. Send large "
        "content in several calls; the server's setting max_body_bytes is the limit."
    )


def _too_large(error: MessageTooLarge) -> Response:
    """Return the refusal of a message that was not read, so its id is unknown."""
    from starlette.responses import Response

    data = ErrorData(code=INVALID_REQUEST, message=str(error))
    refusal = JSONRPCError(jsonrpc="2.0", id=None, error=data)
    body = refusal.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(body, status_code=413, media_type="application/json")
