"""Failure test of three replicas on one Postgres: killed, stopped, disconnected, restarted.

Each round starts runs through all three replicas, disturbs one of them or the database at a random
moment, and waits for all runs through the others. Then the log of tools is compared with the
journal: all runs must be done, no call that must run once ran twice, and no call started again
after its result was stored. Takeover is the time from the failure to the first call of a run in
another process.

More measurements: the delay of calls that wait through another replica; the cost of replicas while
runs wait for answers and calls wait for runs; a commit with a fence compared with one without; and
a driven call over HTTP with the journal in Postgres compared with SQLite.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.http_client import HttpClient, HttpServerProcess
from benchmarks.own_postgres import own_postgres, restart
from benchmarks.replica_idle import CALLS, idle
from benchmarks.replica_trio import Fleet, Replica, Start, replicas, started
from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.checkpoint.base import Batch, Fence, Run, RunEvent
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.server.replicas.census import SILENT_SECONDS

__all__ = ["ENGINE_KINDS", "KINDS", "Outcome", "disturbed", "run"]

NAMES = ("a", "b", "c")
RUNS = 9
GOAL = "work 8"
PATIENCE = 90.0


@dataclass
class Outcome:
    """The results of the rounds of one kind."""

    runs: int = 0
    done: int = 0
    failed: int = 0
    once_repeated: int = 0
    run_again: int = 0
    cut: int = 0
    takeovers: list[float] = field(default_factory=list[float])


def run(seeds: int = 10) -> Report:
    """Run `seeds` rounds of each kind, and all other measurements."""
    with tempfile.TemporaryDirectory() as folder, own_postgres() as conninfo:
        return anyio.run(_all, Path(folder), conninfo, seeds)


async def _all(folder: Path, conninfo: str, seeds: int) -> Report:
    measures: dict[str, dict[str, float | int | None]] = {}
    total = Outcome()
    await anyio.sleep(SILENT_SECONDS)  # no replica counts as dead before
    for kind in KINDS:
        outcome = Outcome()
        for seed in range(seeds):
            place = folder / f"{kind}-{seed}"
            place.mkdir()
            await disturbed(place, conninfo, kind, seed, outcome)
            print(f"{kind} {seed}: {outcome}", file=sys.stderr)
        measures[kind] = {
            "runs": outcome.runs,
            "done": outcome.done,
            "once cut off": outcome.cut,
            **({} if not outcome.takeovers else _times(outcome.takeovers)),
        }
        for name in ("runs", "done", "failed", "once_repeated", "run_again"):
            setattr(total, name, getattr(total, name) + getattr(outcome, name))
        if kind in ("kill", "roll"):
            total.takeovers += outcome.takeovers
    woken = await _woken(folder, conninfo)
    measures["woken later on another replica, s"] = _times(woken)
    processor = await idle(folder, _url(conninfo))
    for waiting, used in processor.items():
        measures[f"processor, {waiting}, ms/s"] = spread(used)
    fenced, plain = await _fences(conninfo)
    measures["commit with a fence, ms"] = spread(fenced)
    measures["commit without, ms"] = spread(plain)
    postgres, sqlite = await _driven(folder, conninfo)
    measures["driven call over HTTP, Postgres, ms"] = spread(postgres)
    measures["driven call over HTTP, SQLite, ms"] = spread(sqlite)
    bars = [
        Bar("runs that did not end well", total.runs - total.done, 0, "runs"),
        Bar("runs failed", total.failed, 0, "runs"),
        Bar("calls that must run once and ran twice", total.once_repeated, 0, "calls"),
        Bar("calls begun again after their result was stored", total.run_again, 0, "calls"),
        Bar("takeover of a killed or stopped server, p95", _p95(total.takeovers), 5.0, "s"),
        Bar("woken later on another replica, p95", _p95(woken), 0.1, "s"),
        Bar("processor, " + CALLS, statistics.median(processor[CALLS]), 200, "ms/s"),
        Bar("commit with a fence", _ratio(fenced, plain), 1.05, "x"),
        Bar("driven call over HTTP, Postgres / SQLite", _ratio(postgres, sqlite), 2.0, "x"),
    ]
    return Report("replicas", measures, bars)


def _times(values: Sequence[float]) -> dict[str, float | int | None]:
    return {**spread(values), "p95": round(_p95(values), 4)}


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else 0.0


def _ratio(those: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(those) / statistics.median(others)


# --- rounds ------------------------------------------------------------------------------------

Disturb = Callable[[Fleet, Replica, random.Random, str], Coroutine[Any, Any, None]]


async def _kill(fleet: Fleet, victim: Replica, _: random.Random, __: str) -> None:
    victim.kill()


async def _stand_still(_: Fleet, victim: Replica, chance: random.Random, __: str) -> None:
    victim.stop()
    await anyio.sleep(chance.uniform(17, 22))
    victim.go_on()


async def _drop(_: Fleet, __: Replica, ___: random.Random, conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as conn:
        for _time in range(3):
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
            await anyio.sleep(0.3)


async def _restart(_: Fleet, __: Replica, ___: random.Random, conninfo: str) -> None:
    await anyio.to_thread.run_sync(restart, conninfo)


async def _roll(fleet: Fleet, _: Replica, __: random.Random, ___: str) -> None:
    for name in [*fleet.all]:
        await anyio.to_thread.run_sync(fleet.all[name].end)
        await anyio.to_thread.run_sync(fleet.begin, f"{name}+")


async def _drop_engine(fleet: Fleet, _: Replica, __: random.Random, conninfo: str) -> None:
    schema = fleet.url.rpartition("=")[2]
    with psycopg.connect(conninfo, autocommit=True) as conn:
        conn.execute(f'DROP SCHEMA "{schema}_engine" CASCADE'.encode())


KINDS: dict[str, Disturb] = {
    "kill": _kill,
    "stand still": _stand_still,
    "drop connections": _drop,
    "restart of the database": _restart,
    "roll": _roll,
}
"""Kinds of failures, for all engines."""

ENGINE_KINDS: dict[str, Disturb] = {**KINDS, "drop engine": _drop_engine}
"""Kinds of failures for an engine with its own tables."""


async def disturbed(
    place: Path,
    conninfo: str,
    kind: str,
    seed: int,
    outcome: Outcome,
    start: Start = started,
    flags: Sequence[str] = (),
) -> None:
    """Run one round: disturb working replicas once, and record the results.

    Args:
        place: Directory for their files.
        conninfo: Connection string of a server of `own_postgres`.
        kind: Kind of failure, from `ENGINE_KINDS`.
        seed: Seed for the choice of replica and time.
        outcome: Receives the results.
        start: Starts a process.
        flags: Additional options of the servers.
    """
    chance, disturb = random.Random(f"{kind} {seed}"), ENGINE_KINDS[kind]
    env = {"REPLICA_PAUSE": "0.05"}
    with replicas(place, _url(conninfo), NAMES, env=env, start=start, flags=flags) as fleet:
        begun: list[str] = []
        for number in range(RUNS):
            async with _client(fleet.all[NAMES[number % 3]]) as client:
                made = await client.call(
                    "task", {"goal": GOAL, "thread_id": "new", "wait_seconds": 0}
                )
                begun.append(made["structuredContent"]["run_id"])
        victim = fleet.all[chance.choice(NAMES)]
        await anyio.sleep(chance.uniform(0.0, 0.5))
        at = time.monotonic()
        ended: list[dict[str, Any]] = []
        async with anyio.create_task_group() as group:
            group.start_soon(disturb, fleet, victim, chance, conninfo)
            if disturb is not _roll:
                ended += await _ends(fleet, begun, victim)
        if disturb is _roll:
            ended += await _ends(fleet, begun, None)
        outcome.runs += len(begun)
        outcome.done += sum(one["status"] == "done" for one in ended)
        outcome.failed += sum(one["status"] == "failed" for one in ended)
        outcome.once_repeated += len(fleet.effects.repeated("pay"))
        outcome.cut += len(fleet.effects.begun("pay")) - sum(
            one.tool == "pay" for one in fleet.effects.ended()
        )
        async with _client(_another(fleet, victim)) as client:
            for run_id in begun:
                outcome.run_again += await _run_again(client, run_id)
        if disturb in (_kill, _stand_still):
            outcome.takeovers += _takeovers(fleet, victim, at)


def _another(fleet: Fleet, victim: Replica | None) -> Replica:
    living = [one for one in fleet.all.values() if one.process.poll() is None]
    return next(one for one in living if one is not victim)


async def _ends(fleet: Fleet, begun: Sequence[str], victim: Replica | None) -> list[dict[str, Any]]:
    """Wait for all runs through the living replicas."""
    ended: list[dict[str, Any]] = []
    for run_id in begun:
        with anyio.fail_after(PATIENCE):
            while True:
                async with _client(_another(fleet, victim)) as client:
                    found = await client.call("wait", {"run_id": run_id, "wait_seconds": 20})
                if found["structuredContent"]["status"] not in ("queued", "running"):
                    ended.append(found["structuredContent"])
                    break
    return ended


def _takeovers(fleet: Fleet, victim: Replica, at: float) -> list[float]:
    """Return the seconds until each run of the victim made a call in another process."""
    every = fleet.effects.begun()
    owned = {one.run_id for one in every if one.pid == victim.process.pid and one.at < at}
    found: dict[str, float] = {}
    for one in every:
        if one.run_id in owned and one.pid != victim.process.pid and one.at > at:
            found.setdefault(one.run_id, one.at - at)
    return [*found.values()]


async def _run_again(client: HttpClient, run_id: str) -> int:
    """Return the number of calls of a run that started after their result was stored."""
    stored: set[object] = set()
    again, after = 0, 0
    while True:
        asked = {"run_id": run_id, "events_after": after, "wait_seconds": 0}
        page = (await client.call("wait", asked))["structuredContent"]
        for one in page.get("events", ()):
            again += one.get("event") == "tool_start" and one.get("tool_call_id") in stored
            if one.get("event") == "tool_end":
                stored.add(one.get("tool_call_id"))
        if not page.get("events_more"):
            return again
        after = page["events_next"]


# --- the rest ----------------------------------------------------------------------------------


async def _woken(folder: Path, conninfo: str, times: int = 40) -> list[float]:
    """Return the delays of calls that wait for runs of another replica."""
    place = folder / "woken"
    place.mkdir()
    later: list[float] = []
    with replicas(place, _url(conninfo), NAMES) as fleet:
        async with AsyncExitStack() as stack:
            those = [await stack.enter_async_context(_client(one)) for one in fleet.all.values()]
            for _ in range(times):
                made = await those[0].call(
                    "task", {"goal": "nap 0.1", "thread_id": "new", "wait_seconds": 0}
                )
                run_id = made["structuredContent"]["run_id"]
                ends: dict[int, float] = {}

                async def wait(number: int, run_id: str, ends: dict[int, float]) -> None:
                    await those[number].call("wait", {"run_id": run_id, "wait_seconds": 20})
                    ends[number] = time.monotonic()

                async with anyio.create_task_group() as group:
                    for number in range(3):
                        group.start_soon(wait, number, run_id, ends)
                later += [max(0.0, ends[number] - ends[0]) for number in (1, 2)]
    return later


async def _fences(conninfo: str, times: int = 300) -> tuple[list[float], list[float]]:
    """Return the milliseconds of commits with a fence and without, measured alternately."""
    took: dict[bool, list[float]] = {True: [], False: []}
    async with PostgresCheckpointer(conninfo, schema="fences") as journal:
        for name in ("fenced", "plain"):
            await journal.commit(Batch(name, runs=[Run(f"run_{name}", name, "delegate", "main")]))
        for number in range(times):
            for is_fenced in random.sample((True, False), 2):
                name = "fenced" if is_fenced else "plain"
                run_id = f"run_{name}"
                fences = [Fence(run_id, 1)] if is_fenced else []
                event = RunEvent(run_id, "custom", ("main",), {"number": number})
                begin = time.perf_counter()
                await journal.commit(Batch(name, events=[event], fences=fences))
                took[is_fenced].append(1_000 * (time.perf_counter() - begin))
    return took[True], took[False]


async def _driven(
    folder: Path, conninfo: str, rounds: int = 5, calls: int = 100
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of driven calls with the journal in Postgres and in SQLite."""
    flags = {
        "postgres": ("--replicas", "--journal", _url(conninfo)),
        "sqlite": (),
    }
    took: dict[str, list[float]] = {name: [] for name in flags}
    async with AsyncExitStack() as stack:
        writers: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {}
        for name, more in flags.items():
            command = [
                *(sys.executable, "-m", "deep_agent_mcp", "serve", "--transport", "http"),
                *("--port", "0", "--state-dir", str(folder / name), *more),
            ]
            server = stack.enter_context(HttpServerProcess(command))
            client = await stack.enter_async_context(HttpClient(server.url, "modern"))
            writers[name] = await _writer(client)
        for at in range(rounds + 1):
            for name, write in writers.items():
                for _ in range(calls):
                    begin = time.perf_counter()
                    await write()
                    if at:  # the first round warms up
                        took[name].append(1_000 * (time.perf_counter() - begin))
    return took["postgres"], took["sqlite"]


async def _writer(client: HttpClient) -> Callable[[], Coroutine[Any, Any, object]]:
    numbers = count()
    made = await client.call("write_file", {"path": "/f.txt", "content": "begin"})
    thread = made["structuredContent"]["thread_id"]

    async def write() -> object:
        content = f"{next(numbers)}\n" + "one line of text\n" * 8
        arguments = {"path": "/f.txt", "content": content, "thread_id": thread}
        return await client.call("write_file", arguments)

    return write


@asynccontextmanager
async def _client(replica: Replica) -> AsyncGenerator[HttpClient]:
    client = HttpClient(replica.url, "modern")
    with anyio.fail_after(30):
        await client.open()
    try:
        yield client
    finally:
        await client.aclose()


def _url(conninfo: str) -> str:
    """Return the URL of a new journal."""
    found = conninfo_to_dict(conninfo)
    place = f"{found['user']}@{found['host']}:{found.get('port', 5432)}/{found['dbname']}"
    return f"postgresql://{place}?schema=s{uuid4().hex[:12]}"
