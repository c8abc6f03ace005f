"""A server that runs: what is seen of it, its end, and what follows when files are saved."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Checkpointer
from ..auth.shared_state import SharedState
from ..face import Face
from ..mcp.offered_agents import mounted_servers
from ..mcp.requests import Services
from ..mcp.sessions import Announcements
from ..reload.profile_files import FileReports, RulesOfAll
from ..runs.runs import RunManager
from ..runs.workplaces import Common, Workplaces
from ..settings.protected_paths import GuardedRules
from ..settings.reloadable_settings import ReloadableSettings
from ..settings.setting_types import parent_of_all

if TYPE_CHECKING:
    from ..python_agents.source import AgentSource
    from ..transports.health import Health
    from ..transports.http_sessions import SessionsOf
    from .fleet import Fleet

__all__ = ["WATCH_AFTER_SECONDS", "App", "watch_files"]

logger = logging.getLogger(__name__)

WATCH_AFTER_SECONDS = 0.3
"""Watching files begins this long after the start; changes before that are noticed then."""


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
        """Make the agent of new runs anew, because its code was saved."""
        assert self.source is not None
        places = self.agent.all.values()
        if await self.source.reload(files, [one.parts for one in places]):
            self.agent.outdate()
            if not self.settings.current.per_principal:
                await self.refit()
            await self.announcements.menus_changed(tools=True)

    @property
    def policy(self) -> GuardedRules | RulesOfAll:
        """The rules in front of every tool call."""
        if not self.settings.current.per_principal:
            return self.agent.of().parts.rules
        return RulesOfAll(
            self.common.policy, lambda: [one.parts.rules for one in self.agent.all.values()]
        )

    def status(self) -> Mapping[str, JsonValue]:
        """Return what `/healthz` adds."""
        broken = {
            "broken_code": dict[str, str]() if self.source is None else self.source.errors,
            "broken_agents": self.agent.files(lambda parts: parts.subagents).errors,
            "broken_memory": self.agent.files(lambda parts: parts.memory).errors,
            "broken_policy": self.policy.snapshot.errors,
            "broken_profiles": self.common.profiles.errors,
            "broken_settings": self.settings.errors,
            "broken_skills": self.agent.files(lambda parts: parts.skills).errors,
        }
        current = self.settings.current
        private = parent_of_all(current.root) if current.root and current.per_principal else None
        names: dict[str, list[JsonValue]] = {
            kind: [_shown_name(Path(path), private) for path in errors]
            for kind, errors in broken.items()
            if errors
        }
        waiting = self.settings.waiting
        return {
            "active_runs": self.runs.active,
            **names,
            **({"waiting_for_restart": [*waiting]} if waiting else {}),
            **mounted_servers(self.agent.all.values()),
        }

    def health(self) -> Health:
        """Return what is seen of it over HTTP."""
        from ..transports.health import Health
        from .health import ServerHealth  # not needed on stdio

        checks = ServerHealth(self.services, self.journal, self.group, self.fleet)
        return Health(self.status, checks.not_ready, checks.metrics)

    @property
    def sessions_of(self) -> SessionsOf | None:
        """What makes the sessions of older clients over HTTP; None for those of a single server."""
        if self.fleet is None:
            return None
        from .shared_sessions import shared_sessions

        return shared_sessions(self.fleet, self.shared.key, lambda: self.face.tools)

    async def drain(self, at_once: anyio.Event) -> None:
        """Let runs finish their step, and answer every request; cut short when `at_once` is set."""
        from .shutdown import shut_down

        seconds = self.settings.current.drain_seconds
        await shut_down(self.services, self.face.close_streams, seconds, at_once)


def _shown_name(path: Path, private: Path | None) -> str:
    """Return the name of a file, but not of one that is a user's own: anybody sees it."""
    return "a user's file" if private is not None and path.is_relative_to(private) else path.name


async def watch_files(app: App) -> None:
    """Follow the files that operators and users save; never returns."""
    reports = FileReports()
    skills = app.agent.files(lambda parts: parts.skills)
    agents = app.agent.files(lambda parts: parts.subagents)
    policy, profiles = app.common.policy, app.common.profiles
    broken = {
        "skills": skills,
        "agents": agents,
        "policy": policy,
        "profiles": profiles,
        "settings": app.settings,
    }
    for kind, one in broken.items():
        reports.report(kind, one.errors)
    await anyio.sleep(WATCH_AFTER_SECONDS)
    from ..reload.hot_reload import Kind, Reloadable, watch

    async def on_change(kind: Kind, names: frozenset[str]) -> None:
        if kind == "code" and code is not None:
            await app.reload_code(names)
            reports.report(kind, code.errors)
        if kind in broken:  # memory files say it themselves
            reports.report(kind, broken[kind].errors)
        if kind in ("skills", "agents"):
            await app.announcements.menus_changed(tools=kind == "agents")
        elif kind == "policy" and not policy.errors:
            # It guards everything, so not in silence.
            logger.warning("the policy has changed; it holds from the next call on")
        elif kind == "profiles" and not profiles.errors:
            if app.settings.current.background_subagents:
                logger.warning("profiles have changed; takes effect when the server starts again")
            else:
                app.agent.outdate()

    code = app.source and app.source.files
    registries: dict[Kind, Reloadable] = {
        "settings": app.settings,
        "skills": skills,
        "agents": agents,
        "memory": app.agent.files(lambda parts: parts.memory),
        "policy": app.policy,
        "profiles": profiles,
    }
    if code is not None:
        registries["code"] = code
    await watch(registries, on_change, untrusted=app.settings.current.untrusted)
