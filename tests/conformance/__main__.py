"""Run the official conformance suite against our server, and print the results.

With `--replicas 3`, three servers share one journal in Postgres, behind a balancer that passes each
request to the next server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("node@22.23.3", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
"""The suite, and a Node version that is new enough for it, both from npm."""

SETS = {"2026-07-28": 37, "2025-11-25": 30}
"""Number of scored scenarios by requirement set."""

TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
SKILLS = (
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "sep-2640-skills-directory",
)
_LINE = re.compile(r"^([✓✗]) ([a-z0-9-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
_UNSCORED = re.compile(r"^  [✓✗] ([a-z0-9-]+) \([\w-]+\)", re.MULTILINE)


@dataclass
class Outcome:
    """The results of one set, or of the extensions: which scenarios passed."""

    name: str
    scenarios: dict[str, bool] = field(default_factory=dict)
    output: str = ""

    @property
    def passed(self) -> int:
        return sum(self.scenarios.values())

    @property
    def failed(self) -> list[str]:
        return [name for name, passed in self.scenarios.items() if not passed]


class Suite:
    """The suite's command line, installed in a directory.

    Args:
        place: Directory of its packages; they are installed if missing.
        work: Directory for reports and the servers' state.
        replicas: Number of servers that share a journal; 0 for one server with its own journal.
    """

    def __init__(self, place: Path, work: Path, replicas: int = 0) -> None:
        self._place = place
        self._replicas = replicas
        self._work = work
        self._count = 0
        modules = place / "node_modules"
        self._node = modules / ".bin" / "node"
        self._script = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    def install(self) -> None:
        """Install missing packages."""
        if self._node.exists() and self._script.exists():
            return
        self._place.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self._place)]
        subprocess.run([*command, *PACKAGES], check=True, capture_output=True, timeout=900)

    def requirements(self, version: str) -> Outcome:
        """Run the required scenarios of a protocol revision."""
        with self._serving() as url:
            output = self._run("--url", url, "--requirements", version)
        unscored = set(_UNSCORED.findall(output))
        found = {
            name: failed == "0"
            for _, name, _, failed in _LINE.findall(output)
            if name not in unscored
        }
        return Outcome(version, found, output)

    def scenarios(self, name: str, wanted: Sequence[str]) -> Outcome:
        """Run scenarios that are in no requirement set."""
        outcome = Outcome(name)
        with self._serving() as url:
            for scenario in wanted:
                output = self._run("--url", url, "--scenario", scenario)
                outcome.scenarios[scenario] = "FAILURE" not in self._statuses(scenario)
                outcome.output += output
        return outcome

    def _run(self, *flags: str) -> str:
        self._count += 1
        reports = self._work / f"reports-{self._count}"
        command = [str(self._node), str(self._script), "server", *flags, "-o", str(reports)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr

    def _statuses(self, scenario: str) -> set[str]:
        """Return the statuses in a scenario's report; a scenario without a report has failed."""
        reports = self._work / f"reports-{self._count}"
        found = [*reports.glob(f"*{scenario}*/checks.json")]
        checks: list[dict[str, Any]] = json.loads(found[0].read_text()) if found else []
        return {check["status"] for check in checks} or {"FAILURE"}

    @contextmanager
    def _serving(self) -> Iterator[str]:
        """Serve until the block ends; yields the URL."""
        with ExitStack() as stack:
            if not self._replicas:
                yield stack.enter_context(self._process("tests.conformance.fixture_server"))
                return
            from tests.databases import made_database
            from tests.replicas.servers import journal_url

            database = stack.enter_context(contextmanager(made_database)())
            server = ("tests.conformance.fixture_server", journal_url(database))
            urls = [stack.enter_context(self._process(*server)) for _ in range(self._replicas)]
            yield stack.enter_context(self._process("tests.replicas.round_robin", *urls))

    @contextmanager
    def _process(self, module: str, *args: str) -> Iterator[str]:
        """Start a process and yield the URL that it prints."""
        place = Path(tempfile.mkdtemp(dir=self._work))
        own = [str(place)] if module.endswith("_server") else []
        command = [sys.executable, "-m", module, *own, *args]
        environment = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(ROOT)}
        with (place / "stderr.txt").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=place
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (place / "stderr.txt").read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            process.wait(10)


def main() -> int:
    """Run everything; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--packages", type=Path, help="where the suite is, or shall be, installed")
    parser.add_argument("--install", action="store_true", help="only install the suite")
    parser.add_argument("--replicas", type=int, default=0, help="servers behind a balancer")
    parser.add_argument("--verbose", action="store_true", help="print what the suite says")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        suite = Suite(given.packages or Path(work) / "packages", Path(work), given.replicas)
        suite.install()
        if given.install:
            return 0
        outcomes = [suite.requirements(version) for version in SETS]
        outcomes += [suite.scenarios("tasks", TASKS), suite.scenarios("skills", SKILLS)]
    wanted = {**SETS, "tasks": len(TASKS), "skills": len(SKILLS)}
    ok = all(one.passed == wanted[one.name] for one in outcomes)
    if given.json:
        sets = {one.name: _shown(one, wanted[one.name]) for one in outcomes}
        print(json.dumps({"name": "conformance", "ok": ok, "sets": sets}, indent=2))
    else:
        for one in outcomes:
            print(f"{one.name}: {one.passed} of {wanted[one.name]}", *one.failed)
    if given.verbose:
        print(*(one.output for one in outcomes), sep="\n", file=sys.stderr)
    return 0 if ok else 1


def _shown(outcome: Outcome, wanted: int) -> dict[str, Any]:
    counts = {"passed": outcome.passed, "failed": len(outcome.failed), "required": wanted}
    return {**counts, "scenarios": outcome.scenarios}


if __name__ == "__main__":
    sys.exit(main())
