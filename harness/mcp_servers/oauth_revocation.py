"""End of a login to a remote server: forgets the tokens, and has their issuer revoke them.

Revocation is RFC 7009.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import anyio.to_thread
import httpx2

from .oauth_tokens import Login, LoginStore, TokensUnusable

__all__ = ["log_out"]

_SECONDS = 10.0
_KINDS = ("refresh_token", "access_token")


async def log_out(name: str, tokens: LoginStore) -> str | None:
    """Forget the login to a server, and revoke its tokens where the issuer offers that.

    Returns:
        None if the issuer has revoked them; otherwise a clause on why it may still accept them.

    Raises:
        TokensUnusable: The stored login cannot be removed.
        LookupError: There is no login.
    """
    if await anyio.to_thread.run_sync(tokens.stamp, name) is None:
        raise LookupError(name)
    login, why = await anyio.to_thread.run_sync(_forgotten, name, tokens)
    return why if login is None else await _revoked(login)


def _forgotten(name: str, tokens: LoginStore) -> tuple[Login | None, str]:
    """Remove a login and return it, or return why it could not be read."""
    with tokens.alone(name):  # a concurrent refresh would store it again
        try:
            login, why = tokens.read(name), "there was none to revoke"
        except TokensUnusable:
            login, why = None, "the stored login could not be read"
        tokens.remove(name)
    return login, why


async def _revoked(login: Login) -> str | None:
    endpoint = (login.metadata or {}).get("revocation_endpoint")
    if not isinstance(endpoint, str):
        return "it offers no way to revoke tokens"
    if not _is_private(endpoint):
        return "its address for that is not encrypted (https)"
    problem = None
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS) as client:
            for kind in _KINDS:
                token = login.tokens.get(kind)
                if not isinstance(token, str):
                    continue
                form = {"token": token, "token_type_hint": kind}
                status = await _posted(client, endpoint, form, login.client)
                if status != 200:
                    problem = f"it refused to revoke them (HTTP {status})"
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        return f"it could not be reached to revoke them ({type(error).__name__})"
    return problem


async def _posted(
    client: httpx2.AsyncClient, endpoint: str, form: dict[str, str], registered: Mapping[str, Any]
) -> int:
    """Send a request as the client that was registered; return its status."""
    id_, secret = registered.get("client_id"), registered.get("client_secret")
    auth = None
    if secret and registered.get("token_endpoint_auth_method") == "client_secret_basic":
        auth = httpx2.BasicAuth(quote(str(id_), safe=""), quote(str(secret), safe=""))
    else:
        form |= {"client_id": str(id_), **({"client_secret": str(secret)} if secret else {})}
    request = client.build_request("POST", endpoint, data=form)
    response = await client.send(request, auth=auth, stream=True)  # the body is not read
    await response.aclose()
    return response.status_code


def _is_private(url: str) -> bool:
    """Whether requests to a URL are safe from eavesdropping."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return True
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False
