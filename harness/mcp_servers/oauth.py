"""OAuth of remote servers: the login by a person, and the tokens on each request. Imports the SDK.

A login needs a browser and a person, so it never happens in the middle of a run: `log_in` does it
beforehand, and `StoredLogin` uses and refreshes its tokens. If there is no login, or it is no
longer accepted, requests fail with `LoginNeeded`, whose text says what to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from ..errors import HarnessError
from .config import HttpServer, OAuth, SseServer
from .oauth_tokens import Callback, Login, LoginNeeded, LoginStore

__all__ = ["LoginFailed", "StoredLogin", "log_in", "stored_login"]

LOGIN_SECONDS = 300.0
"""How long a person has for a login."""

_HTTP_SECONDS = 30.0
_EARLY_SECONDS = 30.0
"""An access token is refreshed this long before it ends, or at half of its time."""

_VERSION = "2025-11-25"


class LoginFailed(HarnessError):
    """A login did not succeed; nothing was stored."""


def stored_login(name: str, server: HttpServer) -> StoredLogin | None:
    """Return the authentication of requests to a server; None if it needs no login."""
    return None if server.auth is None else StoredLogin(name, server, server.auth)


class _Memory:
    """Storage of the SDK during a login; written to disk as a whole when that is complete."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class StoredLogin(OAuthClientProvider):
    """Puts the stored access token on requests, and refreshes it when it has ended.

    A login or logout by another process counts from the next request on.
    """

    def __init__(self, name: str, server: HttpServer, auth: OAuth) -> None:
        super().__init__(server.url, _metadata(auth, "http://127.0.0.1/callback"), _Memory())
        self._name = name
        self._files: LoginStore | None = auth.tokens
        self._stamp: tuple[int, int] | None = None

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        await self._load()
        for attempt in (1, 2):
            used = self._access_token
            if attempt == 2 or not self.context.is_token_valid():
                async with self.context.lock, self._alone():
                    if not await self._load() and used == self._access_token:
                        refresh = await self._refresh_request()
                        await self._take((yield refresh))
            self._add_auth_header(request)
            response = yield request
            if response.status_code == 403 and "insufficient_scope" in _challenge(response):
                raise LoginNeeded(f"its login lacks the scope for this: {self._advice}")
            if response.status_code != 401:
                return
        raise LoginNeeded(f"the server no longer accepts its login: {self._advice}")

    @property
    def _advice(self) -> str:
        return f"run `deep-agent-mcp mcp login {self._name}`"

    @property
    def _access_token(self) -> str | None:
        tokens = self.context.current_tokens
        return None if tokens is None else tokens.access_token

    async def _load(self) -> bool:
        """Read the stored login if it has changed; return whether it has.

        Raises:
            LoginNeeded: There is no login.
        """
        if self._files is None:
            raise LoginNeeded("it needs a login, but no directory for logins is configured")
        stamp = await anyio.to_thread.run_sync(self._files.stamp, self._name)
        if stamp is not None and stamp == self._stamp:
            return False
        url = self.context.server_url
        login = await anyio.to_thread.run_sync(self._files.read, self._name, url)
        if login is None:
            self.context.clear_tokens()
            self._stamp = None
            raise LoginNeeded(f"it needs a login: {self._advice}")
        self._use(login)
        self._stamp = stamp
        return True

    def _use(self, login: Login) -> None:
        context = self.context
        try:
            context.client_info = OAuthClientInformationFull.model_validate(login.client)
            context.current_tokens = OAuthToken.model_validate(login.tokens)
            context.oauth_metadata = _read(OAuthMetadata, login.metadata)
            context.protected_resource_metadata = _read(ProtectedResourceMetadata, login.resource)
        except ValidationError:  # without the cause, which shows values
            raise LoginNeeded(f"its stored login is damaged: {self._advice}") from None
        context.token_expiry_time = login.expires_at

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Prevent other processes from using the refresh token: it may only work once."""
        assert self._files is not None
        held = self._files.alone(self._name)
        await anyio.to_thread.run_sync(held.__enter__)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(held.__exit__, None, None, None)

    async def _refresh_request(self) -> httpx2.Request:
        if not self.context.can_refresh_token():
            raise LoginNeeded(f"its login has ended: {self._advice}")
        request = await self._refresh_token()
        request.extensions["timeout"] = httpx2.Timeout(_HTTP_SECONDS).as_dict()
        return request

    async def _take(self, response: httpx2.Response) -> None:
        """Store the tokens of a refresh.

        Raises:
            LoginNeeded: It was refused, or its server does not work at the moment.
        """
        status = response.status_code
        if status == 429 or status >= 500:
            raise LoginNeeded(
                f"its login cannot be refreshed at the moment (HTTP {status}); try again later"
            )
        if status != 200:
            raise LoginNeeded(f"its login has ended (HTTP {status}): {self._advice}")
        if not await self._handle_refresh_response(response):
            raise LoginNeeded(f"its login cannot be refreshed: {self._advice}")
        assert self._files is not None
        login = _login_of(self, self.context.current_tokens)
        await anyio.to_thread.run_sync(self._files.write, self._name, login)
        self._stamp = await anyio.to_thread.run_sync(self._files.stamp, self._name)


async def log_in(
    name: str,
    server: HttpServer,
    show: Callable[[str], Awaitable[None]],
    *,
    seconds: float = LOGIN_SECONDS,
) -> None:
    """Let a person log in to a server with a browser, and store the tokens.

    Args:
        name: The server's name.
        server: A server with `auth`.
        show: Shows the address to open in the browser.
        seconds: How long the person has.

    Raises:
        LoginFailed: It did not succeed; an earlier login is still stored.
        TokensUnusable: The tokens cannot be stored.
    """
    auth = server.auth
    if auth is None or auth.tokens is None:
        raise LoginFailed(f'MCP server {name!r} has no auth = "oauth"; nothing was done.')
    try:
        with anyio.fail_after(seconds), _quiet():
            async with Callback.open(auth.callback_port) as callback:
                login = await _negotiated(name, server, auth, callback, show)
    except TimeoutError:
        raise LoginFailed(
            f"nobody logged in to MCP server {name!r} within {seconds:g} s; nothing was stored. "
            "Try again."
        ) from None
    except OSError as error:
        raise LoginFailed(
            f"the login to MCP server {name!r} cannot begin: {error}. Nothing was stored."
        ) from error
    await anyio.to_thread.run_sync(auth.tokens.write, name, login)


@contextmanager
def _quiet() -> Generator[None]:
    """Prevent the SDK from logging a failed login with its trace: the error is shown once."""
    log = logging.getLogger("mcp.client.auth.oauth2")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


async def _negotiated(
    name: str,
    server: HttpServer,
    auth: OAuth,
    callback: Callback,
    show: Callable[[str], Awaitable[None]],
) -> Login:
    memory = _Memory(_registered(auth, callback.url))

    async def redirect(url: str) -> None:
        callback.expect(parse_qs(urlsplit(url).query).get("state", [""])[0])
        await show(url)

    async def answer() -> AuthorizationCodeResult:
        given = await callback.answer()
        if "error" in given:
            why = f"{given['error']} {given.get('error_description', '')}".strip()
            raise OAuthFlowError(f"the authorization server refused: {why[:300]}")
        return AuthorizationCodeResult(
            code=given.get("code", ""), state=given.get("state"), iss=given.get("iss")
        )

    provider = OAuthClientProvider(
        server.url,
        _metadata(auth, callback.url),
        memory,
        redirect,
        answer,
        auth.client_metadata_url,
    )
    try:
        status = await _knock(server, provider)
    except (OAuthFlowError, httpx2.HTTPError, ValidationError, ValueError) as error:
        text = type(error).__name__ if isinstance(error, ValidationError) else f"{error}"
        raise LoginFailed(
            f"the login to MCP server {name!r} failed: {text[:500]}. Nothing was stored."
        ) from None
    if memory.tokens is None:
        raise LoginFailed(
            f"MCP server {name!r} did not ask for a login (HTTP {status} from {server.place}); "
            'nothing was stored. Leave out auth = "oauth", or check its URL.'
        )
    return _login_of(provider, memory.tokens)


async def _knock(server: HttpServer, provider: OAuthClientProvider) -> int:
    """Send a first request, so that the server asks for a login; return its status."""
    hello: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _VERSION,
            "capabilities": {},
            "clientInfo": {"name": "deep-agent-mcp", "version": "1"},
        },
    }
    headers = {**(server.headers or {}), "mcp-protocol-version": _VERSION}
    async with httpx2.AsyncClient(auth=provider, headers=headers, timeout=_HTTP_SECONDS) as client:
        if isinstance(server, SseServer):
            request = client.build_request(
                "GET", server.url, headers={"accept": "text/event-stream"}
            )
        else:
            accepted = {"accept": "application/json, text/event-stream"}
            request = client.build_request("POST", server.url, json=hello, headers=accepted)
        response = await client.send(request, stream=True)
        await response.aclose()
        return response.status_code


def _metadata(auth: OAuth, redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="Deep Agent MCP",
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="client_secret_post" if auth.client_secret else "none",
    )


def _registered(auth: OAuth, redirect: str) -> OAuthClientInformationFull | None:
    """Return the client that was registered beforehand, if one was."""
    if auth.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="client_secret_post" if auth.client_secret else "none",
    )


def _login_of(provider: OAuthClientProvider, tokens: OAuthToken | None) -> Login:
    context = provider.context
    assert context.client_info is not None
    assert tokens is not None
    expires_at = None
    if tokens.expires_in is not None:
        expires_at = time.time() + tokens.expires_in
        expires_at -= min(_EARLY_SECONDS, tokens.expires_in / 2)
    return Login(
        context.server_url,
        _written(context.client_info) or {},
        _written(tokens) or {},
        expires_at,
        _written(context.oauth_metadata),
        _written(context.protected_resource_metadata),
    )


def _written(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _read(model: type[Any], data: Any) -> Any:
    return None if data is None else model.model_validate(data)


def _challenge(response: httpx2.Response) -> str:
    return str(response.headers.get("www-authenticate", ""))
