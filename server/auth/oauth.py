"""Access tokens of an OAuth authorization server: JWTs, checked against its published keys."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import AccessToken

from ...harness._internal.records import record

__all__ = ["JwtVerifier", "KeySet", "KeysUnavailable", "PublishedKey"]

logger = logging.getLogger(__name__)

_ALGORITHMS: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Allowed algorithms by kind of key: only public-key signatures, no `none` or shared secret."""

_LEEWAY_SECONDS = 30
_FETCH_SECONDS = 5.0
_MOST_BYTES = 1 << 20
_FRESH_SECONDS = 600.0
_LAST_SECONDS = 24 * 3_600.0
"""Seconds for which keys stay valid if the issuer, which may have revoked one, is away."""

_RETRY_SECONDS = 30.0
"""Seconds between requests because of unknown keys, so that forged tokens cause no flood."""

_WARN_SECONDS = 1.0
_WELL_KNOWN = ("oauth-authorization-server", "openid-configuration")


class KeysUnavailable(Exception):
    """The keys of the authorization server cannot be fetched."""


@record
class PublishedKey:
    """A public key, and the algorithms allowed for its signatures."""

    key: Any
    algorithms: Sequence[str]


class KeySet:
    """The public keys of an authorization server, fetched when they are first needed.

    Args:
        issuer: The server's identifier, a URL.
        url: URL of its keys; by default taken from the issuer's metadata.
    """

    def __init__(self, issuer: str, url: str | None = None) -> None:
        self._issuer = issuer
        self._url = url
        self._keys: dict[str, PublishedKey] = {}
        self._asked = float("-inf")
        self._fetched = float("-inf")
        self._turn = anyio.Lock()

    async def key(self, key_id: str) -> PublishedKey | None:
        """Return a key by its id; None if the server has no such key.

        Without an id it is the server's only key, if it has one.

        Raises:
            KeysUnavailable: They cannot be fetched, and no known key is still valid.
        """
        known = self._known(key_id)
        age = time.monotonic() - self._fetched
        if known is not None and (age < _FRESH_SECONDS or self._turn.locked()):
            return known  # another task is already fetching them
        async with self._turn:
            now = time.monotonic()
            stale = now - self._fetched >= _FRESH_SECONDS or self._known(key_id) is None
            if stale and now - self._asked > (_RETRY_SECONDS if self._keys else 1.0):
                self._asked = now
                await self._refresh()
        return self._known(key_id)

    def _known(self, key_id: str) -> PublishedKey | None:
        if time.monotonic() - self._fetched >= _LAST_SECONDS:
            return None
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        try:
            with anyio.fail_after(_FETCH_SECONDS):
                async with httpx2.AsyncClient(timeout=_FETCH_SECONDS) as client:
                    found = await self._fetch(client)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, KeyError) as error:
            why = f"the keys of {self._issuer} cannot be fetched: {error or 'it does not answer'}"
            if not self._keys:
                raise KeysUnavailable(why) from error
            logger.warning("%s", why)
            return
        self._keys = found
        self._fetched = time.monotonic()

    async def _fetch(self, client: httpx2.AsyncClient) -> dict[str, PublishedKey]:
        url = self._url or await self._discover(client)
        given = (await _json(client, url))["keys"]
        if not isinstance(given, list):
            raise ValueError(f"{url} is not a JSON Web Key Set")
        found: dict[str, PublishedKey] = {}
        for one in cast("list[object]", given):
            key = _published(cast("dict[str, Any]", one)) if isinstance(one, dict) else None
            if key is not None:
                found[str(cast("dict[str, Any]", one).get("kid", ""))] = key
        return found

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        problem: Exception | None = None
        for url in _metadata_urls(self._issuer):
            try:
                metadata = await _json(client, url)
                if str(metadata.get("issuer", "")).rstrip("/") != self._issuer.rstrip("/"):
                    raise ValueError(f"its metadata names the issuer {metadata.get('issuer')!r}")
                return str(metadata["jwks_uri"])
            except (httpx2.HTTPError, ValueError, KeyError) as error:
                problem = error
        raise ValueError(f"there is no metadata below {self._issuer} ({problem})")


def _metadata_urls(issuer: str) -> list[str]:
    """Return possible URLs of an issuer's metadata (RFC 8414 3.1, OpenID Connect Discovery 4)."""
    parts = urlsplit(issuer.rstrip("/"))
    urls = [
        urlunsplit((parts.scheme, parts.netloc, f"/.well-known/{kind}{parts.path}", "", ""))
        for kind in _WELL_KNOWN
    ]
    appended = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return [*dict.fromkeys((*urls, appended))]


def _published(one: Mapping[str, Any]) -> PublishedKey | None:
    """Return a key of a set; None if it is not for signatures, or of an unknown kind."""
    allowed = _ALGORITHMS.get(str(one.get("kty")), ())
    if "alg" in one:
        allowed = [name for name in allowed if name == one["alg"]]
    if not allowed or one.get("use", "sig") != "sig":
        return None
    try:
        return PublishedKey(jwt.PyJWK({**one}, algorithm=allowed[0]).key, allowed)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


async def _json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    body = bytearray()
    async with client.stream("GET", url) as response:
        response.raise_for_status()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError(f"{url} is larger than {_MOST_BYTES} bytes")
    data = json.loads(bytes(body))
    if not isinstance(data, dict):
        raise ValueError(f"{url} is not a JSON object")
    return cast("dict[str, Any]", data)


class JwtVerifier:
    """Accepts the tokens that one authorization server issued for this server (RFC 9068, 8707).

    Args:
        issuer: The authorization server's identifier; a slash at its end makes no difference.
        audience: This server's name in tokens, its public URL; a final slash makes no difference.
        keys: The keys of the authorization server.
    """

    def __init__(self, issuer: str, audience: str, keys: KeySet) -> None:
        self._issuer = issuer.rstrip("/")
        self._audience = audience.rstrip("/")
        self._keys = keys
        self._warned = float("-inf")

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is, or None if it is not accepted; the log says why."""
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, KeysUnavailable, ValueError, TypeError) as error:
            self._refused(str(error))
            return None
        client = str(claims.get("client_id") or claims.get("azp") or "")
        # A client that acts for itself must not be mistaken for a user of the same name.
        subject = str(claims.get("sub") or "") or (f"client:{client}" if client else "")
        if not subject:
            self._refused("it names no subject")
            return None
        return AccessToken(
            token="",
            client_id=client or subject,
            scopes=_scopes(claims),
            expires_at=int(claims["exp"]) + _LEEWAY_SECONDS,
            resource=self._audience,
            subject=f"{self._issuer}#{subject}",
            claims={"iss": self._issuer},
        )

    async def _claims(self, token: str) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(token)
        key = await self._keys.key(str(header.get("kid") or ""))
        if key is None:
            raise ValueError("it is signed with a key that the issuer does not publish")
        if header.get("alg") not in key.algorithms:
            raise ValueError(f"its key does not sign with {header.get('alg')!r}")
        return jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=[self._audience, f"{self._audience}/"],
            issuer=[self._issuer, f"{self._issuer}/"],
            leeway=_LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )

    def _refused(self, why: str) -> None:
        """Log why a token was refused, at most once a second: anyone can send them."""
        now = time.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            logger.warning("an access token was refused: %s", why)


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token, from a text with spaces or from a list."""
    given: object = claims.get("scope", claims.get("scp", ""))
    if isinstance(given, str):
        return given.split()
    return [str(one) for one in cast("list[object]", given)] if isinstance(given, list) else []
