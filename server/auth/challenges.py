"""Refusals that name the required token: `401` and `403` with `WWW-Authenticate`.

If an OAuth client calls a tool without the required scope, it gets `403` with the scopes to
request, so that it can ask its user and try again (RFC 6750, and the protocol's step-up flow). The
bearer of a static token cannot request another one. Here the tool's result says what is missing, so
that the model can read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from .caller import ALL_SCOPES, KNOWN_SCOPES, Caller, Scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as AsgiScope

__all__ = ["FIRST_SCOPES", "Challenge", "ScopesOf", "StepUp"]

FIRST_SCOPES: tuple[Scope, ...] = ("delegate", "drive")
"""The scopes that a client without a token should request."""

ScopesOf: TypeAlias = Callable[[str], Collection[Scope]]
"""Returns the scopes of which a tool needs one; empty for an unknown tool."""


class Challenge:
    """Writes refusals.

    Args:
        metadata_url: URL that tells clients where to get a token; None without one.
    """

    def __init__(self, metadata_url: str | None) -> None:
        self._metadata_url = metadata_url

    async def unknown(self, send: Send, *, showed_a_token: bool) -> None:
        """Refuse a caller with no token, or with one that is not accepted."""
        why = "The token is not accepted." if showed_a_token else "A token is needed."
        text = f"{why} Nothing was done."
        # Without a token, no error code is sent (RFC 6750, 3.1).
        error = "invalid_token" if showed_a_token else ""
        await self._refuse(send, 401, error, text, FIRST_SCOPES)

    async def ended(self, send: Send) -> None:
        """Refuse an answer to a caller whose token ended while they were waiting."""
        text = (
            "The token expired or was revoked before the call was answered. What the call started "
            "continues; check it with another token before you repeat the call."
        )
        await self._refuse(send, 401, "invalid_token", text, FIRST_SCOPES)

    async def insufficient(self, send: Send, scopes: Iterable[str], text: str) -> None:
        """Refuse a caller whose token lacks a scope."""
        await self._refuse(send, 403, "insufficient_scope", text, scopes)

    async def _refuse(
        self, send: Send, status: int, error: str, text: str, scopes: Iterable[str]
    ) -> None:
        said = {"error": error, "error_description": text} if error else {}
        if self._metadata_url is not None:
            said["scope"] = " ".join(sorted(scopes))
            said["resource_metadata"] = self._metadata_url
        listed = ", ".join(f'{key}="{value}"' for key, value in said.items())
        body = json.dumps({"error": error or "invalid_token", "error_description": text}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"www-authenticate", f"Bearer {listed}".rstrip().encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class StepUp:
    """ASGI middleware that tells OAuth clients which scope their token lacks.

    Args:
        app: The guarded app.
        challenge: Writes the refusal.
        scopes_of: Returns the scopes that tools need.
        most_bytes: The most bytes of a request that is read here.
    """

    def __init__(
        self, app: ASGIApp, challenge: Challenge, scopes_of: ScopesOf, most_bytes: int
    ) -> None:
        self._app = app
        self._challenge = challenge
        self._scopes_of = scopes_of
        self._most_bytes = most_bytes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it and name the scope it needs."""
        caller = _oauth_caller(scope)
        if caller is None or all(map(caller.may, ALL_SCOPES)):
            await self._app(scope, receive, send)
            return
        if not any(map(caller.may, ALL_SCOPES)):
            text = (
                "Your token has none of this server's scopes; nothing was done. Ask the operator "
                "for a token that has one."
            )
            await self._challenge.insufficient(send, FIRST_SCOPES, text)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = _Request(receive)
        tool = _called_tool(await request.read(self._most_bytes))
        needed = self._scopes_of(tool) if tool else ()
        if not needed or any(map(caller.may, needed)):
            await self._app(scope, request.receive, send)
            return
        wanted = "delegate" if "delegate" in needed else min(needed)
        text = (
            f"{tool} needs the scope '{wanted}'; nothing was done. Get a token that has it as well."
        )
        # With the scopes it has: a client that requests only the missing one would lose the others.
        await self._challenge.insufficient(send, {wanted, *caller.scopes & KNOWN_SCOPES}, text)


class _Request:
    """The body of a request, which is read here and again by the app."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read: list[Message] = []

    async def read(self, most_bytes: int) -> bytes:
        """Return the body; empty if it is too large."""
        body = b""
        while len(body) <= most_bytes:
            message = await self._receive()
            self._read.append(message)
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return body
        return b""

    async def receive(self) -> Message:
        """Receive the part that was read, then the rest."""
        return self._read.pop(0) if self._read else await self._receive()


def _oauth_caller(scope: AsgiScope) -> Caller | None:
    user = scope.get("user")
    if scope["type"] != "http" or not isinstance(user, AuthenticatedUser):
        return None
    token = user.access_token
    if "iss" not in (token.claims or {}):
        return None
    return Caller(token.subject or token.client_id, frozenset(token.scopes))


def _called_tool(body: bytes) -> str:
    try:
        # The limits of messages are for UTF-8; bytes would be read as UTF-16 and UTF-32, too.
        message = json.loads(body.decode())
    except (ValueError, RecursionError):
        return ""
    if not isinstance(message, dict):
        return ""
    request = cast("dict[str, Any]", message)
    params = request.get("params")
    if request.get("method") != "tools/call" or not isinstance(params, dict):
        return ""
    name = cast("dict[str, Any]", params).get("name")
    return name if isinstance(name, str) else ""
