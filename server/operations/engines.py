"""Engine choice: which engine a server uses, and its limits."""

from __future__ import annotations

import logging
from functools import partial

from ..auth.caller import Caller
from ..engine import Bounds, MakeEngine
from ..engine.local import LocalRuns
from ..runs.contracts import Servers
from ..settings.settings import Settings
from ..settings.state_dir import StateDir

logger = logging.getLogger(__name__)

__all__ = ["DBOS_WORKERS", "bounds_of", "engine_of"]

DBOS_WORKERS = 16
"""Few, as the first server that looks takes as many legs as it may."""


def bounds_of(settings: Settings) -> Bounds:
    """Return how much may be executed."""
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
    """Return what makes the engine that the settings name.

    Args:
        settings: What the operator chose.
        state: Where an engine keeps its tables while the journal is in no database server.
        owner: Our id.
        servers: Which other servers live.
    """
    if settings.engine == "local":
        shared = {"max_runs", "max_runs_per_minute"} & settings.model_fields_set
        if settings.replicas and shared:
            logger.warning(
                "each replica counts %s by itself, so users may have that many runs on every "
                "replica. With --engine dbos, the replicas count together.",
                " and ".join(sorted(shared)),
            )
        return LocalRuns
    from ..engine.dbos_place import place_of
    from ..engine.dbos_runs import DbosRuns

    url = None if settings.journal is None else settings.journal.get_secret_value()
    return partial(DbosRuns, place_of(url, state.path), owner, servers.is_alive)
