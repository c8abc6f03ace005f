"""Served files: finds broken files among those that instruct agents, and reloads saved ones.

They are skills, subagents, memory, policies, profiles, settings, and the code of Python agents.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from ...harness._internal.records import record
from ..agents.workplaces import Common, Workplaces
from ..reload import FileReports, RulesOfAll
from ..settings.protected_paths import GuardedRules
from ..settings.reloadable_settings import ReloadableSettings
from ..settings.setting_types import parent_of_all

if TYPE_CHECKING:
    from ..mcp.sessions import Announcements
    from ..python_agents.source import AgentSource

__all__ = ["WATCH_AFTER_SECONDS", "ServedFiles"]

WATCH_AFTER_SECONDS = 0.3
"""Seconds from the start until files are watched. Earlier changes are noticed then."""

_SHOWN = frozenset({"definition", "principal_agents", "task_models"})
"""Settings that change the description of `task`, or the agents that hosts discover."""

logger = logging.getLogger(__name__)


@record
class ServedFiles:
    """The files of a server.

    Attributes:
        places: The agents, each with its files.
        common: The files that are the same for all agents.
        settings: The configuration file.
        source: The code of an agent that was made in Python.
    """

    places: Workplaces
    common: Common
    settings: ReloadableSettings
    source: AgentSource | None

    @property
    def policy(self) -> GuardedRules | RulesOfAll:
        """The rules in front of every tool call."""
        if not self.settings.current.per_principal:
            return self.places.of().parts.rules
        return RulesOfAll(
            self.common.policy, lambda: [one.parts.rules for one in self.places.all.values()]
        )

    def broken(self) -> dict[str, list[JsonValue]]:
        """Return the names of broken files by kind, without names that are private to a user."""
        broken: Mapping[str, Mapping[str, str]] = {
            "broken_code": {} if self.source is None else self.source.errors,
            "broken_agents": self.places.files(lambda parts: parts.subagents).errors,
            "broken_memory": self.places.files(lambda parts: parts.memory).errors,
            "broken_policy": self.policy.snapshot.errors,
            "broken_profiles": self.common.profiles.errors,
            "broken_settings": self.settings.errors,
            "broken_skills": self.places.files(lambda parts: parts.skills).errors,
        }
        current = self.settings.current
        private = parent_of_all(current.root) if current.root and current.per_principal else None
        return {
            kind: [_shown_name(Path(path), private) for path in errors]
            for kind, errors in broken.items()
            if errors
        }

    async def watch(
        self,
        announcements: Announcements,
        reload_code: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        """Watch all files; never returns.

        Args:
            announcements: Notifies clients of changes.
            reload_code: Called with the saved files of an agent's code; builds the agent again.
        """
        reports = FileReports()
        skills = self.places.files(lambda parts: parts.skills)
        agents = self.places.files(lambda parts: parts.subagents)
        policy, profiles = self.common.policy, self.common.profiles
        broken = {
            "skills": skills,
            "agents": agents,
            "policy": policy,
            "profiles": profiles,
            "settings": self.settings,
        }
        for kind, one in broken.items():
            reports.report(kind, one.errors)
        await anyio.sleep(WATCH_AFTER_SECONDS)
        from ..reload.hot_reload import Kind, Reloadable, watch

        async def on_change(kind: Kind, names: frozenset[str]) -> None:
            if kind == "code" and code is not None:
                await reload_code(names)
                reports.report(kind, code.errors)
            if kind in broken:  # memory files report it themselves
                reports.report(kind, broken[kind].errors)
            if kind in ("skills", "agents") or (kind == "settings" and names & _SHOWN):
                await announcements.menus_changed(tools=kind != "skills")
            elif kind == "policy" and not policy.errors:
                # The policy guards everything, so a change is logged.
                logger.warning("the policy has changed; it applies from the next call on")
            elif kind == "profiles" and not profiles.errors:
                self._profiles_changed()

        code = self.source and self.source.files
        registries: dict[Kind, Reloadable] = {
            "settings": self.settings,
            "skills": skills,
            "agents": agents,
            "memory": self.places.files(lambda parts: parts.memory),
            "policy": self.policy,
            "profiles": profiles,
        }
        if code is not None:
            registries["code"] = code
        await watch(registries, on_change, untrusted=self.settings.current.untrusted)

    def _profiles_changed(self) -> None:
        if self.settings.current.background_subagents:
            logger.warning("profiles have changed; takes effect when the server starts again")
            return
        if self.source is not None:
            self.source.outdate()
        self.places.outdate()


def _shown_name(path: Path, private: Path | None) -> str:
    """Return the name of a file, unless it belongs to one user: everybody sees the names."""
    return "a user's file" if private is not None and path.is_relative_to(private) else path.name
