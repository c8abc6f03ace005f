"""What the handlers of all requests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext

from harness.agent import Agent
from harness.backends.base import Backend
from harness.skills.registry import SkillRegistry
from harness.subagents.registry import SubAgentRegistry
from server.announcements import Announcements
from server.auth.owned_journal import JournalReader
from server.auth.principals import Principals
from server.runs import RunManager
from server.settings import Settings

__all__ = ["Context", "Services", "wait_seconds"]

Context: TypeAlias = ServerRequestContext[Any, Any]

PATIENCE = {"claude-code": 110.0, "codex": 280.0}
"""Seconds that clients are known to bear, by the start of their name (clients 2.1)."""


@dataclass(frozen=True)
class Services:
    """What the handlers of all requests share.

    Attributes:
        settings: What the operator chose.
        agent: Returns the agent; it is built at the first call.
        journal: The checkpoints, runs and questions of the caller's threads.
        runs: Work in progress.
        announcements: Tells clients of changes.
        skills: The skills there are now.
        subagents: The subagents there are now.
        backend: Where files live.
        principals: Who has called.
    """

    settings: Settings
    agent: Callable[[], Agent]
    journal: JournalReader
    runs: RunManager
    announcements: Announcements
    skills: SkillRegistry
    subagents: SubAgentRegistry
    backend: Backend
    principals: Principals


def wait_seconds(ctx: Context, settings: Settings, asked: float | None) -> float:
    """Return how long this call may block: what the client bears, or less if the caller says so.

    An operator's explicit `wait_budget` goes before what is known of the client.
    """
    budget = settings.wait_budget
    if "wait_budget" not in settings.model_fields_set and ctx.session.client_params is not None:
        name = ctx.session.client_params.client_info.name.lower()
        known = [seconds for start, seconds in PATIENCE.items() if name.startswith(start)]
        budget = max([budget, *known])
    return budget if asked is None else min(budget, max(0.0, asked))
