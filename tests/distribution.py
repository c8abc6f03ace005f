"""Which process runs which test, and in which order: what takes long begins first.

`--dist=worksteal` gives each process a piece of the list of tests, and lets those that are done
take tests from the end of what others still have. So the pieces are made to take about the same
time, and each begins with its longest tests: then no process waits long for the last of another.
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
        for _, tests in sorted(piece, key=_turn):
            ordered += tests
        ordered += rest[:room]
        del rest[:room]
    return ordered


def _turn(part: tuple[float, Sequence[pytest.Item]]) -> tuple[float, int]:
    """Sort tests of a second and more first, and mix the others: some compute, some wait."""
    seconds, tests = part
    return min(-seconds, -1.0), crc32(tests[0].path.name.encode()) if seconds < 1 else 0


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
