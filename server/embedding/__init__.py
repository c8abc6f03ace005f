"""Embedding: the server inside other programs, with `serve` and `asgi_app`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from ...harness._internal.concurrency import raising_one
from ..settings.sources import keyword_settings

if TYPE_CHECKING:
    from ...harness.agent import Agent
    from ..python_agents.source import AgentSource
    from ..settings.settings import Settings

__all__ = ["serve"]


def serve(
    agent: Agent | Callable[..., Any] | str, *, reload: bool = False, **settings: Any
) -> None:
    """Serve an agent until the client leaves or the process gets a signal to stop.

    What a client calls runs as it does with `deep-agent-mcp serve`: the same tools, approvals,
    limits and restarts.

    Args:
        agent: An `Agent`; a function that returns one, given a `ServeContext` or nothing; or a name
            such as `module:attribute` for either.
        reload: Whether to reload a named agent when its files change.
        **settings: See `docs/settings.md`, such as `transport="http"` or `port=8000`. Nothing is
            read from the environment or a file.

    Raises:
        SettingsError: A setting is refused, or has no effect with this agent. Nothing was started.
        HarnessError: The agent cannot be made, or the journal cannot be opened.
        AddressError: The address is taken.
        RuntimeError: An event loop runs in this thread; mount `asgi_app` there.
    """
    try:
        anyio.get_current_task()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            "serve() was called inside a running event loop and would block it; nothing was "
            "started. Mount asgi_app(agent) there, or call serve() from a separate program."
        )
    from ..python_agents.source import AgentSource

    chosen = keyword_settings(settings)
    source = AgentSource(agent, reload=reload, owns_process=True)
    logging.basicConfig(stream=sys.stderr, format="deep-agent-mcp: %(levelname)s: %(message)s")
    logging.getLogger("deep_agent_mcp").setLevel(chosen.log_level.upper())
    anyio.run(partial(_served, source, chosen), backend="asyncio")


async def _served(source: AgentSource, settings: Settings) -> None:
    from ..app import create_app
    from ..transports.signals import stop_on_signals
    from ..transports.transports import bind

    over_http = settings.transport != "stdio"
    listener = bind(settings.host, settings.port) if over_http else None
    with stop_on_signals() as stop:
        async with raising_one(), create_app(settings, source=source) as app:
            await app.serve(listener, stop)
