"""Engines: whose run begins when. One suite for all that there are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from deep_agent_mcp.server.engine.base import Bounds, Leg, RunEngine
from deep_agent_mcp.server.engine.local import LocalRuns

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """An engine whose legs last until they are let go."""

    bounds: Bounds
    begun: list[str] = field(default_factory=list[str])
    live: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    engine: RunEngine = field(init=False)

    def working(self, owner: str | None = None) -> Collection[str]:
        return [one for one in self.live if owner is None or one.startswith(owner)]

    async def carry(self, run_id: str) -> None:
        self.begun.append(run_id)
        self.live[run_id] = anyio.Event()
        await self.live[run_id].wait()
        del self.live[run_id]

    async def offer(self, *run_ids: str, **more: float) -> None:
        for run_id in run_ids:
            owner = run_id.partition("-")[0]
            await self.engine.offer(Leg(run_id, 1, owner, **more))  # type: ignore[arg-type]
        await anyio.wait_all_tasks_blocked()

    async def end(self, run_id: str) -> None:
        self.live[run_id].set()
        await anyio.wait_all_tasks_blocked()


@asynccontextmanager
async def local(clock: Clock | None = None, **bounds: object) -> AsyncGenerator[Server]:
    server = Server(Bounds(**bounds))  # type: ignore[arg-type]
    server.engine = LocalRuns(lambda: server.bounds, server, clock or Clock())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(server.engine.serve, server.carry)
            await anyio.wait_all_tasks_blocked()
            yield server
            group.cancel_scope.cancel()


async def test_no_more_runs_of_one_owner_than_the_bound() -> None:
    async with local(max_runs=2) as server:
        await server.offer("ann-1", "ann-2", "ann-3", "ben-1")
        assert sorted(server.begun) == ["ann-1", "ann-2", "ben-1"]
        await server.end("ann-2")
        assert server.begun[-1] == "ann-3"


async def test_a_line_of_one_does_not_delay_another() -> None:
    async with local(workers=1) as server:
        await server.offer(*(f"ann-{number}" for number in range(100)), "ben-1", "cid-1")
        for begun in ("ann-0", "ben-1", "cid-1", "ann-1"):
            assert server.begun[-1] == begun
            await server.end(begun)


async def test_priorities_go_before_the_order_of_arrival() -> None:
    async with local(workers=1, priorities={"cid": 1, "ann": 9}) as server:
        await server.offer("ann-1")
        await server.offer("ben-1")
        await server.offer("ben-2", priority=1)
        await server.offer("cid-1")
        for begun in ("ann-1", "cid-1", "ben-2", "ben-1"):
            assert server.begun[-1] == begun
            await server.end(begun)


async def test_runs_begin_no_faster_than_the_rate_of_their_owner() -> None:
    clock = Clock()
    async with local(clock, per_minute=2) as server:
        await server.offer("ann-1", "ann-2", "ann-3", "ben-1")
        assert sorted(server.begun) == ["ann-1", "ann-2", "ben-1"]
        clock.now = 61.0
        server.engine.stirred()
        await anyio.wait_all_tasks_blocked()
        assert server.begun[-1] == "ann-3"


async def test_a_leg_begins_once_and_not_before_its_time() -> None:
    clock = Clock()
    async with local(clock) as server:
        await server.offer("ann-1", delay=5.0)
        await server.offer("ann-1")
        assert not server.begun
        assert await server.engine.offered([Leg("ann-1", 1), Leg("ann-2", 1)]) == {"ann-1"}
        clock.now = 5.0
        server.engine.stirred()
        await anyio.wait_all_tasks_blocked()
        await server.offer("ann-1")
        assert server.begun == ["ann-1"]


async def test_what_is_withdrawn_or_comes_while_the_server_stops_does_not_begin() -> None:
    async with local(workers=1) as server:
        await server.offer("ann-1", "ann-2", "ann-3")
        await server.engine.withdraw("ann-2")
        await server.end("ann-1")
        assert server.begun == ["ann-1", "ann-3"]
        await server.engine.drain()
        await server.offer("ann-4")
        await server.end("ann-3")
        assert server.begun == ["ann-1", "ann-3"]
        assert not server.engine.admits(Leg("ann-5", 1, "ann"))
