"""Services: everything the request handlers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext

from ...harness.skills import SkillRegistry
from ...harness.subagents.registry import SubAgentRegistry
from ..auth.caller import JournalReader, Principals
from ..runs.runs import RunManager
from ..runs.workplaces import Workplaces
from ..sampling.carriers import OpenRequests
from ..settings.reloadable_settings import ReloadableSettings
from ..settings.settings import Settings
from .announcements import Announcements
from .cancelled_requests import CancelledRequests

__all__ = ["Context", "Services", "wait_budget", "wait_seconds"]

Context: TypeAlias = ServerRequestContext[Any, Any]

PATIENCE = {"claude-code": 110.0, "codex": 280.0, "gemini-cli": 280.0}
"""Seconds that clients are known to bear, by the start of their name."""


@dataclass(frozen=True)
class Services:
    """What the handlers of all requests share.

    Attributes:
        live: What the operator chose, and has changed since.
        places: Where agents work; call it for an agent, which is built at the first call, and when
            it is out of date.
        journal: The checkpoints, runs and questions of the caller's threads.
        runs: Work in progress.
        announcements: Tells clients of changes.
        principals: Who has called.
        requests: What clients are being asked.
        cancelled: What they have cancelled.
    """

    live: ReloadableSettings
    places: Workplaces
    journal: JournalReader
    runs: RunManager
    announcements: Announcements
    principals: Principals
    requests: OpenRequests = field(default_factory=OpenRequests)
    cancelled: CancelledRequests = field(default_factory=CancelledRequests)

    @property
    def skills(self) -> SkillRegistry:
        """The caller's skills."""
        return self.places.of().parts.skills

    @property
    def subagents(self) -> SubAgentRegistry:
        """The caller's subagents."""
        return self.places.of().parts.subagents

    @property
    def settings(self) -> Settings:
        """What the operator wants now."""
        return self.live.current


def wait_seconds(ctx: Context, settings: Settings, asked: float | None) -> float:
    """Return how long this call may block: what the client bears, or less if the caller says so."""
    client = ctx.session.client_params
    budget = wait_budget(settings, "" if client is None else client.client_info.name)
    return budget if asked is None else min(budget, max(0.0, asked))


def wait_budget(settings: Settings, client: str) -> float:
    """Return how long a client of this name bears to wait, in seconds.

    What the operator says of it goes first, then what they say of all, then what is known of it.
    """
    name = client.lower()
    for table in (settings.wait_budgets, PATIENCE):
        starts = [start for start in table if name.startswith(start)]
        if starts:
            return table[max(starts, key=len)]
        if "wait_budget" in settings.model_fields_set:
            break
    return settings.wait_budget
