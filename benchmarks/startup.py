"""Cold start over stdio: time from spawning the process to the answer to `tools/list`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agent_file import write_agent_file
from benchmarks.client import ERAS, Era, ServerProcess
from benchmarks.report import Bar, Report, spread

__all__ = ["BARE", "LIMIT", "ours", "run"]

LIMIT = 1.3
BARE: tuple[str, ...] = (sys.executable, "-m", "benchmarks.bare_server")


def ours(state: Path, *options: str) -> tuple[str, ...]:
    """Return the command that starts our server on stdio."""
    return (sys.executable, "-m", "deep_agent_mcp", "serve", "--state-dir", str(state), *options)


def run(rounds: int = 15) -> Report:
    """Start the servers alternately, `rounds` times per era; the first start is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        state, file = Path(folder) / "state", write_agent_file(Path(folder))
        commands = {
            "bare": BARE,
            "ours": ours(state),
            "ours with an agent file": ours(state, "--agent", str(file)),
        }
        seconds: dict[tuple[Era, str], list[float]] = {}
        memory: dict[tuple[Era, str], float | None] = {}
        for command in commands.values():
            _start(command, "legacy")
        for _ in range(rounds):
            for era in ERAS:
                for label, command in commands.items():
                    taken, memory[era, label] = _start(command, era)
                    seconds.setdefault((era, label), []).append(taken)
    measures = {
        f"{era} {label}, ms": {**spread([1_000 * s for s in values]), "rss MiB": memory[era, label]}
        for (era, label), values in seconds.items()
    }
    bars = [
        Bar(
            f"start, {era}: {label} / {floor}",
            statistics.median(seconds[era, label]) / statistics.median(seconds[era, floor]),
            LIMIT,
            "x",
        )
        for label, floor in (("ours", "bare"), ("ours with an agent file", "ours"))
        for era in ERAS
    ]
    return Report("startup", measures, bars)


def _start(command: Sequence[str], era: Era) -> tuple[float, float | None]:
    with ServerProcess(command, era) as server:
        server.open()
        tools = server.request("tools/list", {})["tools"]
        taken = time.perf_counter() - server.spawned_at
        assert tools, "an empty list of tools proves nothing"
        return taken, server.resident_mib()
