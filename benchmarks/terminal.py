"""`deep-agent-mcp run`: time to the first output on a terminal, and lost events in a pipe.

The time is compared with the server's start: from spawning `serve` to its first answer.
"""

from __future__ import annotations

import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks.client import ServerProcess
from benchmarks.report import Bar, Report, spread
from benchmarks.startup import ours

__all__ = ["piped_events", "run"]

FIRST_LINE_MS = 300.0
EVENTS = 10_000
CALLS = 50
"""Tool calls per answer."""

GREETING = {"agents": {"main": [{"text": "I look.", "tool_calls": [{"name": "ls", "args": {}}]},
                                {"text": "Nothing there."}]}}  # fmt: skip


def run(rounds: int = 9, events: int = EVENTS) -> Report:
    """Start the server and the command alternately, then pipe the events of a long run."""
    seconds: dict[str, list[float]] = {"start": [], "line": [], "step": []}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.yaml"
        script.write_text(yaml.safe_dump(GREETING), encoding="utf-8")
        server = ours(Path(folder) / "state", "--model", f"scripted:{script}")
        command = _command(Path(folder), script, "Look around.")
        for number in range(rounds + 1):
            start, (line, step) = _start(server), _seen(command)
            if number:  # the first one only fills the caches
                for name, taken in (("start", start), ("line", line), ("step", step)):
                    seconds[name].append(taken)
        began = time.perf_counter()
        made, kept = piped_events(Path(folder), events)
        piping = time.perf_counter() - began
    medians = {name: 1_000 * statistics.median(values) for name, values in seconds.items()}
    measures = {
        "server start, ms": spread([1_000 * one for one in seconds["start"]]),
        "first line at a terminal, ms": spread([1_000 * one for one in seconds["line"]]),
        "first step at a terminal, ms": spread([1_000 * one for one in seconds["step"]]),
        "events": {"stored": made, "piped": kept, "seconds": piping},
    }
    bars = [
        Bar("first line after the server's start", medians["line"] - medians["start"],
            FIRST_LINE_MS, "ms"),
        Bar("events lost in a pipe", made - kept, 0, "events"),
        Bar("events missing for the proof", max(0, events - made), 0, "events"),
    ]  # fmt: skip
    return Report("terminal", measures, bars)


def _command(folder: Path, script: Path, goal: str, *options: str) -> list[str]:
    state = ("--state-dir", str(folder / "state"), "--model", f"scripted:{script}")
    return [sys.executable, "-m", "deep_agent_mcp", "run", goal, *state, *options]


def _start(command: Sequence[str]) -> float:
    with ServerProcess(command, "modern") as server:
        server.open()
        server.request("tools/list", {})
        return time.perf_counter() - server.spawned_at


def _seen(command: Sequence[str]) -> tuple[float, float]:
    """Return the seconds until the first line and the first step are on the terminal."""
    ours, theirs = pty.openpty()
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen, line, step = b"", 0.0, 0.0
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:
                break
            seen += data
            now = time.perf_counter() - began
            line = line or (now if b"\n" in seen else 0.0)
            step = step or (now if b"I look." in seen else 0.0)
        os.close(ours)
        assert process.wait() == 0, seen.decode(errors="replace")
    return line, step


def piped_events(folder: Path, least: int) -> tuple[int, int]:
    """Pipe at least `least` events of a run; return the number of stored and received events.

    Events are numbered without gaps, so the last number is the number of stored events.
    """
    turns = [
        {
            "tool_calls": [
                {"name": "glob", "args": {"pattern": f"{turn}-{at}"}} for at in range(CALLS)
            ]
        }
        for turn in range(-(-least // (2 * CALLS)))
    ]
    script = folder / "long.yaml"
    script.write_text(json.dumps({"agents": {"main": [*turns, {"text": "All seen."}]}}))
    env = {**os.environ, "DEEP_AGENT_LIMITS_TOOL_CALLS": str(len(turns) * CALLS)}
    env["DEEP_AGENT_LIMITS_MODEL_CALLS"] = str(len(turns) + 1)
    command = _command(folder, script, "Look very often.", "--json")
    done = subprocess.run(command, env=env, capture_output=True, check=False, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    numbers = [one["seq"] for one in lines if one["type"] == "event"]
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2_000:]
    return numbers[-1], len(set(numbers))
