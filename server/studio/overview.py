"""Overviews: the caller and this server, a thread with its runs and costs, and the fleet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast, get_args

from pydantic import JsonValue

from ...harness.checkpoint.base import Run, RunStatus
from ...harness.errors import CheckpointError
from ...harness.limits.carried_limits import used_by
from ...harness.limits.usage import Ledger, LedgerLine
from ..auth.caller import KNOWN_SCOPES, current_caller
from ..mcp.offered_agents import offered_agents
from ..mcp.requests import Services
from ..settings.toolsets import withheld_tools
from ..threads.journal_servers import ReplicaServers
from ..threads.listing import todos_as_json, todos_now
from ..version import NAME, version
from .catalogue import costs_of, title_of
from .queries import NotThere, Query, instant
from .questions import Questions

__all__ = ["fleet", "me", "run_json", "runs_found", "thread_overview"]

MOST_RUNS = 100
STATUSES: tuple[str, ...] = get_args(RunStatus)


async def me(services: Services) -> dict[str, JsonValue]:
    """Return the caller, their rights, and the agents and tools for them."""
    caller, settings = current_caller.get(), services.settings
    offered = offered_agents(services)
    agent = services.places()
    agents: list[JsonValue] = [
        {"name": one.name, "description": one.description} for one in offered.subagents.values()
    ]
    return {
        "principal": caller.principal,
        "scopes": [one for one in sorted(KNOWN_SCOPES) if caller.may(one)],
        "server": {"name": NAME, "version": version()},
        "main": offered.main,
        "main_name": offered.main_name,
        "agents": agents,
        "model": settings.model or None,
        "root": None if settings.root is None else str(settings.root),
        "execute": settings.execute,
        "read_only": settings.read_only,
        "withheld_tools": [*sorted(withheld_tools(settings))],
        "agent_tools": [*agent.tools],
        "replicas": settings.replicas,
    }


def run_json(run: Run) -> dict[str, JsonValue]:
    """Return a run in full."""
    usage: JsonValue = None
    try:
        used = used_by(run)
        usage = None if used is None else used.to_json()
    except CheckpointError:
        pass  # it was written by another version
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "kind": run.kind,
        "agent": run.agent,
        "status": run.status,
        "goal": run.goal,
        "answer": run.answer,
        "reason": run.reason,
        "created": instant(run.created_at),
        "updated": instant(run.updated_at),
        "attempt": run.attempt,
        "usage": usage,
    }


async def runs_found(services: Services, query: Query) -> dict[str, JsonValue]:
    """Return the caller's runs, newest first, and whether there are more than `limit`.

    Raises:
        BadQuery: A parameter is invalid.
    """
    status, thread, limit = (
        query.text("status"),
        query.text("thread"),
        query.count("limit", 50, 200),
    )
    if status and status not in STATUSES:
        query.refuse("status", f"one of {', '.join(STATUSES)}")
    found = await services.journal.find_runs(
        status=cast("RunStatus | None", status or None),
        thread_id=await services.thread(thread) if thread else None,
        limit=limit + 1,
    )
    return {"runs": [run_json(one) for one in found[:limit]], "more": len(found) > limit}


async def thread_overview(
    services: Services, questions: Questions, thread_id: str
) -> dict[str, JsonValue]:
    """Return a thread with its newest runs, its todos, costs and open questions.

    Raises:
        NotThere: There is no such thread.
    """
    journal = services.journal
    runs = await journal.find_runs(thread_id=thread_id, limit=1_000)
    head = await journal.load(thread_id)
    if head is None and not runs:
        raise NotThere(f"There is no thread {thread_id!r}.")
    todos: list[JsonValue] = []
    if head is not None:
        await services.places.prepare(thread_id)
        agent = services.places(thread_id)
        todos = todos_as_json(agent, await todos_now(agent, thread_id))
    cost, unpriced, tokens, seconds = costs_of(runs)
    times = [one.updated_at for one in runs]
    if head is not None:
        times.append(head.checkpoint.created_at)
    begun = [one.created_at for one in runs] or times
    return {
        "thread_id": thread_id,
        "title": title_of(runs),
        "status": runs[0].status if runs else "idle",
        "created": instant(min(begun)),
        "updated": instant(max(times)),
        "cost": cost,
        "unpriced": unpriced,
        "tokens": tokens,
        "seconds": seconds,
        "run_count": len(runs),
        "runs": [run_json(one) for one in runs[:MOST_RUNS]],
        "costs": costs_by_agent(runs),
        "todos": todos,
        "checkpoint_id": None if head is None else head.checkpoint.id,
        "open_questions": await questions.open_of(runs[:5]),
    }


def costs_by_agent(runs: Iterable[Run]) -> list[JsonValue]:
    """Return the usage of runs, with one line for each agent and model."""
    ledger: dict[tuple[str, str], LedgerLine] = {}
    for run in runs:
        try:
            used = used_by(run)
        except CheckpointError:
            continue
        for line in used.ledger if used is not None else ():
            known = ledger.get((line.agent, line.model), LedgerLine(line.agent, line.model))
            ledger[line.agent, line.model] = LedgerLine(
                line.agent,
                line.model,
                known.calls + line.calls,
                known.usage + line.usage,
                known.cost + line.cost,
            )
    return cast("list[JsonValue]", [one.to_json() for one in Ledger(ledger.values()).lines])


MOST_QUEUED = 500


async def fleet(services: Services) -> dict[str, JsonValue]:
    """Return the caller's queued runs, the limits, and the replicas if there are any.

    Only callers who may see all users' threads see the replicas.
    """
    caller, supervisor = current_caller.get(), services.runs.supervisor
    newest = await services.journal.find_runs(status="queued", limit=MOST_QUEUED)
    queued = newest[::-1]
    doing = await services.runs.queue.threads.waits_for(*queued)
    bounds = supervisor.bounds
    shown: dict[str, JsonValue] = {
        "queued": [
            {
                "run_id": one.id,
                "thread_id": one.thread_id,
                "title": " ".join(one.goal.split())[:200],
                "since": instant(one.created_at),
                "doing": waits_for,
            }
            for one, waits_for in zip(queued, doing, strict=True)
        ],
        "quotas": {
            "workers": bounds.workers,
            "max_runs": bounds.max_runs,
            "per_minute": bounds.per_minute,
        },
        "working": len(supervisor.working(caller.owner)),
        "schedules": "schedules://all" if services.schedules is not None else None,
    }
    servers = supervisor.servers
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
                "self": one.id == supervisor.owner,
            }
            for one in census.living
        ]
    return shown
