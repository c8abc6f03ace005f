"""DBOS's database: where its tables are, how it is started, and its queues with their limits.

The tables are in a schema of the journal's Postgres database, or in a file.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from ...harness._internal.records import record
from ...harness.agent_file.places import split_database_url
from . import USUAL_PRIORITY, Bounds

__all__ = [
    "KEPT_SECONDS",
    "PAGE",
    "Place",
    "close",
    "forget_old",
    "launch",
    "place_of",
    "queue_of",
    "tune",
]

POLL_SECONDS = 0.15
"""Seconds between two polls for legs; each poll takes one or two transactions."""

_TASK_POLL_SECONDS = 0.3
"""Seconds between two polls for legs of background tasks, which nobody watches."""

KEPT_SECONDS = 3_600.0
"""Seconds that legs which were executed are kept."""

PAGE = 500
"""Legs that are read at once."""


@record
class Place:
    """Where the engine's tables are.

    Attributes:
        url: URL of the database.
        schema: Schema in the database; None if the database has no schemas.
    """

    url: str
    schema: str | None


def place_of(journal: str | None, directory: Path) -> Place:
    """Return the place beside a journal.

    Args:
        journal: The journal's URL; None for a file.
        directory: Directory for the tables if the journal is not in Postgres.
    """
    if journal is None or not journal.startswith(("postgresql:", "postgres:")):
        return Place(f"sqlite:///{directory / 'engine.db'}", None)
    conninfo, schema = split_database_url(journal)
    return Place(_url(conninfo), "deep_agent_engine" if schema is None else f"{schema}_engine")


def _url(conninfo: str) -> str:
    """Turn a Postgres connection string into a URL that names the database, as DBOS requires."""
    found = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
    user = found.pop("user", None) or os.environ.get("PGUSER") or getpass.getuser()
    host, port = found.pop("host", None), found.pop("port", None)
    if host is not None and (host.startswith("/") or "," in host):
        found |= {"host": host, **({} if port is None else {"port": port})}
        host = port = None
    url = URL.create(
        "postgresql",
        user,
        found.pop("password", None),
        host,
        None if port is None else int(port),
        found.pop("dbname", None) or os.environ.get("PGDATABASE") or user,
        found,
    )
    return url.render_as_string(hide_password=False)


def launch(
    place: Place,
    owner: str,
    version: str,
    leg: Callable[[str, int, bool], Awaitable[None]],
    *,
    takes: bool,
) -> None:
    """Start DBOS in this process. Blocks.

    Args:
        place: Where its tables are.
        owner: Our id.
        version: Servers of the same version share legs.
        leg: Executes a leg.
        takes: Whether this server executes any.
    """
    config: DBOSConfig = {
        "name": "deep-agent-mcp",
        "system_database_url": place.url,
        "application_version": version,
        "executor_id": owner,
        "serializer": DBOSPortableJSONSerializer(),
        "log_level": "CRITICAL",
        "use_listen_notify": False,
        "sys_db_pool_size": 8,
        # A broken connection is noticed at its next use; the failed statement is tried again.
        "db_engine_kwargs": {"pool_pre_ping": False},
        "scheduler_polling_interval_sec": 3_600.0,
    }
    if place.schema is not None:
        config["dbos_system_schema"] = place.schema
    DBOS(config=config)
    DBOS.workflow(name="leg", max_recovery_attempts=None)(leg)
    if not takes:
        DBOS.listen_queues([])
    DBOS.launch()


def queue_of(lane: int, *, tasks: bool) -> str:
    """Return the name of the queue for owners of a priority."""
    return f"{'tasks' if tasks else 'runs'}-{lane}"


def tune(bounds: Bounds) -> None:
    """Store limits for all servers; the newest stored limits apply."""
    kinds = (False, True) if bounds.has_tasks else (False,)
    lanes = {USUAL_PRIORITY, *bounds.priorities.values()}
    for tasks, lane in product(kinds, lanes):
        limit = None if tasks else bounds.per_minute
        DBOS.register_queue(
            queue_of(lane, tasks=tasks),
            worker_concurrency=bounds.workers or None,
            partition_concurrency=bounds.max_runs,
            partition_limiter=None if limit is None else {"limit": limit, "period": 60.0},
            polling_interval_sec=_TASK_POLL_SECONDS if tasks else POLL_SECONDS,
            # A server that executes no runs does not know the limits of the others.
            on_conflict="never_update" if bounds.workers == 0 else "always_update",
        )


def forget_old() -> None:
    """Delete legs that were executed long ago."""
    before = datetime.now(UTC) - timedelta(seconds=KEPT_SECONDS)
    while True:
        old = DBOS.list_workflows(
            name="leg",
            completed_before=before.isoformat(),
            limit=PAGE,
            load_input=False,
            load_output=False,
        )
        if old:
            DBOS.delete_workflows([one.workflow_id for one in old])
        if len(old) < PAGE:
            return


def close() -> None:
    """Stop DBOS in this process. Blocks."""
    DBOS.destroy(destroy_registry=True)
