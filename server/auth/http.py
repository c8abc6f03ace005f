"""Authentication of HTTP requests: bearer tokens in front of every path but the open ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.provider import TokenVerifier as Verifier
from mcp.server.auth.routes import (
    build_resource_metadata_url,
    create_protected_resource_routes,
)
from pydantic import AnyHttpUrl
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Route

from server.auth.caller import ALL_SCOPES
from server.auth.tokens import TokenError, TokenFile, TokenVerifier
from server.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["OPEN_PATHS", "auth_middleware", "metadata_routes", "verifier"]

OPEN_PATHS = ("/healthz", "/.well-known/")
"""What needs no token."""

logger = logging.getLogger(__name__)


class _Verifiers:
    """Accepts what one of several verifiers accepts."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return who bears a token."""
        for one in self._verifiers:
            try:
                found = await one.verify_token(token)
            except TokenError as error:
                logger.error("%s", error)
                continue
            if found is not None:
                return found
        return None


class _Guard:
    """ASGI middleware: whoever has no accepted token gets no further than the open paths."""

    def __init__(self, app: ASGIApp, metadata_url: AnyHttpUrl | None) -> None:
        self._app = app
        self._guarded = RequireAuthMiddleware(app, [], metadata_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope.get("path", "")):
            await self._app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)


def _is_open(path: str) -> bool:
    return any(path == one or (one[-1] == "/" and path.startswith(one)) for one in OPEN_PATHS)


def verifier(settings: Settings) -> Verifier | None:
    """Return what checks tokens with these settings; None if none is needed."""
    found: list[Verifier] = []
    if "token" in settings.auth:
        found.append(TokenVerifier(TokenFile(settings.state_dir / "tokens.json")))
    if "oauth" in settings.auth:
        from server.auth.oauth import JwtVerifier, KeySet

        assert settings.oauth_issuer and settings.public_url  # Settings has made sure of it
        keys = KeySet(settings.oauth_issuer, settings.oauth_jwks_url)
        found.append(JwtVerifier(settings.oauth_issuer, settings.public_url, keys))
    return _Verifiers(found) if found else None


def auth_middleware(settings: Settings) -> list[Middleware]:
    """Return the ASGI middleware that authenticates requests, outermost first."""
    checks = verifier(settings)
    if checks is None:
        return []
    metadata_url = None
    if "oauth" in settings.auth:
        metadata_url = build_resource_metadata_url(AnyHttpUrl(settings.public_url or ""))
    return [
        Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(checks)),
        Middleware(AuthContextMiddleware),
        Middleware(_Guard, metadata_url=metadata_url),
    ]


def metadata_routes(settings: Settings) -> list[Route]:
    """Return the routes that tell clients where to get a token (RFC 9728)."""
    if "oauth" not in settings.auth:
        return []
    return create_protected_resource_routes(
        resource_url=AnyHttpUrl(settings.public_url or ""),
        authorization_servers=[AnyHttpUrl(settings.oauth_issuer or "")],
        scopes_supported=sorted(ALL_SCOPES),
    )
