"""Running server: what clients, transports and operators use of it, and how it shuts down.

In order: no more work is started; each run finishes its step and is handed over; whoever waits for
a run gets the answer that it continues; listen streams are closed; answers get a moment to be sent.
Then the transport may close.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Checkpointer
from ..agents.workplaces import Common, Workplaces
from ..auth.shared_state import SharedState
from ..face import Face
from ..mcp.offered_agents import mounted_servers
from ..mcp.requests import Services
from ..mcp.sessions import Announcements
from ..runs.runs import RunManager
from ..settings.reloadable_settings import ReloadableSettings
from .served_files import ServedFiles

if TYPE_CHECKING:
    from socket import socket

    from ..python_agents.source import AgentSource
    from ..reload import RulesOfAll
    from ..settings.protected_paths import GuardedRules
    from ..transports.health import Health
    from ..transports.http_sessions import SessionsOf
    from ..transports.signals import Stop
    from .fleet import Fleet
    from .health import OwnWork

__all__ = ["App"]

ANSWER_SECONDS = 2.0
"""How long the last requests may take to be answered."""

SEND_SECONDS = 0.1
"""How long what was answered may take to be sent."""


async def shut_down(
    services: Services, close_streams: Callable[[], None], seconds: float, at_once: anyio.Event
) -> None:
    """Bring a server to where its transport may close.

    Args:
        services: Its runs and requests.
        close_streams: Ends the listen streams.
        seconds: How long runs may take to finish their step.
        at_once: Set when they may take no longer.
    """
    async with anyio.create_task_group() as group:
        group.start_soon(_cut_short, at_once, group.cancel_scope)
        await services.runs.drain(seconds)
        group.cancel_scope.cancel()
    services.runs.stopping.release()
    services.requests.close()
    close_streams()
    if services.in_flight.calls + services.in_flight.streams:
        with anyio.move_on_after(ANSWER_SECONDS):
            await services.in_flight.answered()
        await anyio.sleep(SEND_SECONDS)


async def _cut_short(at_once: anyio.Event, drain: anyio.CancelScope) -> None:
    await at_once.wait()
    drain.cancel()


@record
class App:
    """A server that is ready to serve.

    Attributes:
        face: What clients reach.
        runs: Work in progress.
        agent: Returns the agent of a thread, a run or the caller.
        announcements: Tells clients of changes.
        common: What is the same for all agents.
        settings: What the operator chose, and has changed since.
        services: What handlers of requests share.
        journal: Where threads are stored.
        shared: What the servers of the journal share beside it.
        group: Where what outlives requests is done.
        source: Where that comes from; None for the built-in one.
        fleet: The servers that share the journal; None if it is for one.
        agenda: What it does by itself; None for nothing.
    """

    face: Face
    runs: RunManager
    agent: Workplaces
    announcements: Announcements
    common: Common
    settings: ReloadableSettings
    services: Services
    journal: Checkpointer
    shared: SharedState
    group: TaskGroup
    source: AgentSource | None = None
    fleet: Fleet | None = None
    agenda: OwnWork | None = None

    @property
    def server(self) -> Server[Any]:
        """For any transport."""
        return self.face.server

    async def refit(self) -> None:
        """Build the agent that was made in Python, and offer the tools it has.

        Raises:
            HarnessError: It cannot be made; clients are offered what they were.
        """
        await self.agent.prepare()
        self.face.fit(self.agent())

    async def reload_code(self, files: frozenset[str]) -> None:
        """Make the agent of new runs again, because its code was saved."""
        assert self.source is not None
        places = self.agent.all.values()
        if await self.source.reload(files, [one.parts for one in places]):
            self.agent.outdate()
            if not self.settings.current.per_principal:
                await self.refit()
            await self.announcements.menus_changed(tools=True)

    @property
    def files(self) -> ServedFiles:
        """The files that decide what agents do."""
        return ServedFiles(self.agent, self.common, self.settings, self.source)

    @property
    def policy(self) -> GuardedRules | RulesOfAll:
        """The rules in front of every tool call."""
        return self.files.policy

    def status(self) -> Mapping[str, JsonValue]:
        """Return what `/healthz` adds."""
        waiting = self.settings.waiting
        return {
            "active_runs": self.runs.active,
            **self.files.broken(),
            **({"waiting_for_restart": [*waiting]} if waiting else {}),
            **mounted_servers(self.agent.all.values()),
        }

    def health(self) -> Health:
        """Return what is seen of it over HTTP."""
        from ..transports.health import Health
        from .health import ServerHealth  # not needed on stdio

        checks = ServerHealth(self.services, self.journal, self.group, self.fleet, self.agenda)
        return Health(self.status, checks.not_ready, checks.metrics)

    @property
    def sessions_of(self) -> SessionsOf | None:
        """What makes the sessions of older clients over HTTP; None for those of a single server."""
        if self.fleet is None:
            return None
        from .shared_sessions import shared_sessions

        return shared_sessions(self.fleet, self.shared.key, lambda: self.face.tools)

    async def serve(self, listener: socket | None, stop: Stop) -> None:
        """Serve over HTTP on a socket, or over the standard streams, until told to stop."""
        from ..transports.transports import serve_http, serve_stdio

        if listener is None:
            await serve_stdio(self.server, stop)
            return
        await serve_http(
            self.server,
            self.settings.current,
            stop,
            listener=listener,
            health=self.health(),
            scopes_of=self.face.scopes_of,
            tokens=self.shared.tokens,
            sessions_of=self.sessions_of,
            drain=self.drain,
        )

    async def drain(self, at_once: anyio.Event) -> None:
        """Let runs finish their step, and answer every request; cut short when `at_once` is set."""
        seconds = self.settings.current.drain_seconds
        await shut_down(self.services, self.face.close_streams, seconds, at_once)
