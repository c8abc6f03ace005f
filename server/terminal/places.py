"""Places where runs work: a server in this process, or one behind a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, cast

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import Implementation

from ...harness.errors import HarnessError
from ...harness.mcp_servers.config import HttpServer
from ...harness.mcp_servers.transports import transport
from ..app import App, create_app
from ..settings.settings import Settings
from ..version import NAME, version
from .link import Link, OnLine
from .states import LinkError

if TYPE_CHECKING:
    from mcp.client._transport import Transport

__all__ = ["Place", "local_place", "remote_place"]

END_SECONDS = 2.0
"""How long a run that is stopped at once may take to be recorded."""

CONNECT_SECONDS = 30.0


class Place(Protocol):
    """Where runs work."""

    @property
    def link(self) -> Link:
        """Reaches the server."""
        ...

    def pause(self, run_id: str) -> bool:
        """Let a run finish its step, then pause; return whether it will."""
        ...

    async def stop(self, run_id: str) -> None:
        """Pause a run at once: its model call and its tools are cut off."""
        ...


class _Here:
    def __init__(self, app: App, link: Link) -> None:
        self._live = app.runs.carrier.live
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
        """The run is the server's."""


def _info() -> Implementation:
    return Implementation(name=f"{NAME}-terminal", version=version())


@asynccontextmanager
async def local_place(settings: Settings) -> AsyncGenerator[Place]:
    """Open a server in this process; runs that others left are not continued by it.

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
        LinkError: It cannot be reached, or lets nobody in with this token.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        server = HttpServer(url=url, headers=headers)
    except HarnessError as error:
        raise LinkError(f"--connect {url}: {error}") from None
    async with AsyncExitStack() as stack:
        streams = cast("Transport", transport("server", server, lambda: None))
        opened = Client(streams, client_info=_info(), cache=None)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                client = await stack.enter_async_context(opened)
        except (MCPError, TimeoutError) as error:
            why = error.error.message if isinstance(error, MCPError) else "no answer"
            raise LinkError(_unreachable(server.place, why)) from None
        yield _Elsewhere(Link(client, is_local=False, on_lost=on_lost))


def _unreachable(place: str, why: str) -> str:
    if "401" in why:
        return (
            f"{place} asks for a token, or does not accept this one. Nothing was started. Set "
            "DEEP_AGENT_TOKEN, or pass --token; `deep-agent-mcp token create NAME` makes one on "
            "the server."
        )
    return (
        f"{place} cannot be reached ({why}). Nothing was started. Check the URL, which usually "
        "ends in /mcp, and that the server runs: `deep-agent-mcp serve --transport http`."
    )
