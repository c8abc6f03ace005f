"""Our agents beside those of Agno: in process, and delegated to over MCP.

`python -m benchmarks agno` makes Agno's environment from PyPI, or takes one with `--python`. Agno's
agents have no todos, files or subagents unless they are given some, so they are compared with ours
that have none; one row shows our deep agent.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.peers.served import GOAL, RunClient, RunServer, delegated, our_server
from benchmarks.peers.sides import (
    OURS,
    OURS_PLAIN,
    PEERS,
    interpreter,
    measured,
    pairs,
    versions,
)
from benchmarks.report import Report

__all__ = ["run"]

PACKAGES = ("agno[os,mcp,sqlite]", "sqlalchemy", "fastmcp")

STEP = {"PEERS_STORED": "step"}
END = {"PEERS_STORED": "end"}
PROCESSOR = {"PEERS_CLOCK": "processor"}

MEASURES: dict[str, tuple[tuple[str, ...], str, dict[str, str]]] = {
    "a step at 200 steps, ms": (OURS_PLAIN, "step", {}),
    "a step at 200 steps, ours of a deep agent, ms": (OURS, "step", {}),
    "a step, stored at once, ms": (OURS_PLAIN, "durable_step", STEP),
    "a step, stored at once, processor ms": (OURS_PLAIN, "durable_step", STEP | PROCESSOR),
    "a step, stored at the run's end, ms": (OURS_PLAIN, "durable_step", END),
    "a step, stored at the run's end, processor ms": (OURS_PLAIN, "durable_step", END | PROCESSOR),
    "100 runs at once, ms": (OURS_PLAIN, "many", {}),
    "100 runs at once, steps stored, ms": (OURS_PLAIN, "many_durable", STEP),
    "100 runs at once, stored at the end, ms": (OURS_PLAIN, "many_durable", END),
    "cold start with first run, ms": (OURS_PLAIN, "cold", {}),
    "kept on disk a step, bytes": (OURS_PLAIN, "kept", STEP),
    "written a step, bytes": (OURS_PLAIN, "written", STEP),
}
"""By name: our side, the measure, and variables for both sides."""

EXACT = ("kept", "written")
"""Measured once: they hardly vary."""


def run(rounds: int = 9, python: str | None = None) -> Report:
    """Measure both sides in turn, `rounds` times each."""
    with tempfile.TemporaryDirectory() as folder:
        python = python or interpreter(Path(folder) / "env", PACKAGES)
        measures: dict[str, dict[str, float | int | None]] = {}
        for label, (ours, name, given) in MEASURES.items():
            theirs = (python, str(PEERS / "agno_side.py"), name)
            measures[label] = pairs(
                "agno",
                lambda ours=ours, name=name, given=given: measured((*ours, name), given),
                lambda theirs=theirs, given=given: measured(theirs, given),
                1 if name in EXACT else rounds,
            )
            print(f"{label}: {measures[label]}", file=sys.stderr, flush=True)  # it takes long
        command = (python, str(PEERS / "agno_server.py"), "{port}")
        for stored in ("step", "end"):
            place = Path(folder) / stored
            place.mkdir()
            ask, given = partial(_run_agent, stored), (*command, str(place))
            with our_server(place) as ours, RunServer(given, ask) as theirs:
                rows = delegated("agno", ours, theirs, rounds)
            measures |= {f"{label}, theirs stored by {stored}": rows[label] for label in rows}
        return Report("agno", measures, (), versions(python, PACKAGES))


async def _run_agent(stored: str, client: RunClient) -> bool:
    done = await client.call("run_agent", {"agent_id": stored, "message": GOAL})
    return done["structuredContent"]["status"] == "COMPLETED"
