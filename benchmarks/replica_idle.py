"""Cost of idle replicas, while runs wait for people and calls wait for runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.abc
import httpx2

from benchmarks.client import INFO, cpu_seconds
from benchmarks.http_client import HttpClient
from benchmarks.replica_trio import Replica, replicas
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt, Run
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer

__all__ = ["CALLS", "idle"]

WAITING = 10_000
CALLS = f"{WAITING:,} waiting calls"
"""Label: one replica holds the calls; another one executes the runs that they wait for."""

WORKING = 50
"""Number of these runs."""

_AT_ONCE = 50
_SECONDS = 15.0
"""Duration of one measurement, and the interval of comments to a waiting call."""


async def idle(place: Path, url: str) -> dict[str, list[float]]:
    """Return the processor time of idle replicas in ms/s, by the kind of wait.

    Args:
        place: Directory for their files.
        url: URL of a new journal; its last part is the schema.
    """
    place /= "idle"
    place.mkdir()
    found: dict[str, list[float]] = {}
    env = {"DEEP_AGENT_WAIT_BUDGETS": f"{INFO['name']}=600"}
    with replicas(place, url, ("a", "b", "c"), env=env) as fleet:
        a, b, _ = every = [*fleet.all.values()]
        found["nothing"] = await _used(every)
        await _ask(url)
        found[f"{WAITING:,} waiting runs"] = await _used(every)
        async with anyio.create_task_group() as group:
            await _wait(group, a, b)
            found[CALLS] = [one for _ in range(3) for one in await _used([b])]
            group.cancel_scope.cancel()
    return found


async def _used(those: Sequence[Replica]) -> list[float]:
    before = [cpu_seconds(one.process.pid) for one in those]
    await anyio.sleep(_SECONDS)
    after = [cpu_seconds(one.process.pid) for one in those]
    return [1_000 * (now - then) / _SECONDS for now, then in zip(after, before, strict=True)]


async def _ask(url: str) -> None:
    """Store runs that wait for an answer."""
    conninfo, _, schema = url.rpartition("?schema=")
    async with PostgresCheckpointer(conninfo, schema=f"{schema}_journal") as journal:
        room = anyio.CapacityLimiter(64)

        async def ask(number: int) -> None:
            name = f"waits-{number}"
            run = Run(f"run_{name}", name, "delegate", "main", "needs_approval")
            asked = Interrupt(f"int_{number}", name, "", "s", run.id, "approval", (), "?", {}, {})
            async with room:
                await journal.commit(Batch(name, runs=[run], interrupts=[asked], synced=False))

        async with anyio.create_task_group() as group:
            for number in range(WAITING):
                group.start_soon(ask, number)


async def _wait(group: anyio.abc.TaskGroup, worker: Replica, holder: Replica) -> None:
    """Start runs on one replica, and calls that wait for them on another, in a task group."""
    begun: list[str] = []
    async with HttpClient(worker.url, "modern") as client:
        for _ in range(WORKING):
            asked = {"goal": "nap 600", "thread_id": "new", "wait_seconds": 0}
            made = await client.call("task", asked)
            begun.append(made["structuredContent"]["run_id"])

    async def wait(number: int) -> None:
        async with HttpClient(holder.url, "modern") as client:
            asked = {"run_id": begun[number % WORKING], "wait_seconds": 600}
            await client.call("wait", asked)

    for number in range(WAITING):
        group.start_soon(wait, number)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await anyio.sleep(0.2)
    async with httpx2.AsyncClient(timeout=120) as http:
        page = ""
        while f"deep_agent_requests_in_flight {WAITING}" not in page:
            await anyio.sleep(1)
            page = (await http.get(holder.url.replace("/mcp", "/metrics"))).text
    await anyio.sleep(_SECONDS)
