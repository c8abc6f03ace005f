"""Transports of the server: standard streams, and one HTTP app for all HTTP clients.

Every transport serves both protocol eras; the SDK tells them apart by what the client sends first
(stdio, SSE) or by the `MCP-Protocol-Version` header (Streamable HTTP).

The HTTP app has `/mcp` (Streamable HTTP), `/sse` with `/messages/` (the older pair),
`/healthz`, `/readyz` and `/metrics` for operators, and `/ui`, the page that shows runs.
On every path and address, Host and Origin are checked first, then the caller (`server.auth`) and
their rate of requests.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.lowlevel import Server

from ..settings.hosts import ServedHosts, is_loopback
from ..settings.settings import Settings
from ..version import NAME
from .checked_requests import CheckedRequests
from .signals import Stop, until

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from mcp.server.sse import SseServerTransport
    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

    from ..auth.challenges import ScopesOf
    from ..auth.tokens import Tokens
    from .health import Health
    from .http_sessions import SessionsOf

__all__ = [
    "AddressError",
    "bind",
    "http_app",
    "serve_http",
    "serve_stdio",
]

CLOSE_SECONDS = 1
"""Seconds for requests in flight once the HTTP server closes."""

DATE_SECONDS = 1.0
"""How often the date of responses is set."""

logger = logging.getLogger(__name__)


class AddressError(Exception):
    """The address cannot be bound; the text says why and what to do."""


async def serve_stdio(server: Server[Any], stop: Stop) -> None:
    """Serve one client over stdin and stdout until it closes its end or the server has to stop."""
    if sys.platform == "win32":
        from mcp.server.stdio import stdio_server as streams
    else:
        from .stdio import stdio_streams as streams

    async with until(stop.asked), streams() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class _OpenSse:
    """ASGI app for `/sse`: serves one connection of the older pair until it closes.

    It is an app, not an endpoint, because the transport sends the whole response itself.
    """

    def __init__(self, server: Server[Any], transport: SseServerTransport) -> None:
        self._server = server
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            options = self._server.create_initialization_options()
            await self._server.run(read, write, options)


def http_app(
    server: Server[Any],
    settings: Settings,
    health: Health | None = None,
    scopes_of: ScopesOf = lambda _tool: (),
    tokens: Tokens | None = None,
    sessions_of: SessionsOf | None = None,
) -> Starlette:
    """Build the ASGI app with Streamable HTTP, the older SSE pair and the paths for operators.

    Args:
        server: Serves both eras on every path.
        settings: `host` and `allow_hosts` decide which Host and Origin headers are accepted.
        health: The contents of `/healthz`, `/readyz` and `/metrics`.
        scopes_of: Returns the scopes that a tool needs, for OAuth clients that can request them.
        tokens: Where our own tokens are stored; by default in a file of the state directory.
        sessions_of: Makes the session keeper for older clients; by default, sessions belong to
            this process.
    """
    from mcp.server.sse import SseServerTransport
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount, Route

    from ..auth.http import RequestLimits, auth_middleware, metadata_routes
    from ..viewer import viewer_routes
    from .allowed_pages import AllowedPages
    from .health import HEALTH_PATHS, Health, health_routes
    from .http_sessions import ResumableSessions

    # Hosts and sizes of bodies are checked in front of all paths, because the SDK compares only the
    # beginnings of host names.
    checks = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    sessions = (sessions_of or ResumableSessions)(server, checks)
    sse = SseServerTransport("/messages/", checks, sys.maxsize)
    served = ServedHosts(settings.allow_hosts)

    return Starlette(
        routes=[
            Route("/mcp", sessions.asgi_app),
            Route("/sse", _OpenSse(server, sse), methods=["GET"]),
            Mount("/messages/", app=sse.handle_post_message),
            *health_routes(health or Health()),
            *viewer_routes(),
            *metadata_routes(settings),
        ],
        middleware=[
            Middleware(AllowedPages, served),
            Middleware(CheckedRequests, served, settings.max_body_bytes, HEALTH_PATHS),
            *auth_middleware(settings, scopes_of, tokens),
            Middleware(
                RequestLimits,
                per_minute=settings.max_requests_per_minute,
                at_once=2 * settings.max_sessions + 16,
            ),
        ],
        lifespan=lambda _app: sessions.serving(),
    )


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket before anything is started.

    Raises:
        AddressError: The port is taken, not permitted, or the host is not ours.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio turns off Nagle's delay, 40 ms an answer, only if the protocol is named.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressError(_refused(host, port, error)) from error
    try:
        if sys.platform != "win32":  # on Windows it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise AddressError(_refused(host, port, error)) from error
    return listener


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        advice = "another process listens there. Stop it, or choose with --port (0: any free one)"
    elif error.errno == errno.EACCES:
        advice = "this user may not bind it. Choose a port above 1023 with --port"
    else:
        advice = f"{error.strerror or error}. Choose an address of this machine with --host"
    return f"cannot listen on {host} port {port}: {advice}."


async def _nothing_to_drain(_: anyio.Event) -> None:
    pass


async def serve_http(
    server: Server[Any],
    settings: Settings,
    stop: Stop,
    *,
    listener: socket.socket,
    health: Health | None = None,
    scopes_of: ScopesOf = lambda _tool: (),
    tokens: Tokens | None = None,
    sessions_of: SessionsOf | None = None,
    drain: Callable[[anyio.Event], Awaitable[None]] = _nothing_to_drain,
) -> None:
    """Serve HTTP clients on a socket made by `bind` until the process gets a signal to stop.

    Then `drain` is awaited, while requests are still answered. It gets an event that is set when
    the time is up. The socket is closed in any case.

    Once it listens, the URL is printed on stderr for people, and as one line of JSON on stdout for
    programs: `{"event": "listening", "transport", "url", "sse_url", "health_url",
    "ui_url", "port", "pid"}`.
    """
    import uvicorn
    from sse_starlette.sse import AppStatus

    from .http_sessions import TimedProtocol

    config = uvicorn.Config(
        http_app(server, settings, health, scopes_of, tokens, sessions_of),
        http=TimedProtocol,
        ws="none",  # MCP has no WebSocket transport, and importing one takes time
        log_config=None,
        access_log=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    web = _server_class()(config)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_announce_and_stop, web, settings, listener, stop, drain)
            try:
                await web.serve(sockets=[listener])
            finally:
                # `handle_exit` sets it for the process; streams of later servers would end at once
                AppStatus.should_exit = False
            tasks.cancel_scope.cancel()


def _server_class() -> type[uvicorn.Server]:
    import uvicorn

    class Web(uvicorn.Server):
        """uvicorn without signal handlers of its own; `stop_on_signals` has them.

        It waits until it has to stop, where uvicorn looks ten times a second.
        """

        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self._exits = anyio.Event()

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            self._exits.set()

        async def main_loop(self) -> None:
            while not await self.on_tick(0):  # which sets the date of responses
                with anyio.move_on_after(DATE_SECONDS):
                    await self._exits.wait()

    return Web


async def _announce_and_stop(
    web: uvicorn.Server,
    settings: Settings,
    listener: socket.socket,
    stop: Stop,
    drain: Callable[[anyio.Event], Awaitable[None]],
) -> None:
    _announce(settings, listener.getsockname()[1])
    await stop.asked.wait()
    with stop.draining() as at_once:
        await drain(at_once)
    # uvicorn's own signal handler would call this; event streams hook into it to end.
    web.handle_exit(signal.SIGTERM, None)


def _announce(settings: Settings, port: int) -> None:
    from ..viewer import UI_PATH

    host = settings.host if settings.host not in {"0.0.0.0", "::"} else settings.allow_hosts[0]
    scheme = "https" if settings.tls_cert is not None else "http"
    base = f"{scheme}://{_bracketed(host)}:{port}"
    urls = {"http": f"{base}/mcp", "sse": f"{base}/sse"}
    event = {
        "event": "listening",
        "transport": settings.transport,
        "url": urls[settings.transport],
        "sse_url": urls["sse"],
        "health_url": f"{base}/healthz",
        "ui_url": f"{base}{UI_PATH}",
        "port": port,
        "pid": os.getpid(),
    }
    listens = f"listening on {urls['http']} (SSE: {urls['sse']}); the page is {base}{UI_PATH}"
    print(f"{NAME}: {listens}", file=sys.stderr, flush=True)  # noqa: T201
    print(json.dumps(event), flush=True)  # noqa: T201
    if settings.allow_hosts and not settings.needs_token:
        logger.warning("no authentication: whoever reaches %s can use this server", base)
    exposed = not is_loopback(settings.host) and scheme == "http" and not settings.trusted_proxies
    if settings.needs_token and exposed:
        logger.warning(
            "tokens go to %s in the clear, for everybody between to read. Serve HTTPS with "
            "--tls-cert and --tls-key, or behind a proxy that does and is named with "
            "--trusted-proxy",
            base,
        )
