"""Distribution of tests to processes: equal parts, with the slowest tests first.

`--dist=worksteal` gives each process a part of the list of tests. Processes that have finished take
tests from the end of other parts. So all parts should take about the same time, and begin with the
slowest tests: then no process waits long for the last test of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from zlib import crc32

import pytest

__all__ = ["dealt"]

ROOT = Path(__file__).parent

SECONDS = {
    "e2e": 140,
    "replicas": 60,
    "server": 165,
    "viewer": 125,
    "checkpoint": 80,
    "middleware": 55,
    "shell": 33,
    "backends": 30,
    "models": 45,
    "store": 35,
    "loop": 30,
    "policy": 25,
    "subagents": 25,
    "terminal": 20,
    "mcp_servers": 18,
    "telemetry": 12,
    "skills": 12,
    "studio": 7,
    "redaction": 7,
    "plugins": 5,
    "agenda": 4,
    "definitions": 4,
    "agent_file": 2,
    "cache": 2,
    "conformance": 2,
    ".": 55,
    "replicas/test_deaths.py": 60,
    "replicas/test_chaos.py": 30,
    "replicas/test_legacy_sessions.py": 20,
    "replicas/test_membership.py": 18,
    "replicas/test_legacy_servers.py": 18,
    "e2e/test_hostile_input.py": 30,
    "e2e/test_hostile_calls.py": 20,
    "e2e/test_demo.py": 15,
    "server/test_engines.py": 20,
    "shell/test_escapes.py": 22,
    "backends/test_confinement.py": 20,
    "test_tutorials.py": 15,
    "test_crash.py": 11,
}
"""Approximate seconds on a slow core, by directory, and by file for slow files in a directory.

All others take almost no time.
"""

WHOLE = {"viewer", "mcp_servers", "store"}
"""Directories whose tests run in one process, to share something slow, such as a browser."""


def dealt(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Order the tests so that all parts, one for each process, take about the same time."""
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
        for _, tests in sorted(piece, key=_turn):
            ordered += tests
        ordered += rest[:room]
        del rest[:room]
    return ordered


def _turn(part: tuple[float, Sequence[pytest.Item]]) -> tuple[float, int]:
    """Return a sort key: slow tests first, then the others, mixed, because some only wait."""
    seconds, tests = part
    return min(-seconds, -1.0), crc32(tests[0].path.name.encode()) if seconds < 1 else 0


def _rooms(count: int, processes: int) -> list[int]:
    """Return the number of tests for each process, calculated like in pytest-xdist."""
    rooms: list[int] = []
    for left in range(processes, 0, -1):
        rooms.append((count - sum(rooms)) // left)
    return rooms


def _parts(items: Sequence[pytest.Item]) -> Iterator[tuple[float, Sequence[pytest.Item]]]:
    """Yield groups of tests for one process, with the approximate seconds of each group."""
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
