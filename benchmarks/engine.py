"""Cost of a shared engine: three replicas on one Postgres journal that take runs from one queue.

The processor time of runs is compared with that of replicas without the engine, which execute their
own runs. More measurements with the engine: how long a run waits for an idle replica; the cost of
idle replicas; whether a limit of two runs per user holds across all replicas; how long another
user's first run waits behind 500 runs of the first user; and the memory of 10,000 queued runs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.client import REPO, cpu_seconds
from benchmarks.own_postgres import own_postgres
from benchmarks.replica_trio import Effects
from benchmarks.replica_work import EFFECTS, PAUSE
from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer

__all__ = ["run"]

REPLICAS = 3
LOAD = 150
WORKERS = 16
ROUNDS = 6
QUOTA = 500
QUEUED = 10_000
PATIENCE = 600.0


class _Trio:
    """Three replicas, each in its own process."""

    def __init__(self, conninfo: str, place: Path, engine: str, pause: float, **more: Any) -> None:
        found = conninfo_to_dict(conninfo)
        schema = f"s{uuid4().hex[:12]}"
        server = f"{found['user']}@{found['host']}:{found.get('port', 5432)}"
        self.journal_schema = f"{schema}_journal"
        self.conninfo = conninfo
        self.effects = Effects(place / f"{schema}.log")
        env = {**os.environ, EFFECTS: str(self.effects.file), PAUSE: str(pause)}
        self._processes: list[subprocess.Popen[str]] = []
        for number in range(REPLICAS):
            flags = {
                "transport": "http",
                "journal": f"postgresql://{server}/{found['dbname']}?schema={schema}",
                "replicas": True,
                "engine": engine,
                "state_dir": str(place / f"{schema}-{number}"),
                "queue_size": 2 * QUEUED,
                **more,
            }
            command = [sys.executable, "-m", "benchmarks.engine_work", json.dumps(flags)]
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=env,
                    cwd=REPO,
                )
            )
        for number in range(REPLICAS):
            self._answer(number)

    def _ask(self, number: int, order: Mapping[str, Any]) -> None:
        stdin = self._processes[number].stdin
        assert stdin is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()

    def _answer(self, number: int) -> dict[str, Any]:
        stdout = self._processes[number].stdout
        assert stdout is not None
        return json.loads(stdout.readline())

    def start(
        self, count: int, goal: str, principal: str, *, replicas: int = REPLICAS
    ) -> list[str]:
        """Start runs through this number of replicas concurrently; return their ids."""
        for number in range(replicas):
            share = count // replicas + (number < count % replicas)
            self._ask(number, {"start": share, "goal": goal, "as": principal})
        return [one for number in range(replicas) for one in self._answer(number)["ids"]]

    def processor_seconds(self) -> float:
        """Return the processor time of all replicas so far (Linux)."""
        return sum(cpu_seconds(one.pid) for one in self._processes)

    def memory(self) -> float:
        """Return the resident MiB of the largest replica."""
        for number in range(REPLICAS):
            self._ask(number, {"memory": True})
        return max(self._answer(number)["mib"] for number in range(REPLICAS))

    def until(self, text: str, wanted: Callable[[int], bool]) -> None:
        """Wait until `wanted` accepts the number of runs that match an SQL condition."""
        until = time.monotonic() + PATIENCE
        statement = f'SELECT count(*) FROM "{self.journal_schema}".runs WHERE {text}'
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            while True:
                row = conn.execute(statement.encode()).fetchone()
                if row is not None and wanted(row[0]):
                    return
                if time.monotonic() > until:
                    raise TimeoutError(f"{text}: {row}")
                time.sleep(0.02)

    def until_done(self, count: int) -> None:
        """Wait until this number of runs are done."""
        self.until("status = 'done'", lambda found: found >= count)

    def close(self) -> None:
        for one in self._processes:
            if one.stdin is not None:
                one.stdin.close()
        for one in self._processes:
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
            if one.stdout is not None:
                one.stdout.close()


@contextmanager
def _trio(
    conninfo: str, place: Path, engine: str, pause: float = 0.0, **more: Any
) -> Generator[_Trio]:
    trio = _Trio(conninfo, place, engine, pause, **more)
    try:
        yield trio
    finally:
        trio.close()


def run(rounds: int = 2) -> Report:
    """Measure everything; `rounds` rounds for throughput."""
    measures: dict[str, dict[str, float | int | None]] = {}
    with tempfile.TemporaryDirectory() as folder, own_postgres() as conninfo:
        place = Path(folder)
        rates: dict[str, list[float]] = {"local": [], "dbos": []}
        costs: dict[str, list[float]] = {"local": [], "dbos": []}
        for _ in range(rounds):
            for engine in rates:
                rate, cost = _load(conninfo, place, engine)
                rates[engine].append(rate)
                costs[engine].append(cost)
        with _trio(conninfo, place, "dbos", max_runs=1_000) as trio:
            commits = _idle_commits(trio)
            waits = anyio.run(_dispatch, trio)
        most, behind = _quota(conninfo, place)
        memory = _queued(conninfo, place)
    ratio = statistics.median(costs["dbos"]) / statistics.median(costs["local"])
    measures["runs a second, no engine"] = spread(rates["local"])
    measures["runs a second, engine"] = spread(rates["dbos"])
    measures["processor time of a run, no engine, ms"] = spread(costs["local"])
    measures["processor time of a run, engine, ms"] = spread(costs["dbos"])
    measures["dispatch to an idle replica, s"] = {**spread(waits), "p95": _p95(waits)}
    bars = [
        Bar("processor time of a run, engine / no engine", ratio, 1 / 0.65, "x"),
        Bar("dispatch to an idle replica, p95", _p95(waits), 0.25, "s"),
        Bar("commits of an idle replica", commits, 30, "/s"),
        Bar(f"runs of one user at once, of {QUOTA}, bound 2", most, 2, "runs"),
        Bar(f"first run of another user behind {QUOTA}", behind, 0.5, "s"),
        Bar(f"memory of {QUEUED:,} queued runs", memory, 50, "MiB"),
    ]
    return Report("engine", measures, bars)


def _load(conninfo: str, place: Path, engine: str) -> tuple[float, float]:
    """Run a load on all replicas; return runs per second, and processor ms per run."""
    with _trio(conninfo, place, engine, max_runs=1_000, workers=WORKERS) as trio:
        trio.start(REPLICAS, "work 1", "ann")
        trio.until_done(REPLICAS)
        begun, used = time.monotonic(), trio.processor_seconds()
        trio.start(LOAD, f"work {ROUNDS}", "ann")
        trio.until_done(LOAD + REPLICAS)
        used = trio.processor_seconds() - used
        return LOAD / (time.monotonic() - begun), 1_000 * used / LOAD


def _idle_commits(trio: _Trio, seconds: float = 10.0) -> float:
    """Return the commits per second of an idle replica."""
    text = b"SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    time.sleep(3)
    with psycopg.connect(trio.conninfo, autocommit=True) as conn:

        def commits() -> int:
            conn.execute(b"SELECT pg_stat_clear_snapshot()")
            row = conn.execute(text).fetchone()
            assert row is not None
            return row[0]

        before = commits()
        time.sleep(seconds)
        return (commits() - before) / seconds / REPLICAS


async def _dispatch(trio: _Trio, times: int = 60) -> list[float]:
    """Return the waiting times of runs on idle replicas."""
    waits: list[float] = []
    async with PostgresCheckpointer(trio.conninfo, schema=trio.journal_schema) as journal:
        for number in range(times):
            (run_id,) = trio.start(1, "end", "ann", replicas=1)
            trio.until_done(number + 1)
            queued, begun, *_ = await journal.events(run_id, limit=2)
            waits.append(begun.created_at - queued.created_at)
    return waits


def _quota(conninfo: str, place: Path) -> tuple[int, float]:
    """Return the maximum concurrent runs of one user, and the wait of another user's run."""
    with _trio(conninfo, place, "dbos", pause=0.02, max_runs=2) as trio:
        trio.start(REPLICAS, "end", "ann")
        trio.until_done(REPLICAS)
        trio.start(QUOTA, "nap 0.02", "ann")
        (other,) = trio.start(1, "end", "ben", replicas=1)
        trio.until_done(QUOTA + REPLICAS + 1)
        at_once = most = 0
        for one in sorted(trio.effects.all(), key=lambda one: (one.at, one.begins)):
            at_once += 1 if one.begins else -1
            most = max(most, at_once)
        return most, anyio.run(_wait_of, trio, other)


async def _wait_of(trio: _Trio, run_id: str) -> float:
    async with PostgresCheckpointer(trio.conninfo, schema=trio.journal_schema) as journal:
        queued, begun, *_ = await journal.events(run_id, limit=2)
    return begun.created_at - queued.created_at


def _queued(conninfo: str, place: Path) -> float:
    """Return the MiB by which queued runs make the largest replica grow."""
    with _trio(conninfo, place, "dbos", max_runs=1) as trio:
        trio.start(REPLICAS * 20, "nap 3600", "ann")
        before = trio.memory()
        trio.start(QUEUED, "nap 3600", "ann")
        trio.until("status = 'queued'", lambda found: found >= QUEUED)
        time.sleep(12)  # two passes of the reconciler
        return trio.memory() - before


def _p95(values: Sequence[float]) -> float:
    return round(sorted(values)[int(0.95 * (len(values) - 1))], 4)
