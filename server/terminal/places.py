"""Places of runs: a server in this process, or one behind a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
import httpx2
from mcp import Client
from mcp.types import Implementation

from ...harness.errors import HarnessError
from ...harness.mcp_servers.config import HttpServer
from ...harness.mcp_servers.transports import transport
from ..app import App, create_app
from ..settings.settings import Settings
from ..version import NAME, version
from .link import Link, OnLine
from .states import NotStarted

if TYPE_CHECKING:
    from mcp.client._transport import Transport

__all__ = ["Place", "local_place", "remote_place"]

END_SECONDS = 2.0
"""Seconds to record the end of a run that is stopped at once."""

CONNECT_SECONDS = 30.0

PROTOCOL = "2026-07-28"
_META = "io.modelcontextprotocol/"


class Place(Protocol):
    """Where runs work."""

    @property
    def link(self) -> Link:
        """Reaches the server."""
        ...

    def pause(self, run_id: str) -> bool:
        """Pause a run after its current step; return whether it will pause."""
        ...

    async def stop(self, run_id: str) -> None:
        """Pause a run at once, interrupting its model call and tools."""
        ...


class _Here:
    def __init__(self, app: App, link: Link) -> None:
        self._live = app.runs.supervisor.live
        self.link = link

    def pause(self, run_id: str) -> bool:
        live = self._live.get(run_id)
        if live is not None:
            live.control.drain()
        return live is not None

    async def stop(self, run_id: str) -> None:
        live = self._live.get(run_id)
        if live is not None:
            live.control.pause("interrupted at the terminal")
            with anyio.move_on_after(END_SECONDS):
                await live.finished.wait()


class _Elsewhere:
    def __init__(self, link: Link) -> None:
        self.link = link

    def pause(self, run_id: str) -> bool:
        return False

    async def stop(self, run_id: str) -> None:
        """Nothing: the run belongs to the server."""


def _info() -> Implementation:
    return Implementation(name=f"{NAME}-terminal", version=version())


@asynccontextmanager
async def local_place(settings: Settings) -> AsyncGenerator[Place]:
    """Open a server in this process that does not continue abandoned runs of others.

    Raises:
        HarnessError, SettingsError, StateDirError: As for `create_app`.
    """
    async with (
        create_app(settings, continues=False) as app,
        Client(app.server, client_info=_info(), cache=None) as client,
    ):
        yield _Here(app, Link(client, is_local=True))


@asynccontextmanager
async def remote_place(
    url: str, token: str | None, on_lost: OnLine = lambda _: None
) -> AsyncGenerator[Place]:
    """Connect to a server over Streamable HTTP.

    Raises:
        NotStarted: It cannot be reached, or lets nobody in with this token.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        server = HttpServer(url=url, headers=headers)
    except HarnessError:
        raise NotStarted(
            f"--connect {url} is not an http or https URL. Nothing was done. Give one such as "
            "http://host:8000/mcp."
        ) from None
    await _require_server(server)
    streams = cast("Transport", transport("server", server, lambda: None))
    async with Client(streams, mode=PROTOCOL, client_info=_info(), cache=None) as client:
        yield _Elsewhere(Link(client, is_local=False, on_lost=on_lost))


async def _require_server(server: HttpServer) -> None:
    """Send a first request, as the SDK's client does not say why one is refused.

    Raises:
        NotStarted: There is no server, or it lets nobody in with this token.
    """
    headers = {
        **(server.headers or {}),
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
        "Mcp-Method": "server/discover",
    }
    meta: dict[str, Any] = {f"{_META}protocolVersion": PROTOCOL, f"{_META}clientCapabilities": {}}
    asked = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
    try:
        async with httpx2.AsyncClient(timeout=CONNECT_SECONDS) as http:
            response = await http.post(server.url, json=asked, headers=headers)
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise NotStarted(_unreachable(server.place, why)) from None
    if response.status_code in (401, 403):
        raise NotStarted(
            f"{server.place} asks for a token, or does not accept this one. Nothing was done. "
            "Set DEEP_AGENT_TOKEN, or pass --token; `deep-agent-mcp token create NAME`, run where "
            "the server is, makes one."
        )
    if response.status_code >= 400:
        raise NotStarted(_unreachable(server.place, f"HTTP {response.status_code}"))


def _unreachable(place: str, why: str) -> str:
    return (
        f"{place} cannot be reached ({why}). Nothing was done. Check that a server listens "
        "there (`deep-agent-mcp serve --transport http`), and the URL, which usually ends in /mcp."
    )
