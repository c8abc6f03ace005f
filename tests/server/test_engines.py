"""Engines: whose run begins when. The same laws for all that there are."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.server.engine import Bounds, Leg, RunEngine, dbos_runs
from deep_agent_mcp.server.engine.dbos_database import Place, place_of
from deep_agent_mcp.server.engine.dbos_runs import DbosEngine
from deep_agent_mcp.server.engine.local import LocalEngine
from tests.databases import SERVER as POSTGRES
from tests.databases import Database, made_database
from tests.replicas.servers import journal_url

pytestmark = pytest.mark.anyio


def legs(*run_ids: str, **more: float) -> list[Leg]:
    """Return first attempts of runs, whose owner is what their ids begin with."""
    return [Leg(one, 1, one.partition("-")[0], **more) for one in run_ids]  # type: ignore[arg-type]


@dataclass
class Server:
    """An engine whose legs last until they are let go."""

    bounds: Bounds = field(default_factory=Bounds)
    begun: list[str] = field(default_factory=list[str])
    live: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    moved: anyio.Event = field(default_factory=anyio.Event)
    numbers: Iterator[int] = field(default_factory=count)
    engine: RunEngine = field(init=False)

    def working(self, owner: str | None = None, *, tasks: bool = False) -> Collection[str]:
        return [
            one
            for one in self.live
            if ("-task" in one) == tasks and (owner is None or one.startswith(owner))
        ]

    async def carry(self, run_id: str) -> None:
        self.begun.append(run_id)
        self.live[run_id] = anyio.Event()
        self.moved.set()
        await self.live[run_id].wait()
        del self.live[run_id]
        self.moved.set()

    async def bound(self, bounds: Bounds) -> None:
        if bounds == self.bounds:
            return
        self.bounds = bounds
        self.engine.room_changed()
        while not self._is_tuned():  # noqa: ASYNC110  a thread does it
            await anyio.sleep(0.01)
        if isinstance(self.engine, DbosEngine):
            # It reads the bounds before it waits to look again, so the look after next has them.
            for _ in range(2):
                (probe,) = legs(f"probe-{next(self.numbers)}")
                await self.offer([probe])
                await self.begins(probe.run_id)
                await self.end(probe.run_id)

    def _is_tuned(self) -> bool:
        return not isinstance(self.engine, DbosEngine) or self.engine.tuned == self.bounds

    async def offer(self, given: Sequence[Leg]) -> None:
        for leg in given:
            assert await self.engine.offer(leg)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.moved = anyio.Event()
            await self.moved.wait()

    def has_begun(self, number: int) -> bool:
        return len(self.begun) == number

    async def begins(self, *run_ids: str) -> None:
        await self.until(lambda: {*run_ids} <= {*self.begun})

    def of(self, owner: str) -> list[str]:
        return [one for one in self.begun if one.startswith(owner)]

    async def end(self, *run_ids: str) -> None:
        for run_id in run_ids:
            self.live[run_id].set()
        await self.until(lambda: not {*run_ids} & self.live.keys())

    async def end_all(self) -> None:
        """Let go of everything, also of what begins meanwhile."""
        while self.live:
            await self.end(*self.live)
            await anyio.wait_all_tasks_blocked()


Law = Callable[[Server], Awaitable[None]]


async def no_more_of_one_owner_than_the_bound(server: Server) -> None:
    await server.bound(Bounds(max_runs=2))
    await server.offer(legs("ann-1", "ann-2", "ann-3", "ben-1"))
    await server.until(lambda: len(server.of("ann")) == 2 and len(server.of("ben")) == 1)
    await server.offer(legs("cid-1"))
    await server.begins("cid-1")
    assert len(server.of("ann")) == 2
    await server.end(server.of("ann")[0])
    await server.until(lambda: len(server.of("ann")) == 3)


async def a_line_of_one_does_not_delay_another(server: Server) -> None:
    await server.bound(Bounds(max_runs=2))
    await server.offer(legs(*(f"dan-{number}" for number in range(30))))
    await server.offer(legs("eve-1"))
    await server.begins("eve-1")
    assert len(server.of("dan")) <= 2
    for number in range(30):
        await server.engine.withdraw(f"dan-{number}")


async def a_better_priority_goes_first_among_the_runs_of_an_owner(server: Server) -> None:
    await server.bound(Bounds(max_runs=1))
    await server.offer(legs("fay-1"))
    await server.begins("fay-1")
    await server.offer(legs("fay-2"))
    await server.offer(legs("fay-3", priority=1))
    await server.end("fay-1")
    await server.begins("fay-3")
    assert "fay-2" not in server.begun
    await server.end("fay-3")
    await server.begins("fay-2")


async def a_leg_is_carried_once_however_often_it_is_offered(server: Server) -> None:
    await server.bound(Bounds(max_runs=2))
    (first,) = legs("gil-1")
    await server.offer([first, first])
    await server.begins("gil-1")
    await server.offer([first])
    await server.offer(legs("gil-2"))
    await server.begins("gil-2")
    assert server.of("gil") == ["gil-1", "gil-2"]
    await server.end("gil-1")
    second = replace(first, attempt=2)
    while not await server.engine.offer(second):  # noqa: ASYNC110  DBOS notes the end soon
        await anyio.sleep(0.01)
    await server.until(lambda: server.of("gil") == ["gil-1", "gil-2", "gil-1"])


async def what_is_withdrawn_does_not_begin(server: Server) -> None:
    await server.bound(Bounds(max_runs=1))
    await server.offer(legs("hal-1"))
    await server.begins("hal-1")
    await server.offer(legs("hal-2", "hal-3"))
    known = legs("hal-1", "hal-2", "hal-3", "hal-4")
    assert await server.engine.offered(known) == {"hal-1", "hal-2", "hal-3"}
    await server.engine.withdraw("hal-2")
    assert await server.engine.offered(known[1:]) == {"hal-3"}
    await server.end("hal-1")
    await server.begins("hal-3")
    assert server.of("hal") == ["hal-1", "hal-3"]


async def a_leg_does_not_begin_before_its_time(server: Server) -> None:
    await server.bound(Bounds(max_runs=1))
    await server.offer(legs("ida-1", delay=0.6))
    await server.offer(legs("ida-2"))
    await server.begins("ida-2")
    assert server.of("ida") == ["ida-2"]
    await server.end("ida-2")
    await server.begins("ida-1")


async def whoever_waits_for_a_task_does_not_keep_it_from_beginning(server: Server) -> None:
    await server.bound(Bounds(workers=1, max_runs=1, has_tasks=True))
    await server.offer(legs("kim-1"))
    await server.begins("kim-1")
    await server.offer([replace(one, is_task=True) for one in legs("kim-task1", "kim-task2")])
    await server.begins("kim-task1")
    assert server.of("kim") == ["kim-1", "kim-task1"]
    await server.end("kim-task1")
    await server.begins("kim-task2")


LAWS: tuple[Law, ...] = (
    no_more_of_one_owner_than_the_bound,
    a_line_of_one_does_not_delay_another,
    a_leg_is_carried_once_however_often_it_is_offered,
    a_better_priority_goes_first_among_the_runs_of_an_owner,
    what_is_withdrawn_does_not_begin,
    a_leg_does_not_begin_before_its_time,
    whoever_waits_for_a_task_does_not_keep_it_from_beginning,
)


@asynccontextmanager
async def serving(
    make: Callable[[Server], RunEngine], server: Server | None = None
) -> AsyncGenerator[Server]:
    server = server or Server()
    server.engine = make(server)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(server.engine.serve, server.carry)
            yield server
            group.cancel_scope.cancel()


def local(server: Server) -> RunEngine:
    return LocalEngine(lambda: server.bounds, server)


def dbos(place: Place, owner: str, server: Server) -> RunEngine:
    async def is_alive(owner: str) -> bool:
        return False

    return DbosEngine(place, owner, is_alive, lambda: server.bounds, server)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
async def test_the_local_engine_keeps(law: Law) -> None:
    async with serving(local) as server:
        await law(server)


async def test_dbos_keeps_them_all_in_a_file(tmp_path: Path) -> None:
    async with serving(partial(dbos, place_of(None, tmp_path), "one")) as server:
        for law in LAWS:
            await law(server)
            await server.end_all()


@pytest.mark.skipif(not POSTGRES, reason="no Postgres server")
async def test_dbos_keeps_them_all_in_postgres(database: Database, tmp_path: Path) -> None:
    found = place_of(journal_url(database), tmp_path)
    async with serving(partial(dbos, found, "one")) as server:
        for law in LAWS:
            await law(server)
            await server.end_all()


async def test_a_server_that_died_keeps_no_place(tmp_path: Path) -> None:
    place = place_of(None, tmp_path)
    async with serving(partial(dbos, place, "dead")) as server:
        await server.offer(legs("ann-1"))
        await server.begins("ann-1")
    async with serving(partial(dbos, place, "next")) as server:
        await server.bound(Bounds(max_runs=1))
        await server.offer(legs("ann-2"))
        assert await server.engine.offered(legs("ann-1", "ann-2")) == {"ann-2"}
        await server.begins("ann-2")
        assert not await server.engine.offer(legs("ann-1")[0])
        await server.engine.offer(replace(legs("ann-1")[0], attempt=2))
        await server.end("ann-2")
        await server.begins("ann-1")


async def test_servers_of_two_versions_and_with_two_times_lose_no_leg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(None, tmp_path)
    (first,) = legs("ann-1")
    with monkeypatch.context() as older:
        older.setattr(dbos_runs, "_VERSION", "legs-0")
        async with serving(partial(dbos, place, "older"), Server(Bounds(workers=0))) as server:
            await server.offer([first])
    async with serving(partial(dbos, place, "newer")) as server:
        assert await server.engine.offered([first]) == {"ann-1"}  # an older server may have it
        monkeypatch.setattr(dbos_runs, "_OTHERS_SECONDS", 0.0)
        assert await server.engine.offered([first]) == set()
        assert not await server.engine.offer(first)
        await server.offer([replace(first, attempt=2)])
        await server.begins("ann-1")
        with monkeypatch.context() as ahead:
            ahead.setattr(time, "time", partial(sum, (time.time(), 3_600)))
            await server.offer(legs("ann-2", delay=0.1))
            assert await server.engine.offered(legs("ann-2")) == {"ann-2"}
        await server.begins("ann-2")


async def test_a_later_attempt_of_a_run_that_is_let_go_of_is_not_forgotten() -> None:
    async with serving(local) as server:
        (first,) = legs("ann-1")
        await server.offer([first])
        await server.begins("ann-1")
        await server.offer([replace(first, attempt=2)])
        server.live["ann-1"].set()
        await server.until(partial(server.has_begun, 2))


async def test_a_server_without_workers_leaves_runs_to_the_others(tmp_path: Path) -> None:
    place = place_of(None, tmp_path)
    idle = Server(Bounds(workers=0))
    async with serving(partial(dbos, place, "idle"), idle):
        await idle.offer(legs("ann-1"))
        assert await idle.engine.offered(legs("ann-1")) == {"ann-1"}
    async with serving(partial(dbos, place, "working")) as server:
        await server.begins("ann-1")
    assert not idle.begun


async def test_an_owner_with_a_better_priority_goes_first() -> None:
    async with serving(local) as server:
        await server.bound(Bounds(workers=1, priorities={"cid": 1, "ann": 9}))
        await server.offer(legs("ann-1"))
        await server.begins("ann-1")
        await server.offer(legs("ann-2", "ben-1", "cid-1"))
        for number, run_id in enumerate(("ann-1", "cid-1", "ben-1", "ann-2"), 1):
            await server.until(partial(server.has_begun, number))
            assert server.begun[-1] == run_id
            await server.end(run_id)


async def test_runs_begin_no_faster_than_the_rate_of_their_owner() -> None:
    now = 0.0
    server = Server(Bounds(per_minute=2))
    server.engine = LocalEngine(lambda: server.bounds, server, lambda: now)
    async with anyio.create_task_group() as group:
        group.start_soon(server.engine.serve, server.carry)
        await server.offer(legs("ann-1", "ann-2", "ann-3", "ben-1"))
        await server.begins("ann-1", "ann-2", "ben-1")
        assert not server.engine.admits(legs("ann-4")[0])
        now = 61.0
        server.engine.room_changed()
        await server.begins("ann-3")
        group.cancel_scope.cancel()


@pytest.mark.parametrize("bounds", [Bounds(max_runs=1), Bounds(workers=1)])
async def test_a_queued_run_costs_nothing_after_a_minute_at_the_rate_of_its_owner(
    bounds: Bounds,
) -> None:
    now, looks = 0.0, 0

    class Watched(Server):
        def working(self, owner: str | None = None, *, tasks: bool = False) -> Collection[str]:
            nonlocal looks
            looks += 1
            return super().working(owner, tasks=tasks)

    server = Watched(replace(bounds, per_minute=5))
    server.engine = LocalEngine(lambda: server.bounds, server, lambda: now)
    async with anyio.create_task_group() as group:
        group.start_soon(server.engine.serve, server.carry)
        await server.offer(legs("ann-1", "ann-2"))
        await server.begins("ann-1")
        now = 61.0
        server.engine.room_changed()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        before, looks = looks, 0
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert (before > 0, looks) == (True, 0)
        await server.end("ann-1")
        await server.begins("ann-2")
        group.cancel_scope.cancel()


async def test_an_admitted_run_has_its_place_while_it_is_about_to_start() -> None:
    server = Server(Bounds(workers=1))
    engine = LocalEngine(lambda: server.bounds, server)
    first, second = legs("ann-1", "ben-1")
    assert engine.admits(first)
    assert not engine.admits(second)
    engine.started("ann-1")  # it could not start
    assert engine.admits(second)


async def test_a_server_that_stops_begins_nothing() -> None:
    async with serving(local) as server:
        await server.bound(Bounds(workers=1))
        await server.offer(legs("ann-1", "ann-2"))
        await server.begins("ann-1")
        await server.engine.drain()
        await server.end("ann-1")
        await anyio.wait_all_tasks_blocked()
        assert server.begun == ["ann-1"]
        assert not server.engine.admits(legs("ben-1")[0])


@pytest.mark.parametrize(
    ("journal", "url", "schema"),
    [
        (
            "postgresql://ann:s%40cret@db:5433/agent?schema=x&sslmode=require",
            "postgresql://ann:s%40cret@db:5433/agent?sslmode=require",
            "x_engine",
        ),
        ("postgresql://ann@db", "postgresql://ann@db/ann", "deep_agent_engine"),
        (
            "postgresql://ann@/agent?host=/run/postgresql",
            "postgresql://ann@/agent?host=%2Frun%2Fpostgresql",
            "deep_agent_engine",
        ),
    ],
)
def test_the_tables_are_beside_the_journal(
    journal: str, url: str, schema: str, tmp_path: Path
) -> None:
    assert place_of(journal, tmp_path) == Place(url, schema)
    assert place_of("redis://host:6379/0", tmp_path).url.startswith("sqlite:///")
