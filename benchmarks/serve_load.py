"""Load test with many HTTP clients; each one writes and reads files in one thread after another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from benchmarks.client import ERAS, Era, WrongReply
from benchmarks.http_client import HttpClient, HttpServerProcess
from benchmarks.report import Bar
from benchmarks.startup import ours

__all__ = ["GROWTH_LIMIT", "Load", "measure_load"]

GROWTH_LIMIT = 5.0
"""Maximum growth of resident memory after `SETTLED_SECONDS`, in percent."""

SETTLED_SECONDS = 10.0
"""Seconds until memory is measured; in a short run, a sixth of its time."""

CALL_SECONDS = 30.0
"""An answer that takes longer is an error."""


@dataclass(slots=True)
class Load:
    """The results of the clients."""

    seconds: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])
    memory: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def measures(self, took: float) -> dict[str, dict[str, float | int | None]]:
        ms = [1_000 * value for value in self.seconds]
        cuts = statistics.quantiles(ms, n=100) if len(ms) > 1 else [0.0] * 99
        return {
            "load, ms per call": {
                "median": round(cuts[49], 2),
                "p95": round(cuts[94], 2),
                "p99": round(cuts[98], 2),
                "max": round(max(ms, default=0.0), 2),
                "n": len(ms),
            },
            "load, calls per second": {"median": round(len(ms) / took, 1)},
            "load, errors": {"n": len(self.errors)},
            "load, resident MiB": {
                "min": round(min((mib for _, mib in self.memory), default=0.0), 1),
                "max": round(max((mib for _, mib in self.memory), default=0.0), 1),
            },
        }

    def growth(self, settled: float) -> float:
        """Return the growth after `settled` in percent: median of the last fifth to the first's."""
        values = [mib for at, mib in self.memory if at >= settled]
        if len(values) < 2:
            return 0.0
        fifth = max(1, len(values) // 5)
        first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
        return 100 * (last / first - 1)


def measure_load(
    folder: Path, clients: int, seconds: float
) -> tuple[dict[str, dict[str, float | int | None]], list[Bar]]:
    """Run clients of both eras on our server; return measurements and limits."""
    command = ours(folder / "load", "--transport", "http", "--port", "0")
    with HttpServerProcess(command) as server:
        load = anyio.run(_work, server, clients, seconds)
    example = f" ({load.errors[0][:300]})" if load.errors else ""
    bars = [
        Bar(f"errors of {clients} HTTP clients{example}", float(len(load.errors)), 0.0, "errors"),
        Bar(
            "memory, from the beginning to the end",
            load.growth(min(SETTLED_SECONDS, seconds / 6)),
            GROWTH_LIMIT,
            "%",
        ),
    ]
    return load.measures(seconds), bars


async def _work(server: HttpServerProcess, clients: int, seconds: float) -> Load:
    load = Load()
    async with anyio.create_task_group() as tasks:
        ready: list[anyio.Event] = []
        go = anyio.Event()
        for number in range(clients):
            era = ERAS[number % len(ERAS)]
            ready.append(anyio.Event())
            tasks.start_soon(_one_client, server.url, era, number, load, ready[-1], go)
        for one in ready:
            await one.wait()
        load.seconds.clear()
        go.set()
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            mib = server.resident_mib()
            if mib is not None:
                load.memory.append((passed, mib))
            await anyio.sleep(0.25)
        tasks.cancel_scope.cancel()
    return load


async def _one_client(
    url: str, era: Era, number: int, load: Load, ready: anyio.Event, go: anyio.Event
) -> None:
    try:
        async with HttpClient(url, era) as client:
            ready.set()
            await go.wait()
            for turn in count():
                thread = {"thread_id": "new"}
                for tool, args, wanted in _calls(f"client {number}, turn {turn}"):
                    began = time.perf_counter()
                    with anyio.fail_after(CALL_SECONDS):
                        result = await client.call(tool, {**args, **thread})
                    load.seconds.append(time.perf_counter() - began)
                    if wanted not in str(result):
                        raise WrongReply(f"{tool} lacks {wanted!r}: {result}")
                    if thread["thread_id"] == "new":
                        thread = {"thread_id": result["structuredContent"]["thread_id"]}
    except (WrongReply, OSError, EOFError, TimeoutError) as error:
        load.errors.append(f"{type(error).__name__}: {error}")
    finally:
        ready.set()


def _calls(text: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the calls on one thread: tool, arguments, and what the result must hold."""
    yield "write_file", {"path": "/note.txt", "content": f"{text}\n"}, "/note.txt"
    yield "read_file", {"path": "/note.txt"}, text
    yield "ls", {}, "note.txt"
    yield "write_todos", {"todos": [{"content": text, "status": "in_progress"}]}, text
