"""Access tokens of an OAuth authorization server: JWTs, checked against its published keys."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, cast

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import AccessToken

__all__ = ["JwtVerifier", "KeySet", "KeysUnavailable"]

logger = logging.getLogger(__name__)

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
"""Signatures only the authorization server can make; never `none`, never a shared secret."""

_LEEWAY_SECONDS = 30
_FETCH_SECONDS = 5.0
_MOST_BYTES = 1 << 20
_FRESH_SECONDS = 600.0
_RETRY_SECONDS = 30.0
"""How often an unknown key makes us ask again, so that forged tokens cause no flood."""

_DISCOVERY = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class KeysUnavailable(Exception):
    """The keys of the authorization server cannot be fetched."""


class KeySet:
    """The public keys of an authorization server, fetched when they are first needed.

    Args:
        issuer: The server's identifier, a URL.
        url: Where its keys are; by default what the issuer's metadata say.
    """

    def __init__(self, issuer: str, url: str | None = None) -> None:
        self._issuer = issuer
        self._url = url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked = float("-inf")
        self._fetched = float("-inf")
        self._turn = anyio.Lock()

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key by its id; None if the server has none of that id.

        Raises:
            KeysUnavailable: They were never fetched, and cannot be.
        """
        if not self._fresh or key_id not in self._keys:
            async with self._turn:
                now = time.monotonic()
                stale = not self._fresh or key_id not in self._keys
                if stale and now - self._asked > (_RETRY_SECONDS if self._keys else 1.0):
                    self._asked = now
                    await self._refresh()
        return self._keys.get(key_id)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._fetched < _FRESH_SECONDS

    async def _refresh(self) -> None:
        try:
            with anyio.fail_after(2 * _FETCH_SECONDS):
                async with httpx2.AsyncClient(timeout=_FETCH_SECONDS) as client:
                    found = await self._fetch(client)
        except (httpx2.HTTPError, TimeoutError, ValueError, KeyError, jwt.PyJWTError) as error:
            if not self._keys:
                raise KeysUnavailable(
                    f"the keys of {self._issuer} cannot be fetched: {error}"
                ) from error
            logger.warning("the keys of %s cannot be fetched: %s", self._issuer, error)
            return
        self._keys = found
        self._fetched = time.monotonic()

    async def _fetch(self, client: httpx2.AsyncClient) -> dict[str, jwt.PyJWK]:
        url = self._url or await self._discover(client)
        found: dict[str, jwt.PyJWK] = {}
        for one in cast("list[dict[str, Any]]", (await _json(client, url))["keys"]):
            if one.get("kty") == "oct" or one.get("use", "sig") != "sig" or "kid" not in one:
                continue
            try:
                found[str(one["kid"])] = jwt.PyJWK(one)
            except jwt.PyJWTError:  # of a kind this library does not know
                continue
        return found

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        problem: Exception | None = None
        for path in _DISCOVERY:
            try:
                metadata = await _json(client, self._issuer.rstrip("/") + path)
                if str(metadata.get("issuer", "")).rstrip("/") != self._issuer.rstrip("/"):
                    raise ValueError(f"its metadata name the issuer {metadata.get('issuer')!r}")
                return str(metadata["jwks_uri"])
            except (httpx2.HTTPError, ValueError, KeyError) as error:
                problem = error
        raise ValueError(f"there are no metadata below {self._issuer} ({problem})")


async def _json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    body = bytearray()
    async with client.stream("GET", url) as response:
        response.raise_for_status()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError(f"{url} is larger than {_MOST_BYTES} bytes")
    import json

    data = json.loads(bytes(body))
    if not isinstance(data, dict):
        raise ValueError(f"{url} is no JSON object")
    return cast("dict[str, Any]", data)


class JwtVerifier:
    """Accepts the tokens that one authorization server issued for this server (RFC 9068, 8707).

    Args:
        issuer: The authorization server's identifier.
        audience: What its tokens name this server by: its public URL.
        keys: Its keys.
    """

    def __init__(self, issuer: str, audience: str, keys: KeySet) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return who bears a token, or None if it is not accepted; the log says why."""
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, KeysUnavailable, ValueError) as error:
            logger.warning("an access token was refused: %s", error)
            return None
        subject = str(claims.get("sub") or claims.get("client_id") or claims.get("azp") or "")
        if not subject:
            logger.warning("an access token was refused: it names no subject")
            return None
        return AccessToken(
            token="",
            client_id=str(claims.get("client_id") or claims.get("azp") or subject),
            scopes=_scopes(claims),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=f"{self._issuer}#{subject}",
            claims={"iss": self._issuer},
        )

    async def _claims(self, token: str) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(token)
        key = await self._keys.key(str(header.get("kid", "")))
        if key is None:
            raise ValueError("it is signed with a key that the issuer does not publish")
        return jwt.decode(
            token,
            key.key,
            algorithms=_ALGORITHMS,
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token: text with blanks, or a list."""
    given: object = claims.get("scope", claims.get("scp", ""))
    if isinstance(given, str):
        return given.split()
    return [str(one) for one in cast("list[object]", given)] if isinstance(given, list) else []
