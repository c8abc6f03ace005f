"""Cost of a driven, durable tool call, compared with a bare SDK server that commits one SQLite row.

Calls are made over stdio, one at a time. Each `write_file` includes policy, execution, and a
checkpoint on disk. It is measured with files in the thread, with a limit, and with files in a real
directory (`--root`), without a limit: there, a call waits for the disk, because the earlier content
is stored before a file is replaced. A no-op of the bare server is shown for comparison.

The limit is on instructions if valgrind is installed, else on the processor time of the servers,
which varies by more than the limit. With valgrind, a call takes fifty times as long. So work that a
server does fifty times a second (sync its log, announce changes) is counted for each call, although
normally many calls share it. Real costs are therefore lower.
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
    """Measure all servers alternately, `rounds` times `calls` calls; all of them keep running."""
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
    """Start a server, with `words` before its command; return it with a function that calls it."""
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
    """Create a thread and return a function that changes a file in it."""
    arguments = {"path": "/f.txt", "content": CONTENT}
    numbers = count()
    first = server.call("write_file", arguments)
    thread_id = first.get("structuredContent", {}).get("thread_id")
    if not isinstance(thread_id, str):
        raise WrongReply(f"write_file did not name its thread: {first}")
    arguments["thread_id"] = thread_id

    def change() -> Any:
        # Unchanged content would not be written.
        content = f"{next(numbers)}\n{CONTENT}"
        return server.call("write_file", {**arguments, "content": content})

    return change


def _alternate(
    callers: dict[str, _Caller], rounds: int, calls: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the ms of each call, and the server's processor ms per call, by label."""
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
