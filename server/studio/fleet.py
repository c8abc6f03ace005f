"""The fleet: what waits in line, how much may work at once, and which replicas there are."""

from __future__ import annotations

from pydantic import JsonValue

from ..auth.caller import current_caller
from ..mcp.requests import Services
from ..threads.journal_servers import ReplicaServers
from .queries import instant

__all__ = ["fleet"]

MOST_QUEUED = 500


async def fleet(services: Services) -> dict[str, JsonValue]:
    """Return the caller's runs that wait in line, their bounds, and the replicas if there are any.

    Only callers who may see everybody's threads see the replicas.
    """
    caller, carrier = current_caller.get(), services.runs.carrier
    queued = await services.journal.find_runs(status="queued", limit=MOST_QUEUED)
    bounds = carrier.bounds
    shown: dict[str, JsonValue] = {
        "queued": [
            {
                "run_id": one.id,
                "thread_id": one.thread_id,
                "title": " ".join(one.goal.split())[:200],
                "since": instant(one.created_at),
                "doing": await services.runs.queue.waits_for(one),
            }
            for one in reversed(queued)
        ],
        "quotas": {
            "workers": bounds.workers,
            "max_runs": bounds.max_runs,
            "per_minute": bounds.per_minute,
        },
        "working": len(carrier.working(caller.owner)),
        "schedules": "schedules://all" if services.schedules is not None else None,
    }
    servers = carrier.servers
    census = servers.census if isinstance(servers, ReplicaServers) else None
    if census is not None and (not caller.principal or caller.may("admin")):
        shown["replicas"] = [
            {
                "id": one.id,
                "host": one.host,
                "version": one.version,
                "started": instant(one.started_at),
                "silent_seconds": one.silent,
                "working": one.working,
                "draining": one.draining,
                "self": one.id == carrier.owner,
            }
            for one in census.living
        ]
    return shown
