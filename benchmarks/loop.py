"""The step loop with the default deep stack, compared with a bare loop in one process.

Model and tool are scripted, instant and the same on both sides, so only the loop differs. The deep
agent stores its journal in memory; SQLite is shown for comparison.

The limit on a durable round compares sides with the same work; see `durable_round`. It uses
processor time including the kernel, because both wait for the same disk. Instructions are shown,
too. The minimal loop without middleware and journal does less than an agent must do; it shows the
cost of everything else.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks import durable_round, instructions
from benchmarks.bare_loop import ScriptModel, bare_loop, bare_parent, noop
from benchmarks.client import REPO, ServerProcess, environment
from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.agent import Agent, RunOptions
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.subagents import SubAgentMiddleware
from deep_agent_mcp.harness.models.base import ChatModel
from deep_agent_mcp.harness.subagents.definitions import GENERAL_PURPOSE, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry

__all__ = ["added_memory", "run"]

BARE, DEEP, JOURNAL = "bare", "deep", "deep, SQLite"
LENGTHS = {50: 8, 200: 2, 1_000: 1}
"""Runs per sample, by rounds of a run."""
DURABLE = 400
"""Rounds of a durable run."""
SHORT = "rounds-0-5"
DELAY = 0.020
IDEAL = 6 * DELAY
"""Seconds of five rounds and the answer, if only the model took time."""
LIMITS = Limits(model_calls=1_000_000, tool_calls=1_000_000, fan_out=32, parallel_tool_calls=32)

Measures = dict[str, dict[str, float | int | None]]
RunGoal = Callable[[str], Coroutine[Any, Any, None]]
Contestant = Callable[[ChatModel], AbstractAsyncContextManager[RunGoal]]


def run(rounds: int = 5) -> Report:
    """Measure all contestants alternately, `rounds` times; the slowest measurements less often."""
    measures: Measures = {}
    bars = [
        *_durable_round(measures, rounds),
        *anyio.run(_rounds, measures, rounds),
        *anyio.run(_concurrent, measures, rounds),
        *anyio.run(_subagents, measures, rounds),
        *_building(measures, 4 * rounds),
        *_imports(measures, rounds + 2),
    ]
    return Report("loop", measures, bars)


# --- contestants ---------------------------------------------------------------------------


@asynccontextmanager
async def _bare(model: ChatModel) -> AsyncGenerator[RunGoal, None]:
    tools = bare_parent(model)

    async def work(goal: str) -> None:
        await bare_loop(model, tools, goal)

    yield work


@asynccontextmanager
async def _deep(model: ChatModel) -> AsyncGenerator[RunGoal, None]:
    yield partial(_work, create_deep_agent(model, [noop]))


@asynccontextmanager
async def _journaled(model: ChatModel) -> AsyncGenerator[RunGoal, None]:
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteCheckpointer(Path(folder) / "threads.db") as checkpointer:
            yield partial(_work, create_deep_agent(model, [noop], checkpointer=checkpointer))


CONTESTANTS: Mapping[str, Contestant] = {BARE: _bare, DEEP: _deep, JOURNAL: _journaled}


async def _work(agent: Agent, goal: str) -> None:
    result = await agent.ainvoke(goal, options=RunOptions(limits=LIMITS))
    if result.run.status != "done" or result.run.answer != "Finished.":
        raise RuntimeError(f"a run ended as {result.run.status}: {result.run.reason}")
    # A failed subagent is only an error result for its parent, which then finishes earlier.
    for message in result.state["messages"]:
        if isinstance(message, ToolMessage) and message.status == "error":
            raise RuntimeError(f"{message.name} failed: {message.text}")


async def _sample(
    contestant: Contestant, model: ChatModel, goal: str, *, times: int = 1, at_once: int = 1
) -> float:
    """Return the seconds per turn, for `times` turns of `at_once` concurrent runs."""
    async with contestant(model) as work:
        await work(goal if goal.startswith("fan") else "rounds-0-2")
        gc.collect()
        began = time.perf_counter()
        for _ in range(times):
            if at_once == 1:
                await work(goal)
                continue
            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(work, goal)
        return (time.perf_counter() - began) / times


# --- measures ------------------------------------------------------------------------------


def _durable_round(measures: Measures, rounds: int) -> list[Bar]:
    sides = {"bare": durable_round.bare, "ours": durable_round.ours}
    series: dict[str, list[float]] = {label: [] for label in sides}
    ratios: list[float] = []
    for _ in range(2 * rounds):
        for label, side in sides.items():
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                anyio.run(side, f"rounds-0-{DURABLE}", Path(folder) / "rows.db")
                series[label].append(1_000 * (time.process_time() - began) / DURABLE)
        ratios.append(series["ours"][-1] / series["bare"][-1])
    for label in sides:
        measures[f"durable round, {label}, processor ms"] = spread(series[label])
        if instructions.valgrind():
            count = instructions.per_piece(partial(_durable_rounds, label))
            measures[f"durable round, {label}, million instructions"] = {
                "median": round(count / 1e6, 3)
            }
    return [Bar("durable round: ours / bare, processor time", statistics.median(ratios), 1.7, "x")]


def _durable_rounds(side: str, words: Sequence[str], pieces: int) -> None:
    command = (*words, sys.executable, "-m", "benchmarks.durable_round", side, str(pieces))
    subprocess.run(command, check=True, env=environment(), cwd=REPO)


async def _rounds(measures: Measures, rounds: int) -> list[Bar]:
    model = ScriptModel()
    medians: dict[tuple[str, int], float] = {}
    series: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for length, times in LENGTHS.items():
            for label, contestant in CONTESTANTS.items():
                taken = await _sample(contestant, model, f"rounds-0-{length}", times=times)
                series.setdefault((label, length), []).append(1_000 * taken / length)
    for (label, length), values in sorted(series.items(), key=lambda item: item[0][1]):
        medians[label, length] = statistics.median(values)
        measures[f"{label}, N={length:,}, ms per round"] = {
            **spread(values),
            "rounds/s": round(1_000 / medians[label, length]),
            "x bare": round(medians[label, length] / medians[BARE, length], 2),
            "x N=50": round(medians[label, length] / medians[label, 50], 2),
            **(_memory(label, "rounds-0-1000", 1, 0.0) if length == 1_000 else {}),
        }
    bars = [
        Bar(f"round, N={n:,}: deep / bare", medians[DEEP, n] / medians[BARE, n], 20, "x")
        for n in (50, 1_000)
    ]
    flat = medians[DEEP, 1_000] / medians[DEEP, 50]
    return [*bars, Bar("round of deep: N=1,000 / N=50", flat, 1.2, "x")]


async def _concurrent(measures: Measures, rounds: int) -> list[Bar]:
    model = ScriptModel(DELAY)
    medians: dict[tuple[str, int], float] = {}
    for at_once, often in ((100, rounds), (1_000, (rounds + 1) // 2)):
        series: dict[str, list[float]] = {}
        for _ in range(often):
            for label, contestant in CONTESTANTS.items():
                taken = await _sample(contestant, model, SHORT, at_once=at_once)
                series.setdefault(label, []).append(1_000 * taken)
        for label, values in series.items():
            medians[label, at_once] = statistics.median(values)
            row: dict[str, float | int | None] = {
                **spread(values),
                "x bare": round(medians[label, at_once] / medians[BARE, at_once], 2),
                "x ideal": round(medians[label, at_once] / (1_000 * IDEAL), 2),
            }
            if at_once == 1_000 and label != JOURNAL:
                row |= _memory(label, SHORT, at_once, DELAY)
            measures[f"{label}, {at_once:,} runs at once, ms"] = row
    bars = [
        Bar("100 runs at once: wall / ideal", medians[DEEP, 100] / (1_000 * IDEAL), 1.25, "x"),
        Bar("1,000 runs at once: deep / bare", medians[DEEP, 1_000] / medians[BARE, 1_000], 5, "x"),
    ]
    added = measures[f"{DEEP}, 1,000 runs at once, ms"].get("added MB")
    return bars if added is None else [*bars, Bar("1,000 runs at once: added", added, 150, "MB")]


async def _subagents(measures: Measures, rounds: int) -> list[Bar]:
    model = ScriptModel()
    series: dict[str, list[float]] = {}
    for _ in range(rounds):
        for label, contestant in CONTESTANTS.items():
            taken = await _sample(contestant, model, "fan-0-32", times=3)
            series.setdefault(label, []).append(1_000 * taken)
    bare = statistics.median(series[BARE])
    for label, values in series.items():
        ratio = round(statistics.median(values) / bare, 2)
        measures[f"{label}, 32 subagents, ms"] = {**spread(values), "x bare": ratio}
    return [Bar("32 subagents: deep / bare", statistics.median(series[DEEP]) / bare, 20, "x")]


def _building(measures: Measures, times: int) -> list[Bar]:
    """Measure building an agent, without and with its subagents, which are built at first use.

    The limit is for the agent without them.
    """
    named = [SubAgent(f"helper-{number}", "Helps.", "Help.") for number in range(4)]
    registry = SubAgentRegistry(None, (GENERAL_PURPOSE, *named))
    model = ScriptModel()
    series: dict[str, list[float]] = {"built": [], "built, subagents too": []}
    for _ in range(times):
        began = time.perf_counter()
        agent = create_deep_agent(model, [noop], subagents=registry)
        series["built"].append(1_000 * (time.perf_counter() - began))
        for one in agent.definition.middleware:
            if isinstance(one, SubAgentMiddleware):
                for name in registry.subagents:
                    one.agent(name)
        series["built, subagents too"].append(1_000 * (time.perf_counter() - began))
    for label, values in series.items():
        measures[f"deep agent with 5 subagents {label}, ms"] = spread(values)
    built = statistics.median(series["built"])
    return [Bar("build a deep agent with 5 subagents", built, 5, "ms")]


# --- fresh interpreters --------------------------------------------------------------------

_IMPORT = """\
import json, sys, time
began = time.perf_counter()
import {module} as m
{then}
taken = time.perf_counter() - began
print(json.dumps([taken, "anthropic" in sys.modules]))
"""
_SERVE = """\
import pathlib, sys
marker = pathlib.Path(sys.argv.pop(1))
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "anthropic":
            marker.touch()
