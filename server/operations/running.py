"""Running server: its interface for clients, transports and operators, and its shutdown.

A shutdown takes these steps: no more work is started; each run finishes its step and is handed
over; callers that wait for a run are told that it continues; listen streams are closed; answers get
a moment to be sent. Then the transport may close.
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
"""Seconds to answer the last requests."""

SEND_SECONDS = 0.1
"""Seconds to send the last answers."""


async def shut_down(
    services: Services, close_streams: Callable[[], None], seconds: float, at_once: anyio.Event
) -> None:
    """Shut a server down until its transport may close.

    Args:
        services: Its runs and requests.
        close_streams: Ends the listen streams.
        seconds: Seconds for runs to finish their step.
        at_once: Set it to end the wait for runs.
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
        face: The MCP server that clients reach.
        runs: Work in progress.
        agent: Returns the agent of a thread, a run or the caller.
        announcements: Notifies clients of changes.
        common: The files that are the same for all agents.
        settings: The operator's settings, with later changes.
        services: Services that handlers of requests share.
        journal: The journal with all threads.
        shared: The data that the journal's servers share besides it.
        group: The task group for work that outlives requests.
        source: The source of the agent; None for the built-in one.
        fleet: The servers that share the journal; None if it is not shared.
        agenda: Its schedules and webhooks; None without them.
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
            HarnessError: It cannot be built; the offered tools stay the same.
        """
        await self.agent.prepare()
        self.face.fit(self.agent())

    async def reload_code(self, files: frozenset[str]) -> None:
        """Build the agent again for new runs, because its code was saved."""
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
        """Return the details for `/healthz`."""
        waiting = self.settings.waiting
        return {
            "active_runs": self.runs.active,
            **self.files.broken(),
            **({"waiting_for_restart": [*waiting]} if waiting else {}),
            **mounted_servers(self.agent.all.values()),
        }

    def health(self) -> Health:
        """Return the parts of the server that HTTP serves."""
        from ..transports.health import Health
        from .health import ServerHealth  # not needed on stdio

        checks = ServerHealth(self.services, self.journal, self.group, self.fleet, self.agenda)
        return Health(self.status, checks.not_ready, checks.metrics)

    @property
    def sessions_of(self) -> SessionsOf | None:
        """Makes the HTTP sessions of older clients; None for a server without replicas."""
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
        """Let runs finish their step, and answer every request; stops early if `at_once` is set."""
        seconds = self.settings.current.drain_seconds
        await shut_down(self.services, self.face.close_streams, seconds, at_once)
