"""Which process runs which test, and in which order: what takes long begins first.

`--dist=worksteal` gives each process a piece of the list of tests, and lets those that are done
take tests from the end of what others still have. So the pieces are made to take about the same
time, and each ends with what is quick: then no process waits long for the last test of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest

__all__ = ["dealt"]

ROOT = Path(__file__).parent

SECONDS = {
    "replicas": 110,
    "e2e": 90,
    "server": 100,
    "viewer": 60,
    "checkpoint": 70,
    "models": 50,
    "middleware": 45,
    "backends": 25,
    "shell": 40,
    "store": 35,
    "loop": 25,
    "policy": 20,
    "subagents": 18,
    "mcp_servers": 18,
    "terminal": 18,
    "telemetry": 11,
    "skills": 10,
    "agent_file": 10,
    "studio": 8,
    "redaction": 6,
    "definitions": 5,
    "agenda": 5,
    "conformance": 5,
    "plugins": 4,
    ".": 30,
    "replicas/test_deaths.py": 60,
    "replicas/test_chaos.py": 40,
    "e2e/test_hostile_calls.py": 30,
    "e2e/test_hostile_input.py": 20,
    "backends/test_confinement.py": 22,
    "models/test_broken_vendor_streams.py": 20,
    "server/test_sampling.py": 20,
    "shell/test_escapes.py": 25,
    "test_crash.py": 8,
}
"""Roughly what the tests of a directory take of a slow core, and of some files in it beside that.

Of others it is next to nothing.
"""

WHOLE = {"viewer", "mcp_servers", "store"}
"""Directories whose tests share what is dear to start, such as a browser, in one process."""


def dealt(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in an order whose pieces, one for each process, take about the same time."""
    rooms = _rooms(len(items), processes)
    pieces: list[list[tuple[float, Sequence[pytest.Item]]]] = [[] for _ in rooms]
    times = [0.0] * processes
    rest: list[pytest.Item] = []
    for seconds, tests in sorted(_parts(items), key=lambda part: -part[0]):
        free = [n for n in range(processes) if rooms[n] >= len(tests)]
        if not seconds or not free:
            rest += tests
            continue
        least = min(free, key=times.__getitem__)
        rooms[least] -= len(tests)
        times[least] += seconds
        pieces[least].append((seconds / len(tests), tests))
    ordered: list[pytest.Item] = []
    for piece, room in zip(pieces, rooms, strict=True):
        for _, tests in sorted(piece, key=lambda part: -part[0]):
            ordered += tests
        ordered += rest[:room]
        del rest[:room]
    return ordered


def _rooms(count: int, processes: int) -> list[int]:
    """Return how many tests each process is given, as pytest-xdist counts."""
    rooms: list[int] = []
    for left in range(processes, 0, -1):
        rooms.append((count - sum(rooms)) // left)
    return rooms


def _parts(items: Sequence[pytest.Item]) -> Iterator[tuple[float, Sequence[pytest.Item]]]:
    """Yield what stays together, with the seconds that it roughly takes."""
    counts = Counter(map(_directory, items))
    for _, tests in groupby(
        items, lambda one: _directory(one) if _directory(one) in WHOLE else one.path
    ):
        found = [*tests]
        name = _directory(found[0])
        own = SECONDS.get(found[0].path.relative_to(ROOT).as_posix())
        yield own or SECONDS.get(name, 0.0) * len(found) / counts[name], found


def _directory(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0] if item.path.parent != ROOT else "."
