"""Authentication of HTTP requests: bearer tokens in front of every path but the open ones.

A caller with too many requests gets `429` with `Retry-After`.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import anyio
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.provider import TokenVerifier as Verifier
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials, AuthenticationError
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ...harness._internal.concurrency import raising_one
from ...harness.errors import HarnessError
from ..settings.settings import Settings
from .caller import ALL_SCOPES
from .challenges import Challenge, ScopesOf, StepUp
from .tokens import FileTokens, TokenError, TokenFile, Tokens, TokenVerifier

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Authenticated: TypeAlias = tuple[AuthCredentials, AuthenticatedUser] | None

__all__ = ["OPEN_PATHS", "RequestLimits", "auth_middleware", "metadata_routes", "verifier"]


RECHECK_SECONDS = 5.0
"""Seconds for which a stream continues at most after its token was revoked or has expired."""

END_SECONDS = 1.0
"""Seconds for which a client that does not read can delay the end of its stream."""

AWAY_SECONDS = 2
"""Seconds after which a client may retry while tokens cannot be checked."""

OPEN_PATHS = ("/healthz", "/readyz", "/metrics", "/.well-known/", "/ui", "/ui/")
"""Paths without a token. The page at `/ui` contains no data, and calls `/mcp` with a token."""

logger = logging.getLogger(__name__)


class _Verifiers:
    """Accepts a token if one of several verifiers does."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is."""
        for one in self._verifiers:
            try:
                found = await one.verify_token(token)
            except TokenError as error:
                logger.error("%s", error)
                continue
            if found is not None:
                return found
        return None


class _Checks(BearerAuthBackend):
    """Authenticates requests; raises an error if tokens cannot be checked."""

    async def authenticate(self, conn: HTTPConnection) -> Authenticated:
        """Return the authenticated sender of a request; None without an accepted token.

        Raises:
            AuthenticationError: The tokens cannot be read now.
        """
        try:
            return await super().authenticate(conn)
        except HarnessError as error:
            logger.error("tokens cannot be checked: %s", error)
            raise AuthenticationError("tokens cannot be checked now") from error


def _try_again(_: HTTPConnection, error: AuthenticationError) -> JSONResponse:
    text = f"The server's database does not answer: {error}. Nothing was done; try again."
    body = {"error": "temporarily_unavailable", "error_description": text}
    return JSONResponse(body, 503, headers={"Retry-After": str(AWAY_SECONDS)})


class _Guard:
    """ASGI middleware that requires an accepted token for all but the open paths."""

    def __init__(self, app: ASGIApp, challenge: Challenge, checks: BearerAuthBackend) -> None:
        self._app = app
        self._checks = checks
        self._challenge = challenge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope):
            await self._app(scope, receive, send)
        elif isinstance(scope.get("user"), AuthenticatedUser):
            await self._while_accepted(scope, receive, send)
        else:
            shown = "authorization" in HTTPConnection(scope).headers
            await self._challenge.unknown(send, showed_a_token=shown)

    async def _while_accepted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and end its stream when the token is no longer valid."""
        answer = _Answer(send)
        async with raising_one(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, HTTPConnection(scope), tasks.cancel_scope)
            await self._app(scope, receive, answer.send)
            tasks.cancel_scope.cancel()
            return
        if not answer.has_begun:
            await self._challenge.ended(send)
        elif not answer.has_ended:
            with anyio.move_on_after(END_SECONDS):
                await send({"type": "http.response.body"})

    async def _watch(self, connection: HTTPConnection, request: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(RECHECK_SECONDS)
            try:
                if await self._checks.authenticate(connection) is not None:
                    continue
            except AuthenticationError:
                continue  # its database is away, and so is the answer's data
            request.cancel()
            return


class _Answer:
    """Passes an answer on, and tracks its progress."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.has_ended = False

    async def send(self, message: Message) -> None:
        """Pass on a part of it."""
        self.has_begun = True
        self.has_ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)


def _is_open(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))  # of an app around this one
    if path == "/":  # alone, because it redirects to the page
        return True
    return any(path == one or (one[-1] == "/" and path.startswith(one)) for one in OPEN_PATHS)


def verifier(settings: Settings, tokens: Tokens | None = None) -> Verifier | None:
    """Return the token verifier for these settings; None if no token is needed.

    Args:
        settings: What the operator chose.
        tokens: Where our own tokens are stored; by default in a file of the state directory.
    """
    found: list[Verifier] = []
    if "token" in settings.auth:
        stored = tokens or FileTokens(TokenFile(settings.state_dir / "tokens.json"))
        found.append(TokenVerifier(stored))
    if "oauth" in settings.auth:
        from .oauth import JwtVerifier, KeySet

        assert settings.oauth_issuer and settings.public_url  # `Settings` has checked that
        keys = KeySet(settings.oauth_issuer, settings.oauth_jwks_url)
        found.append(JwtVerifier(settings.oauth_issuer, settings.public_url, keys))
    return _Verifiers(found) if found else None


def auth_middleware(
    settings: Settings, scopes_of: ScopesOf, tokens: Tokens | None = None
) -> list[Middleware]:
    """Return the ASGI middleware that authenticates requests, outermost first."""
    checks = verifier(settings, tokens)
    if checks is None:
        return []
    backend = _Checks(checks)
    found = [
        Middleware(AuthenticationMiddleware, backend=backend, on_error=_try_again),
        Middleware(AuthContextMiddleware),
    ]
    if "oauth" not in settings.auth:
        return [*found, Middleware(_Guard, challenge=Challenge(None), checks=backend)]
    challenge = Challenge(str(build_resource_metadata_url(AnyHttpUrl(settings.public_url or ""))))
    most = settings.max_body_bytes
    return [
        *found,
        Middleware(_Guard, challenge=challenge, checks=backend),
        Middleware(StepUp, challenge=challenge, scopes_of=scopes_of, most_bytes=most),
    ]


def metadata_routes(settings: Settings) -> list[Route]:
    """Return the routes that tell clients where to get a token (RFC 9728)."""
    if "oauth" not in settings.auth:
        return []
    # Unchanged from the settings, because clients compare them with the contents of tokens.
    metadata = {
        "resource": settings.public_url,
        "authorization_servers": [settings.oauth_issuer],
        "scopes_supported": sorted(ALL_SCOPES),
        "bearer_methods_supported": ["header"],
    }

    def show(_: Request) -> JSONResponse:
        headers = {"Cache-Control": "public, max-age=3600", "Vary": "Origin"}
        return JSONResponse(metadata, headers=headers)

    url = build_resource_metadata_url(AnyHttpUrl(settings.public_url or ""))
    return [Route(url.path or "/", show, methods=["GET"])]


_WAIT_SECONDS = 10.0
_MOST_CALLERS = 10_000
"""How many callers are remembered; the longest inactive ones are forgotten first."""


@dataclass(slots=True)
class _Bucket:
    """Token bucket: the requests a caller may make now, refilled evenly."""

    left: float
    at: float


class RequestLimits:
    """ASGI middleware that limits the requests of each principal.

    Without authentication there is one user, who has no limit.

    Args:
        app: What is guarded.
        per_minute: Requests per minute; half of them may come at once.
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
        """Serve a request, or tell the client when to retry."""
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
        """Take one request from a caller's bucket; return the seconds to wait if it is empty."""
        now = time.monotonic()
        bucket = self._buckets.pop(caller, None) or _Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        self._buckets[caller] = bucket  # the most recently used
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
