"""The journal on disk: its size, and the time to open and list a thread and to commit a step.

Threads are created by the deep agent with a scripted model: each round is an answer with a call,
and a result of 1 KB. New data is the total size of all values from the loop. Commits are compared
with raw SQLite that writes the same values, one row each, alternately, on the same disk.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiosqlite
import anyio

from benchmarks.bare_loop import ScriptModel
from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.agent import Agent, RunOptions
from deep_agent_mcp.harness.checkpoint.admission import Clock
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpoint,
    EventLimits,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import decompress
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite.committer import Committer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages import message as messages
from deep_agent_mcp.harness.tools.tool import Tool, tool

__all__ = ["run"]

RESULT = 1_000
"""Bytes of a tool's result."""
LIMITS = Limits(model_calls=1_000_000, tool_calls=1_000_000)
RUNS = 100
"""Number of runs that commit concurrently."""

Measures = dict[str, dict[str, float | int | None]]
MakeResult = Callable[[int], str]


def run(rounds: int = 5) -> Report:
    """Measure everything; times are measured `rounds` times."""
    measures: Measures = {}
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        bars += anyio.run(_sizes, place, measures)
        bars += anyio.run(_reading, place, measures, rounds)
        bars += anyio.run(_rewriting, place, measures, rounds)
        bars += anyio.run(_steps, place, measures, rounds)
        bars += anyio.run(_single_commits, place, measures, rounds)
        bars += anyio.run(_shared_commits, place, measures, rounds)
    return Report("journal", measures, bars)


# --- threads -------------------------------------------------------------------------------


class Groups(Committer):
    """A committer that counts its transactions."""

    made = 0

    def _commit_queued(self, conn: sqlite3.Connection) -> None:
        self.made += bool(self._queue)
        super()._commit_queued(conn)


class Grouping(SqliteCheckpointer):
    """A journal that counts its transactions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.groups = self._committer = Groups(self.path, Clock(), EventLimits())


class Counting(SqliteCheckpointer):
    """A journal that counts the bytes of all values."""

    given = 0

    async def commit(self, batch: Batch) -> None:
        self.given += sum(len(one.value) for task in batch.writes for one in task.writes)
        await super().commit(batch)


WORDS = Path(messages.__file__).read_text(encoding="utf-8").split()


def text(number: int) -> str:
    """Return prose-like text."""
    return " ".join(random.Random(number).choices(WORDS, k=RESULT))[:RESULT]


def noise(number: int) -> str:
    """Return JSON text that is as hard to compress as possible."""
    return b64encode(random.Random(number).randbytes(RESULT * 3 // 4)).decode()


def _tool(make: MakeResult) -> Tool:
    @tool
    async def noop(number: int) -> str:
        """Return something."""
        return make(number)

    return noop


def _agent(journal: SqliteCheckpointer, make: MakeResult = text) -> Agent:
    return create_deep_agent(ScriptModel(), [_tool(make)], checkpointer=journal)


async def _grown(path: Path, make: MakeResult, rounds: int) -> tuple[int, int]:
    """Create a thread `t` with `rounds` rounds; return the bytes of its values and of the file."""
    async with Counting(path) as journal:
        result = await _agent(journal, make).ainvoke(
            f"rounds-0-{rounds}", thread_id="t", options=RunOptions(limits=LIMITS)
        )
        if result.run.status != "done":
            raise RuntimeError(f"a run ended as {result.run.status}: {result.run.reason}")
    return journal.given, os.stat(path).st_size


# --- measures ------------------------------------------------------------------------------


async def _sizes(folder: Path, measures: Measures) -> list[Bar]:
    sizes: dict[tuple[str, int], tuple[int, int]] = {}
    for label, make in (("text", text), ("random", noise)):
        for rounds in (500, 1_000, 2_000):
            path = folder / f"{label}-{rounds}.db"
            new, stored = sizes[label, rounds] = await _grown(path, make, rounds)
            measures[f"{label}, {rounds:,} rounds, bytes"] = {
                "new": new,
                "stored": stored,
                "stored/new": round(stored / new, 3),
            }
    bars = [
        Bar(f"1,000 rounds, {label}: stored / new", stored / new, limit, "x")
        for label, limit in (("text", 1.0), ("random", 1.5))
        for new, stored in [sizes[label, 1_000]]
    ]
    return bars + [
        Bar(f"{label}: 2,000 rounds / 1,000", ratio, 2.1, "x")
        for label in ("text", "random")
        for ratio in [sizes[label, 2_000][1] / sizes[label, 1_000][1]]
    ]


async def _reading(folder: Path, measures: Measures, rounds: int) -> list[Bar]:
    """Open and list the thread of 500 rounds: 1,002 messages, 1,003 checkpoints.

    Opening the head is compared with the minimum: read its rows, decompress them, and parse each
    message into the same object. The measure is processor time, because other programs affect it
    less.
    """
    series: dict[str, list[float]] = {}
    ratios: list[float] = []
    async with SqliteCheckpointer(folder / "text-500.db") as journal:
        page = await journal.history("t", limit=2_000)
        floor = await _read_and_parsed(journal)
        places = {
            f"checkpoint {part} % back": page[len(page) * part // 100].id
            for part in (0, 30, 60, 90)
        }
        for _ in range(4 * rounds):
            fresh = _agent(journal)
            used = time.process_time()
            await _time(series, "head, messages", lambda fresh=fresh: fresh.get_state("t"))
            between = time.process_time()
            await _time(series, "head, its rows read and parsed", floor)
            ratios.append((between - used) / (time.process_time() - between))
            await _time(series, "head, writes", lambda: journal.load("t"))
            await _time(series, "history, 50", lambda: journal.history("t", limit=50))
            await _time(
                series, "history, last 50", lambda: journal.history("t", before=page[-51].id)
            )
            for label, place in places.items():
                await _time(series, label, lambda place=place: journal.load("t", "", place))
    for label, values in series.items():
        measures[f"{label}, ms"] = spread(values)
    medians = {label: statistics.median(values) for label, values in series.items()}
    listed = max(medians["history, 50"], medians["history, last 50"])
    oldest = max(medians[label] for label in places) / medians["head, writes"]
    return [
        Bar("open the head of 1,000 messages", medians["head, messages"], 10, "ms"),
        Bar("open the head / reading and parsing its rows", statistics.median(ratios), 2, "x"),
        Bar("history page of 50", listed, 20, "ms"),
        Bar("slowest old checkpoint / head", oldest, 3, "x"),
    ]


async def _read_and_parsed(journal: SqliteCheckpointer) -> Callable[[], Any]:
    """Return a function that reads and decompresses a thread's rows and parses its messages."""
    agent = _agent(journal)
    channel = agent.definition.schema["messages"]
    found = await agent.get_state("t")
    stored = [channel.encode([one]) for one in found.values["messages"]]
    conn = sqlite3.connect(journal.path, isolation_level=None)

    async def read() -> None:
        bodies = conn.execute(BODIES).fetchall()
        assert sum([len(decompress(body)) for (body,) in bodies]) > sum(map(len, stored))
        for one in stored:
            channel.decode(one)

    return read


