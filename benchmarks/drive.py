"""A driven, durable tool call against a no-op call of the bare SDK, over stdio, one at a time.

`write_file` moves a thread forward: policy, execution, and a checkpoint on disk. It is measured
with files in the thread, which has a bar, and with files in a real directory (`--root`), which has
none: there, what the file held is on the disk before the file is replaced, so a call waits for the
disk and a no-op is no measure for that.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.client import ERAS, Era, ServerProcess, WrongReply
from benchmarks.report import Bar, Report, spread
from benchmarks.startup import BARE, ours

__all__ = ["LIMIT", "run"]

LIMIT = 2.0
WARM_UP = 50
IN_THREAD = "files in the thread"
CONTENT = "one line of text\n" * 8


def run(rounds: int = 5, calls: int = 300) -> Report:
    """Measure each server in turn, `rounds` times `calls` calls, all servers alive meanwhile."""
    measures: dict[str, dict[str, float | int | None]] = {}
    bars: list[Bar] = []
    for era in ERAS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            callers = _callers(era, Path(folder), servers)
            series = _alternate(callers, rounds, calls)
            medians = {label: statistics.median(values) for label, values in series.items()}
            for label, (server, _) in callers.items():
                measures[f"{era} {label}, ms per call"] = {
                    **spread(series[label]),
                    "p99": round(statistics.quantiles(series[label], n=100)[98], 4),
                    "rss MiB": server.resident_mib(),
                }
        bare = medians["bare"]
        for label, median in medians.items():
            measures[f"{era} {label}, ms per call"]["x bare"] = round(median / bare, 2)
        ratio = medians[IN_THREAD] / bare
        bars.append(Bar(f"{IN_THREAD}, {era}: ours / no-op of bare", ratio, LIMIT, "x"))
    return Report("drive", measures, bars)


_Caller = tuple[ServerProcess, Callable[[], Any]]


def _callers(era: Era, folder: Path, servers: ExitStack) -> dict[str, _Caller]:
    root = folder / "root"
    root.mkdir()
    bare = servers.enter_context(ServerProcess(BARE, era))
    bare.open()
    arguments = {"path": "/f.txt", "content": CONTENT}
    callers: dict[str, _Caller] = {"bare": (bare, lambda: bare.call("noop", arguments))}
    setups: dict[str, tuple[str, ...]] = {
        IN_THREAD: (),
        "files on disk": ("--root", str(root)),
    }
    for number, (label, options) in enumerate(setups.items()):
        server = servers.enter_context(
            ServerProcess(ours(folder / f"state{number}", *options), era)
        )
        server.open()
        callers[label] = (server, _writer(server))
    return callers


def _writer(server: ServerProcess) -> Callable[[], Any]:
    """Make a thread and return a call that changes a file of it."""
    arguments = {"path": "/f.txt", "content": CONTENT}
    numbers = count()
    first = server.call("write_file", arguments)
    thread_id = first.get("structuredContent", {}).get("thread_id")
    if not isinstance(thread_id, str):
        raise WrongReply(f"write_file did not name its thread: {first}")
    arguments["thread_id"] = thread_id

    def change() -> Any:
        # The same content again would not be written.
        content = f"{next(numbers)}\n{CONTENT}"
        return server.call("write_file", {**arguments, "content": content})

    return change


def _alternate(callers: dict[str, _Caller], rounds: int, calls: int) -> dict[str, list[float]]:
    for _, call in callers.values():
        for _ in range(WARM_UP):
            call()
    series: dict[str, list[float]] = {label: [] for label in callers}
    for _ in range(rounds):
        for label, (_, call) in callers.items():
            for _ in range(calls):
                began = time.perf_counter()
                call()
                series[label].append(1_000 * (time.perf_counter() - began))
    return series
