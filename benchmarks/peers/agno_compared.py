"""Comparison of our agents with Agno's: in process, and delegated over MCP.

`python -m benchmarks agno` installs Agno from PyPI, or uses the environment of `--python`. Agno's
agents have no todos, files or subagents by default, so they are compared with our agents without
them; one row shows our deep agent.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.peers.served import GOAL, RunClient, RunServer, delegated, our_server
from benchmarks.peers.sides import (
    OURS,
    OURS_PLAIN,
    PEERS,
    compared,
    costs,
    interpreter,
    versions,
)
from benchmarks.report import Report

__all__ = ["run"]

PACKAGES = ("agno[os,mcp,sqlite]", "sqlalchemy", "fastmcp")

MEASURES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a step at 200 steps": (OURS_PLAIN, "step", "step"),
    "the same, ours of a deep agent": (OURS, "step", "step"),
    "a step, stored at once": (OURS_PLAIN, "durable_step", "step"),
    "a step, stored at the run's end": (OURS_PLAIN, "durable_step", "end"),
    "100 runs at once": (OURS_PLAIN, "many", "step"),
    "100 runs at once, steps stored": (OURS_PLAIN, "many_durable", "step"),
    "100 runs at once, stored at the end": (OURS_PLAIN, "many_durable", "end"),
    "cold start with first run": (OURS_PLAIN, "cold", "step"),
    "kept on disk a step, bytes": (OURS_PLAIN, "kept", "step"),
    "written a step, bytes": (OURS_PLAIN, "written", "step"),
}
"""By name: our side, the measurement, and when both sides store a run."""

SERVED = {"step": "AgentOS stores each step", "end": "AgentOS stores at the end"}

Rows = dict[str, dict[str, float | int | None]]


def run(rounds: int = 9, python: str | None = None) -> Report:
    """Measure both sides alternately, `rounds` times each."""
    with tempfile.TemporaryDirectory() as folder:
        python = python or interpreter(Path(folder) / "env", PACKAGES)
        rows: Rows = {}
        for label in MEASURES:
            rows |= _in_process(label, python, rounds)
        for stored in SERVED:
            place = Path(folder) / stored
            place.mkdir()
            rows |= _over_mcp(stored, place, python, rounds)
        return Report("agno", rows, (), versions(python, PACKAGES))


def _in_process(label: str, python: str, rounds: int) -> Rows:
    ours, name, stored = MEASURES[label]
    theirs, given = (python, str(PEERS / "agno_side.py")), {"PEERS_STORED": stored}
    in_bytes = label.endswith("bytes")
    found = [
        (costs((*ours, name), given), costs((*theirs, name), given))
        for _ in range(1 if in_bytes else rounds)  # the bytes hardly vary
    ]
    names = (label,) if in_bytes else (f"{label}, ms", f"{label}, processor ms")
    rows = {
        row: compared("agno", [(a[place], b[place]) for a, b in found])
        for place, row in enumerate(names)
    }
    print(rows, file=sys.stderr, flush=True)  # shows progress, because it takes long
    return rows


def _over_mcp(stored: str, place: Path, python: str, rounds: int) -> Rows:
    command = (python, str(PEERS / "agno_server.py"), "{port}", str(place))
    ask = partial(_run_agent, stored)
    with closing(our_server(place)) as ours, closing(RunServer(command, ask)) as theirs:
        rows = delegated("agno", ours, theirs, rounds)
    return {f"{label}; {SERVED[stored]}": row for label, row in rows.items()}


async def _run_agent(stored: str, client: RunClient) -> bool:
    done = await client.call("run_agent", {"agent_id": stored, "message": GOAL})
    return done["structuredContent"]["status"] == "COMPLETED"
