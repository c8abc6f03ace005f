"""Processes of both sides in their environments, and the comparison of their results."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.client import REPO, environment

__all__ = [
    "OURS",
    "OURS_PLAIN",
    "PEERS",
    "compared",
    "interpreter",
    "versions",
]

PEERS = REPO / "benchmarks" / "peers"
OURS = (sys.executable, "-m", "benchmarks.peers.ours")
OURS_PLAIN = (sys.executable, "-m", "benchmarks.peers.ours_plain")

_VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


def interpreter(place: Path, packages: Sequence[str]) -> str:
    """Create an environment with the newest versions of these packages; return its interpreter."""
    venv.create(place, with_pip=True)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return str(python)


def versions(python: str, packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of these packages in an environment."""
    names = [package.partition("[")[0] for package in packages]
    done = subprocess.run([python, "-c", _VERSIONS, *names], capture_output=True, check=True)
    return json.loads(done.stdout)


def costs(command: Sequence[str], variables: Mapping[str, str] | None = None) -> tuple[float, ...]:
    """Return the numbers that a side prints or, for a cold start, the cost of its process."""
    began, used = time.perf_counter(), _used_by_children()
    given = environment() | dict(variables or {})
    # All sides use the ripgrep beside our interpreter, if it is installed there.
    given["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), given.get("PATH", "")))
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, env=given, timeout=600)
    taken = time.perf_counter() - began, _used_by_children() - used
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2_000:]}")
    if command[-1] == "cold":
        return 1_000 * taken[0], 1_000 * taken[1]
    found = json.loads(done.stdout.splitlines()[-1])
    return tuple(found) if isinstance(found, list) else (found,)


def _used_by_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def compared(peer: str, found: Sequence[tuple[float, float]]) -> dict[str, float | int | None]:
    """Return the medians of both sides, and median and extremes of the peer's ratio to ours."""
    ratios = [theirs / ours for ours, theirs in found]
    return {
        "ours": round(statistics.median(ours for ours, _ in found), 2),
        peer: round(statistics.median(theirs for _, theirs in found), 2),
        "times ours": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
        "pairs": len(found),
    }