async def _rewriting(folder: Path, measures: Measures, rounds: int) -> list[Bar]:
    """Compare opening a thread whose file was written 1,000 times with one written once."""
    series: dict[str, list[float]] = {}
    times = {"file written once": 1, "file written 1,000 times": 1_000}
    for label, often in times.items():
        async with SqliteCheckpointer(folder / f"files-{often}.db") as journal:
            agent = _agent(journal)
            await agent.ainvoke("rounds-0-0", thread_id="t")
            for number in range(often):
                await agent.update_state("t", {"todos": [{"id": "1", "content": text(number) * 9}]})
            for _ in range(4 * rounds):
                fresh = _agent(journal)
                await _time(series, label, lambda fresh=fresh: fresh.get_state("t"))
    for label, values in series.items():
        measures[f"open, {label}, ms"] = spread(values)
    return []


async def _steps(folder: Path, measures: Measures, rounds: int) -> list[Bar]:
    """Store steps on a thread of 5,000 steps and on threads of 50 steps, alternately."""
    series: dict[str, list[float]] = {"N=50": [], "N=5,000": []}
    async with SqliteCheckpointer(folder / "steps.db") as journal:
        long = Steps("long")
        await journal.commit(long.several(5_000))
        for number in range(20 * rounds):
            short = Steps(f"short-{number}")
            await journal.commit(short.several(50))
            for _ in range(5):
                for label, steps in (("N=50", short), ("N=5,000", long)):
                    batch = steps.next()
                    await _time(series, label, lambda batch=batch: journal.commit(batch))
    early, late = (statistics.median(values) for values in series.values())
    for label, values in series.items():
        measures[f"step at {label}, ms"] = spread(values)
    return [Bar("step at N=5,000 / N=50", late / early, 1.2, "x")]


