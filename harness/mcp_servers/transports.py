"""Transports to MCP servers: the SDK's, with the errors that they hide. Imports the SDK.

Three things are missing in them. A session does not report the end of its stream: `_Watched` does.
A failed HTTP request ends all others of the session, and it is not known whether it reached the
server: `_HttpClient` answers only that request, with an error that tells. And an SSE client that
leaves while a message arrives raises: `sse_streams` does not.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, TextIO

import anyio
import httpx2
from mcp import StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR

from .config import HttpServer, MCPServer, SseServer, StdioServer
from .oauth_tokens import LoginNeeded, TokensUnusable

__all__ = ["FORGOTTEN", "LOST", "UNSENT", "sse_streams", "transport"]

UNSENT = os.urandom(16).hex()
"""In the `data` of an error: the request did not reach the server. Servers cannot guess it."""

FORGOTTEN = UNSENT + "-forgotten"
"""The same, because the server no longer has this session."""

LOST = UNSENT + "-lost"
"""It may have reached the server, but its answer did not reach us."""

_GATEWAY_ERRORS = (502, 503, 504)
"""Answers of a proxy that cannot reach the server."""

_HTTP_SECONDS = 30.0

_COMPLAINT_SECONDS = 60.0


class _FewComplaints(logging.Filter):
    """Limits the SDK's log about invalid messages of a server to one line a minute.

    Otherwise the SDK logs a trace for each line, and a program that is not an MCP server may write
    any number of lines.
    """

    _next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record; return whether it is due."""
        record.exc_info = record.exc_text = None
        record.msg, record.args = "a mounted MCP server: %s; check its command", (record.msg,)
        due = time.monotonic() >= self._next
        if due:
            self._next = time.monotonic() + _COMPLAINT_SECONDS
        return due


logging.getLogger("mcp.client.stdio").addFilter(_FewComplaints())


@asynccontextmanager
async def transport(
    name: str, server: MCPServer, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Open the streams to a server; `on_end` is called when the server's stream has ended.

    Raises:
        OSError: The process cannot be started.
    """
    async with _streams(name, server) as (read, write):
        yield _Watched(read, on_end), write


@asynccontextmanager
async def _streams(name: str, server: MCPServer) -> AsyncGenerator[tuple[Any, Any]]:
    match server:
        case StdioServer():
            parameters = StdioServerParameters(
                command=server.command,
                args=list(server.args),
                env=None if server.env is None else dict(server.env),
                cwd=server.cwd,
            )
            with _stderr() as errlog:
                async with stdio_client(parameters, errlog) as streams:
                    yield streams
        case SseServer():
            auth = _login(name, server)
            async with sse_streams(server.url, server.headers, auth) as streams:
                yield streams
        case HttpServer():
            # A call's own timeout bounds the wait for its answer.
            limits = httpx2.Timeout(_HTTP_SECONDS, read=None)
            headers, auth = dict(server.headers or {}), _login(name, server)
            async with _HttpClient(headers=headers, timeout=limits, auth=auth) as client:
                opened: AbstractAsyncContextManager[tuple[Any, Any]]
                opened = streamable_http_client(server.url, http_client=client)
                async with opened as streams:
                    yield streams
        case _:
            raise TypeError(f"no transport for {type(server).__name__}")


@asynccontextmanager
async def sse_streams(
    url: str, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
) -> AsyncGenerator[tuple[Any, Any]]:
    """Open the streams of an SSE server; messages for a closed session are dropped.

    The reader of mcp 2.3 raises `BrokenResourceError` when the session has closed its end before
    the streams are closed.
    """
    try:
        async with sse_client(url, dict(headers or {}), auth=auth) as streams:
            yield streams
    except* anyio.BrokenResourceError:
        pass


def _login(name: str, server: HttpServer) -> httpx2.Auth | None:
    if server.auth is None:
        return None
    from .oauth import stored_login  # few servers need a login

    return stored_login(name, server)


@contextmanager
def _stderr() -> Generator[TextIO]:
    """Yield a stderr that a process can inherit; notebooks and GUI programs have none."""
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
    else:
        yield sys.stderr


class _Watched:
    """A stream of messages that reports its end."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, if the stream keeps it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


class _HttpClient(httpx2.AsyncClient):
    """Answers a request that failed in transit, instead of raising."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; POST requests, and requests that need a login, always get an answer."""
        try:
            response = await self._sent(request, **options)
        except (LoginNeeded, TokensUnusable) as error:
            return _failed(request, str(error), UNSENT)
        if request.method != "POST" or response.status_code < 400 or _is_json(response):
            return response
        await response.aclose()
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            return _failed(request, "the server has forgotten the session", FORGOTTEN)
        said = f"HTTP {response.status_code} {response.reason_phrase}".strip()
        is_away = response.status_code in _GATEWAY_ERRORS
        return _failed(request, said, code=CONNECTION_CLOSED if is_away else INTERNAL_ERROR)

    async def _sent(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            return await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _failed(request, _words(error, "cannot connect"), UNSENT)
        except httpx2.TransportError as error:
            return _failed(request, _words(error, "connection lost"), LOST)


def _is_json(response: httpx2.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.lower().startswith("application/json") and response.status_code != 404


def _words(error: Exception, what: str) -> str:
    return f"{what}: {error}" if str(error) else f"{what} ({type(error).__name__})"


def _failed(
    request: httpx2.Request, message: str, data: str | None = None, code: int = CONNECTION_CLOSED
) -> httpx2.Response:
    """Return a response that the session treats as the server's own error."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return httpx2.Response(
        503,
        request=request,
        headers={"content-type": "application/json"},
        content=json.dumps({"jsonrpc": "2.0", "id": None, "error": error}),
    )
