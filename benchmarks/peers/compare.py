"""Comparison of our deep agents with `deepagents` (with LangChain and LangGraph), on the same work.

Each side runs in its own environment, with the same scripted model and tool. Each measurement is a
new process; the sides alternate. `python -m benchmarks peers` installs deepagents from PyPI, or
uses the environment of `--python`. See `measure` for the measurements.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.peers.sides import OURS, PEERS, compared, costs, interpreter, versions
from benchmarks.report import Bar, Report
from benchmarks.search import COUNTED, generate

__all__ = ["run"]

PACKAGES = ("deepagents", "langchain", "langgraph", "langgraph-checkpoint-sqlite")
PEER = str(PEERS / "deepagents_side.py")

MEASURES: dict[str, tuple[str, tuple[str, ...], float]] = {
    "a step at 200 steps, ms": ("step", (), 35),
    "a durable step, ms": ("durable_step", (), 12),
    "100 runs at once, ms": ("many", (), 20),
    "100 durable runs at once, ms": ("many_durable", (), 20),
    "32 subagents at once, ms": ("children", (), 12),
    "cold start with first run, ms": ("cold", (), 4),
    "kept on disk a step, bytes": ("kept", (), 7),
    "written a step, bytes": ("written", (), 1.5),
    "history of a thread, ms": ("history", (), 49),
    "all states of a thread, ms": ("states", (), 3),
    "glob **/*.py, ms": ("glob", ("**/*.py",), 12),
    "grep, a rare word, ms": ("grep", ("needle_7",), 0.8),
    "grep, a word of no file, ms": ("grep", ("absent",), 0.8),
    "grep, a common word, ms": ("grep", (COUNTED,), 1.2),
    "prompt and tool schemas, characters": ("prompt", (), 1 / 0.7),
}
"""By name: the measurement, its arguments, and the minimum ratio of deepagents' cost to ours.

For words in few files, both sides wait for ripgrep. Ours also looks into hidden and ignored files,
and leaves out huge ones, so its ripgrep alone takes longer than theirs.
"""


def run(rounds: int = 3, python: str | None = None) -> Report:
    """Measure both sides alternately, `rounds` times each."""
    with tempfile.TemporaryDirectory() as folder:
        python = python or interpreter(Path(folder) / "env", PACKAGES)
        root = Path(folder) / "files"
        generate(root)
        measures: dict[str, dict[str, float | int | None]] = {}
        bars: list[Bar] = []
        for label, (name, options, wanted) in MEASURES.items():
            given = (name, str(root), *options) if options else (name,)
            found = [
                (costs((*OURS, *given)), costs((python, PEER, *given)))
                for _ in range(1 if name == "prompt" else rounds)
            ]
            for place, row in enumerate((label, f"{label} of processor time")[: len(found[0][0])]):
                values = [(ours[place], theirs[place]) for ours, theirs in found]
                measures[row] = compared("deepagents", values)
                print(f"{row}: {measures[row]}", file=sys.stderr, flush=True)  # it takes long
            judged = measures.get(f"{label} of processor time", measures[label])
            ratio = judged["times ours"] or 0.001
            bars.append(Bar(f"{label}: share of deepagents'", 1 / ratio, round(1 / wanted, 3), "x"))
        return Report("peers", measures, bars, versions(python, PACKAGES))
