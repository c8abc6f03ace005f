"""The measurements of all sides. It only uses the standard library: each side has its environment.

A side is a module with these functions; they return or yield nothing except as noted:

    async with side.agent(journal: Path | None, parent: bool, delay: float) as run:
        await run(goal, thread)      # to its end
        await run.history(thread)    # number of checkpoints listed
        await run.states(thread)     # the same, with the state after each
    async side.prompt() -> int       # characters of system prompt and tool schemas
    async side.grep(root, pattern) -> int, async side.glob(root, pattern) -> int
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 200
RUNS, RUN_STEPS, DELAY = 100, 5, 0.02
CHILDREN = 32
RESULT = "x" * 1_000
"""The tool's result."""

Cost = tuple[float, float]
"""Milliseconds, and milliseconds of processor time, without waiting and other programs."""


def rounds(number: int) -> str:
    """Return a goal that calls the tool `number` times, one call after the other."""
    return f"rounds-0-{number}"


async def step(side: Any) -> Cost:
    """Return the cost of a step (an answer and its tool call) at 200 steps, without a disk."""
    async with side.agent(None, parent=False, delay=0) as run:
        await run(rounds(3), "warm")
        return await _timed(run(rounds(STEPS), "t"), STEPS)


async def durable_step(side: Any) -> Cost:
    """Return the same with SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        async with side.agent(Path(folder) / "j.db", parent=False, delay=0) as run:
            await run(rounds(3), "warm")
            return await _timed(run(rounds(STEPS), "t"), STEPS)


async def many(side: Any) -> Cost:
    """Return the cost of 100 concurrent runs of 5 steps each, with a model that takes 20 ms."""
    async with side.agent(None, parent=False, delay=DELAY) as run:
        return await _many(run)


async def many_durable(side: Any) -> Cost:
    """Return the same with SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        async with side.agent(Path(folder) / "j.db", parent=False, delay=DELAY) as run:
            return await _many(run)


async def children(side: Any) -> Cost:
    """Return the cost of 32 concurrent subagents with two model calls each."""
    async with side.agent(None, parent=True, delay=0) as run:
        await run("fan-0-2", "warm")
        return await _timed(run(f"fan-0-{CHILDREN}", "t"))


async def kept(side: Any) -> float:
    """Return the bytes on disk per step, for 200 durable steps with results of 1 KB."""
    with tempfile.TemporaryDirectory() as folder:
        async with side.agent(Path(folder) / "j.db", parent=False, delay=0) as run:
            await run(rounds(STEPS), "t")
        return sum(one.stat().st_size for one in Path(folder).iterdir()) / STEPS


async def written(side: Any) -> float:
    """Return the bytes that this process writes per step of the same run (Linux)."""
    with tempfile.TemporaryDirectory() as folder:
        async with side.agent(Path(folder) / "j.db", parent=False, delay=0) as run:
            before = _written()
            await run(rounds(STEPS), "t")
            return (_written() - before) / STEPS


async def history(side: Any) -> float:
    """Return the ms to list all checkpoints of such a thread."""
    return await _listed(side, "history")


async def states(side: Any) -> float:
    """Return the ms to read the state after each checkpoint."""
    return await _listed(side, "states")


async def prompt(side: Any) -> float:
    """Return the characters of a deep agent's own prompt and tool schemas."""
    return await side.prompt()


async def cold(side: Any) -> float:
    """Run once; `costs` measures the time of the whole process."""
    async with side.agent(None, parent=False, delay=0) as run:
        await run(rounds(1), "t")
    return 0.0


async def grep(side: Any, root: str, pattern: str) -> Cost:
    """Return the cost of a search through a directory of 20,000 files."""
    return await _search(side.grep, root, pattern)


async def glob(side: Any, root: str, pattern: str) -> Cost:
    """Return what it costs to find files by name in the same directory."""
    return await _search(side.glob, root, pattern)


async def _search(search: Any, root: str, pattern: str) -> Cost:
    await search(root, pattern)
    found: list[Cost] = []
    for _ in range(3):
        began, used = time.perf_counter(), _used_with_programs()
        await search(root, pattern)
        wall, processor = time.perf_counter() - began, _used_with_programs() - used
        found.append((1_000 * wall, 1_000 * processor))
    walls, processors = zip(*found, strict=True)
    return statistics.median(walls), statistics.median(processors)


def _used_with_programs() -> float:
    """Return the processor time of this process and of the programs it ran, such as ripgrep."""
    import resource

    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


async def _listed(side: Any, what: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with side.agent(Path(folder) / "j.db", parent=False, delay=0) as run:
            await run(rounds(STEPS), "t")
            began = time.perf_counter()
            count = await getattr(run, what)("t")
            assert count >= STEPS, count
            return 1_000 * (time.perf_counter() - began)


async def _many(run: Any) -> Cost:
    await run(rounds(1), "warm")
    together = (run(rounds(RUN_STEPS), f"t{number}") for number in range(RUNS))
    return await _timed(asyncio.gather(*together))


async def _timed(work: Any, count: int = 1) -> Cost:
    """Return the cost of `work` divided by `count`."""
    began, used = time.perf_counter(), time.process_time()
    await work
    wall, processor = time.perf_counter() - began, time.process_time() - used
    return 1_000 * wall / count, 1_000 * processor / count


def _written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def main(side: Any) -> None:
    """Run the measurement named in the arguments, and print the result."""
    name, *options = sys.argv[1:]
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    value = asyncio.run(globals()[name](side, *options))
    print(json.dumps(value))
