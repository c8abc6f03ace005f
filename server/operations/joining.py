"""Joining: makes the engine, agenda and fleet of a server from its settings."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ..auth.caller import Caller
from ..engine import Bounds, MakeEngine
from ..engine.local import LocalEngine
from ..runs.contracts import Servers
from ..settings.settings import Settings
from ..settings.state_dir import StateDir

if TYPE_CHECKING:
    from .agenda import Agenda
    from .fleet import Fleet

__all__ = ["agenda_of", "bounds_of", "engine_of", "fleet_of"]


def agenda_of(settings: Settings, *, acts: bool) -> AbstractAsyncContextManager[Agenda | None]:
    """Return a context that runs the agenda; None without `--schedules` and `--webhook`.

    Args:
        settings: What the operator chose.
        acts: Whether this is a server, not a command with the same settings.
    """
    if not acts or not (settings.schedules or settings.webhooks):
        return nullcontext()
    from .agenda import joined_agenda  # few servers have one

    return joined_agenda(settings)


def fleet_of(settings: Settings, owner: str) -> AbstractAsyncContextManager[Fleet | None]:
    """Return a context that joins the replicas of a journal; None without `--replicas`.

    Args:
        settings: What the operator chose.
        owner: Our id, which no other process has ever had.

    Raises:
        HarnessError: As for `joined`, when you enter it.
    """
    if not settings.replicas:
        return nullcontext()
    from .fleet import joined  # psycopg takes time to import

    return joined(settings, owner)


logger = logging.getLogger(__name__)


DBOS_WORKERS = 16
"""Few, because the first server that polls takes as many legs as it may."""


def bounds_of(settings: Settings) -> Bounds:
    """Return the limits from the settings."""
    workers = settings.workers
    if workers is None and settings.engine == "dbos":
        workers = DBOS_WORKERS
    priorities = {
        Caller(principal, frozenset()).owner: priority
        for principal, priority in settings.priorities.items()
    }
    return Bounds(
        workers,
        settings.max_runs,
        settings.max_runs_per_minute,
        priorities,
        settings.background_subagents,
    )


def engine_of(settings: Settings, state: StateDir, owner: str, servers: Servers) -> MakeEngine:
    """Return a function that makes the engine named in the settings.

    Args:
        settings: What the operator chose.
        state: Directory for an engine's tables if the journal is not in a database server.
        owner: Our id.
        servers: Says which other servers are alive.
    """
    if settings.engine == "local":
        shared = {"max_runs", "max_runs_per_minute"} & settings.model_fields_set
        if settings.replicas and shared:
            logger.warning(
                "each replica counts %s by itself, so users may have that many runs on every "
                "replica. With --engine dbos, the replicas count together.",
                " and ".join(sorted(shared)),
            )
        return LocalEngine
    from ..engine.dbos_database import place_of
    from ..engine.dbos_runs import DbosEngine

    url = None if settings.journal is None else settings.journal.get_secret_value()
    return partial(DbosEngine, place_of(url, state.path), owner, servers.is_alive)
