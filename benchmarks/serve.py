"""The server from a client's view, compared with the bare SDK: start, latency, load, hot reload.

To compare the transports, the SDK's and ours serve the same no-op of the same bare server. A
read-only call of our server shows the cost of the face.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import anyio

from benchmarks import startup
from benchmarks.client import ERAS, ServerProcess
from benchmarks.http_client import HttpClient, HttpServerProcess
from benchmarks.report import Bar, Report, spread
from benchmarks.serve_load import measure_load
from benchmarks.serve_reload import measure_reload
from benchmarks.startup import BARE, ours

__all__ = ["STDIO_LIMIT", "run"]

STDIO_LIMIT = 1.0
"""Limit for the ratio of our stdio transport to the SDK's, both with the same no-op."""

WARM_UP = 50

BARE_OURS = (*BARE, "--ours")
BARE_HTTP = (*BARE, "http")
BARE_OURS_HTTP = (*BARE, "http", "--ours")

Measures = dict[str, dict[str, float | int | None]]


def run(
    rounds: int = 5,
    calls: int = 200,
    seconds: float = 60.0,
    clients: int = 200,
    skills: int = 1_000,
    saves: int = 60,
) -> Report:
    """Measure everything; both sides of a comparison alternate in `rounds` rounds.

    Args:
        rounds: Number of rounds with `calls` calls of each server; starts are measured three times
            as often.
        calls: Calls per round.
        seconds: Duration of the load test.
        clients: Number of clients in the load test.
        skills: Number of skills in the hot reload test.
        saves: Number of saves in the hot reload test.
    """
    started = startup.run(3 * rounds)
    measures: Measures = {f"start, stdio {name}": row for name, row in started.measures.items()}
    bars = list(started.bars)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measures |= _http_starts(folder, rounds)
        for found, held in (
            _stdio_calls(folder, rounds, calls),
            (anyio.run(_http_calls, folder, rounds, calls), []),
            measure_load(folder, clients, seconds),
            measure_reload(folder, skills, saves),
        ):
            measures |= found
            bars += held
    return Report("serve", measures, bars)


def _http_starts(folder: Path, rounds: int) -> Measures:
    """Measure the start of HTTP servers, alternately, up to the answer to `tools/list`."""
    ours_http = ours(folder / "starts", "--transport", "http", "--port", "0")
    commands = {"bare": BARE_HTTP, "ours": ours_http}
    series: dict[str, list[float]] = {label: [] for label in commands}

    async def first_list(url: str) -> None:
        async with HttpClient(url, "modern") as client:
            assert (await client.request("tools/list", {}))["tools"]

    for _ in range(rounds):
        for label, command in commands.items():
            with HttpServerProcess(command) as server:
                anyio.run(first_list, server.url)
                series[label].append(1_000 * (time.perf_counter() - server.spawned_at))
    return _beside_bare("start, http {}, ms", series)


def _stdio_calls(folder: Path, rounds: int, calls: int) -> tuple[Measures, list[Bar]]:
    measures: Measures = {}
    bars: list[Bar] = []
    for era in ERAS:
        with ExitStack() as stack:
            commands = {
                "bare": (BARE, "noop"),
                "our transport": (BARE_OURS, "noop"),
                "our server": (ours(folder / f"stdio-{era}"), "threads"),
            }
            callers: dict[str, Callable[[], Any]] = {}
            for label, (command, tool) in commands.items():
                server = stack.enter_context(ServerProcess(command, era))
                server.open()
                callers[label] = _caller(server, tool)
            series: dict[str, list[float]] = {label: [] for label in callers}
            for turn in range(rounds + 1):
                for label, call in callers.items():
                    times = [_timed(call) for _ in range(calls if turn else WARM_UP)]
                    series[label] += times if turn else []
        measures |= _beside_bare(f"call, stdio {era} {{}}, ms", series)
        medians = {label: statistics.median(values) for label, values in series.items()}
        ratio = medians["our transport"] / medians["bare"]
        bars.append(Bar(f"no-op on stdio, {era}: ours / the SDK's", ratio, STDIO_LIMIT, "x"))
    return measures, bars


def _caller(server: ServerProcess, tool: str) -> Callable[[], Any]:
    return lambda: server.call(tool, {})


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return 1_000 * (time.perf_counter() - began)


async def _http_calls(folder: Path, rounds: int, calls: int) -> Measures:
    """Measure one client at a time on each of three servers, without a limit."""
    measures: Measures = {}
    ours_http = ours(folder / "calls", "--transport", "http", "--port", "0")
    commands = {
        "bare": (BARE_HTTP, "noop"),
        "our transport": (BARE_OURS_HTTP, "noop"),
        "our server": (ours_http, "threads"),
    }
    with ExitStack() as stack:
        servers = {
            label: (stack.enter_context(HttpServerProcess(command)), tool)
            for label, (command, tool) in commands.items()
        }
        for era in ERAS:
            async with AsyncExitStack() as connections:
                callers: dict[str, Callable[[], Awaitable[Any]]] = {}
                for label, (server, tool) in servers.items():
                    client = await connections.enter_async_context(HttpClient(server.url, era))
                    callers[label] = _http_caller(client, tool)
                series: dict[str, list[float]] = {label: [] for label in callers}
                for turn in range(rounds + 1):
                    for label, call in callers.items():
                        for _ in range(calls if turn else WARM_UP):
                            began = time.perf_counter()
                            await call()
                            if turn:
                                series[label].append(1_000 * (time.perf_counter() - began))
            measures |= _beside_bare(f"call, http {era} {{}}, ms", series)
    return measures


def _http_caller(client: HttpClient, tool: str) -> Callable[[], Awaitable[Any]]:
    return lambda: client.call(tool, {})


def _beside_bare(name: str, series: dict[str, list[float]]) -> Measures:
    bare = statistics.median(series["bare"])
    return {
        name.format(label): {
            **spread(values),
            "x bare": round(statistics.median(values) / bare, 2),
        }
        for label, values in series.items()
    }
