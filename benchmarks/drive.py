"""A driven, durable tool call against a bare SDK server whose tool commits one row to SQLite.

Over stdio, one call at a time. `write_file` moves a thread forward: policy, execution, and a
checkpoint on disk. It is measured with files in the thread, which has a bar, and with files in a
real directory (`--root`), which has none: there, what the file held is on the disk before the file
is replaced, so a call waits for the disk. A no-op of the bare server is shown beside.

The bar is on instructions, if valgrind is there to count them, else on the processor time of the
servers: times differ by more than the bar from one minute to the next. valgrind makes a call take
fifty times as long, so what a server does fifty times a second (sync its log, announce changes) is
counted with each call there, and with a group of calls in real life: the bar errs against us.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import instructions
from benchmarks.client import ERAS, Era, ServerProcess, WrongReply
from benchmarks.report import Bar, Report, spread
from benchmarks.startup import BARE, ours

__all__ = ["LIMIT", "run"]

LIMIT = 1.5
WARM_UP = 50
NOOP, ROW = "bare, no-op", "bare, one row"
IN_THREAD, ON_DISK = "files in the thread", "files on disk"
CONTENT = "one line of text\n" * 8


def run(rounds: int = 5, calls: int = 300) -> Report:
    """Measure each server in turn, `rounds` times `calls` calls, all servers alive meanwhile."""
    measures: dict[str, dict[str, float | int | None]] = {}
    bars: list[Bar] = []
    for era in ERAS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            callers = {
                label: _caller(label, era, Path(folder), servers)
                for label in (NOOP, ROW, IN_THREAD, ON_DISK)
            }
            series, used = _alternate(callers, rounds, calls)
            medians = {label: statistics.median(values) for label, values in series.items()}
            for label, (server, _) in callers.items():
                measures[f"{era} {label}, ms per call"] = {
                    **spread(series[label]),
                    "p99": round(statistics.quantiles(series[label], n=100)[98], 4),
                    "rss MiB": server.resident_mib(),
                }
        for label, median in medians.items():
            measures[f"{era} {label}, ms per call"]["x row"] = round(median / medians[ROW], 2)
            measures[f"{era} {label}, ms per call"]["processor"] = round(used[label], 3)
        ratio, by = used[IN_THREAD] / used[ROW], "processor time"
        if instructions.valgrind():
            ratio, by = _instructions(era, measures), "instructions"
        bars.append(Bar(f"{era}: driven call / one row of bare, {by}", ratio, LIMIT, "x"))
    return Report("drive", measures, bars)


def _instructions(era: Era, measures: dict[str, dict[str, float | int | None]]) -> float:
    counts: dict[str, float] = {}
    for label in (ROW, IN_THREAD):

        def work(words: Sequence[str], pieces: int, label: str = label) -> None:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
                call = _caller(label, era, Path(folder), servers, words)[1]
                for _ in range(pieces):
                    call()

        counts[label] = instructions.per_piece(work)
        measures[f"{era} {label}, million instructions per call"] = {
            "median": round(counts[label] / 1e6, 3)
        }
    return counts[IN_THREAD] / counts[ROW]


_Caller = tuple[ServerProcess, Callable[[], Any]]


def _caller(
    label: str, era: Era, folder: Path, servers: ExitStack, words: Sequence[str] = ()
) -> _Caller:
    """Start a server, its command after some words, and return it with a call of it."""
    if label in (NOOP, ROW):
        options = ("--rows", str(folder / "rows.db")) if label == ROW else ()
        server = servers.enter_context(ServerProcess((*words, *BARE, *options), era))
        server.open()
        arguments = {"path": "/f.txt", "content": CONTENT}
        return server, lambda: server.call("noop", arguments)
    options = ()
    if label == ON_DISK:
        root = folder / "root"
        root.mkdir()
        options = ("--root", str(root))
    command = ours(folder / label.replace(" ", "-"), *options)
    server = servers.enter_context(ServerProcess((*words, *command), era))
    server.open()
    return server, _writer(server)


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


def _alternate(
    callers: dict[str, _Caller], rounds: int, calls: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the ms of each call, and the processor ms of the server for one, by label."""
    for _, call in callers.values():
        for _ in range(WARM_UP):
            call()
    series: dict[str, list[float]] = {label: [] for label in callers}
    used = dict.fromkeys(callers, 0.0)
    for _ in range(rounds):
        for label, (server, call) in callers.items():
            before = server.cpu_seconds() or 0.0
            for _ in range(calls):
                began = time.perf_counter()
                call()
                series[label].append(1_000 * (time.perf_counter() - began))
            used[label] += 1_000 * ((server.cpu_seconds() or 0.0) - before) / (rounds * calls)
    return series, used