sys.meta_path.insert(0, Watch())
from deep_agent_mcp.server.cli.main import main
main()
"""


def _imports(measures: Measures, rounds: int) -> list[Bar]:
    every = "for name in m.__all__: getattr(m, name)"
    codes = {
        "import pydantic": _IMPORT.format(module="pydantic", then=""),
        "import harness": _IMPORT.format(module="deep_agent_mcp.harness", then=""),
        "import harness, every name": _IMPORT.format(module="deep_agent_mcp.harness", then=every),
    }
    series: dict[str, list[float]] = {label: [] for label in codes}
    by_import = False
    for _ in range(rounds):
        for label, code in codes.items():
            taken, found = _fresh(code)
            series[label].append(1_000 * taken)
            by_import |= found
    medians = {label: statistics.median(values) for label, values in series.items()}
    for label, values in series.items():
        ratio = round(medians[label] / medians["import pydantic"], 2)
        measures[f"{label}, ms"] = {**spread(values), "x pydantic": ratio}
    ratio = medians["import harness"] / medians["import pydantic"]
    return [
        Bar("import harness / import pydantic", ratio, 1.5, "x"),
        Bar("anthropic imported by harness", int(by_import), 0, "times"),
        Bar("anthropic imported by a starting server", int(_server_imports()), 0, "times"),
    ]


def _server_imports() -> bool:
    """Whether a server that only answers one `tools/list` imports the SDK."""
    with tempfile.TemporaryDirectory() as folder:
        marker = Path(folder) / "imported"
        state = str(Path(folder) / "state")
        options = (str(marker), "serve", "--state-dir", state)
        with ServerProcess((sys.executable, "-c", _SERVE, *options), "modern") as server:
            server.open()
            server.request("tools/list", {})
        return marker.exists()


def _fresh(code: str) -> Any:
    """Run code in a new interpreter, and return the JSON that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(done.stdout)


def _memory(label: str, goal: str, at_once: int, delay: float) -> dict[str, float | int | None]:
    """Return the peak memory of a process that only does these runs, and their share of it."""
    call = f"added_memory({label!r}, {goal!r}, {at_once}, {delay})"
    found = _fresh(f"import json; from benchmarks.loop import *; print(json.dumps({call}))")
    return dict(zip(("peak MB", "added MB"), found, strict=True)) if found else {}


def added_memory(label: str, goal: str, at_once: int, delay: float) -> list[float]:
    """Return this process's peak memory in MB, and the runs' share; empty except on Linux."""
    before: list[float] = []

    async def measure() -> None:
        async with CONTESTANTS[label](ScriptModel(delay)) as work:
            await work("rounds-0-2")
            gc.collect()
            before.extend(_status("VmRSS:"))
            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(work, goal)

    anyio.run(measure)
    return [round(peak - began, 1) for peak in _status("VmHWM:") for began in (0.0, *before)]


def _status(field: str) -> list[float]:
    """Return a field of this process's status in MB (Linux), or an empty list."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1_024 / 1e6 for line in lines if line.startswith(field)]