async def _single_commits(folder: Path, measures: Measures, rounds: int) -> list[Bar]:
    """Store steps of one run, each on disk before the next."""
    series: dict[str, list[float]] = {"ours": [], "aiosqlite": []}
    async with (
        SqliteCheckpointer(folder / "single.db") as journal,
        aiosqlite.connect(folder / "single-raw.db", isolation_level=None) as raw,
    ):
        for statement in RAW:
            await raw.execute(statement)
        steps = Steps("t")
        for _ in range(rounds * 200):
            batch = steps.next()
            await _time(series, "ours", lambda batch=batch: journal.commit(batch))
            began = time.perf_counter()
            await raw.execute("BEGIN IMMEDIATE")
            await raw.execute(INSERT, (value_of(batch),))
            await raw.execute("COMMIT")
            series["aiosqlite"].append(1_000 * (time.perf_counter() - began))
    medians = {label: statistics.median(values) for label, values in series.items()}
    for label, values in series.items():
        measures[f"durable step, {label}, ms"] = spread(values)
    return [Bar("durable step: ours / aiosqlite", medians["ours"] / medians["aiosqlite"], 3, "x")]


async def _shared_commits(folder: Path, measures: Measures, rounds: int) -> list[Bar]:
    """Store steps of 100 concurrent runs; raw SQLite stores the same values in equal groups."""
    each = 20
    rates: dict[str, list[float]] = {"ours": [], "sqlite3": []}
    sizes: list[float] = []
    conn = sqlite3.connect(folder / "shared-raw.db", isolation_level=None)
    for statement in RAW:
        conn.execute(statement)
    async with Grouping(folder / "shared.db") as journal:
        for attempt in range(rounds):
            runs = [Steps(f"t{attempt}-{number}") for number in range(RUNS)]
            batches = [[steps.next() for _ in range(each)] for steps in runs]
            journal.groups.made = 0
            rates["ours"].append(RUNS * each / await _shared(journal, batches))
            group = round(RUNS * each / journal.groups.made)
            sizes.append(group)
            values = [value_of(batch) for column in zip(*batches, strict=True) for batch in column]
            rates["sqlite3"].append(RUNS * each / _raw(conn, values, group))
    conn.close()
    for label, series in rates.items():
        measures[f"100 runs, {label}, commits/s"] = spread(series)
    measures["100 runs, commits per transaction"] = spread(sizes)
    raw, ours = (statistics.median(rates[label]) for label in ("sqlite3", "ours"))
    return [Bar("commits/s of 100 runs: sqlite3 / ours", raw / ours, 2, "x")]


async def _shared(journal: SqliteCheckpointer, batches: list[list[Batch]]) -> float:
    async def work(mine: list[Batch]) -> None:
        for batch in mine:
            await journal.commit(batch)

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for mine in batches:
            group.start_soon(work, mine)
    return time.perf_counter() - began


# --- commits -------------------------------------------------------------------------------

RAW = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "CREATE TABLE writes (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
)
BODIES = "SELECT body FROM pages UNION ALL SELECT body FROM checkpoints WHERE body IS NOT NULL"
INSERT = "INSERT INTO writes (value) VALUES (?)"


def _raw(conn: sqlite3.Connection, values: list[bytes], group: int) -> float:
    began = time.perf_counter()
    for first in range(0, len(values), group):
        conn.execute("BEGIN IMMEDIATE")
        for value in values[first : first + group]:
            conn.execute(INSERT, (value,))
        conn.execute("COMMIT")
    return time.perf_counter() - began


@dataclass
class Steps:
    """The steps of one thread, in order, each with a value of 1 KB."""

    thread: str
    parent: str | None = None

    def __post_init__(self) -> None:
        self._numbers = count()

    def next(self) -> Batch:
        number = next(self._numbers)
        place = step_id(self.parent)
        value = f'[{{"content":"{text(number)}","type":"tool"}}]'.encode()
        task = TaskWrites(place, f"toolu_{number:024d}", 0, (StoredWrite("messages", value),))
        made = Checkpoint(
            self.thread, "", place, self.parent, number, "loop", "tools", "model", "run_1"
        )
        self.parent = place
        return Batch(self.thread, writes=[task], checkpoints=[made])

    def several(self, number: int) -> Batch:
        batches = [self.next() for _ in range(number)]
        return Batch(
            self.thread,
            writes=[task for batch in batches for task in batch.writes],
            checkpoints=[made for batch in batches for made in batch.checkpoints],
        )


def value_of(batch: Batch) -> bytes:
    """Return the value of a step of `Steps`."""
    return batch.writes[0].writes[0].value


async def _time(series: dict[str, list[float]], label: str, work: Callable[[], Any]) -> None:
    began = time.perf_counter()
    await work()
    series.setdefault(label, []).append(1_000 * (time.perf_counter() - began))
