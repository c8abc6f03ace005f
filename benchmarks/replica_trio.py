"""Replicas as processes: servers with `benchmarks.replica_work` on one Postgres journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.client import REPO
from benchmarks.replica_work import EFFECTS

__all__ = ["Effect", "Effects", "Fleet", "Replica", "Start", "replicas", "started"]


class Process(Protocol):
    """The methods of a process that are used here."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...


Start = Callable[[Sequence[str], Mapping[str, str], int, int], Process]
"""Starts a process with arguments, environment, and descriptors for its output and errors."""


def started(
    command: Sequence[str], env: Mapping[str, str], stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    """Start a process with `subprocess`."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env, cwd=REPO
    )


@dataclass
class Replica:
    """One server process.

    Attributes:
        name: Its name, which is used for its files.
        process: The process.
        url: Its URL for clients.
        port: Its port.
        log: File with its standard error.
    """

    name: str
    process: Process
    url: str
    port: int
    log: Path

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> None:
        """Suspend the process."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the suspended process."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Stop the process like an operator, if it is running."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


@dataclass(frozen=True)
class Effect:
    """One line in the log of tools.

    Attributes:
        begins: Whether the tool started; else it ended.
        tool: The tool.
        call: The call.
        pid: The process.
        run_id: The run.
        at: Seconds of the system's monotonic clock.
    """

    begins: bool
    tool: str
    call: str
    pid: int
    run_id: str
    at: float


@dataclass
class Effects:
    """The log of tools.

    Attributes:
        file: The log file.
    """

    file: Path

    def all(self) -> list[Effect]:
        """Return all lines, oldest first."""
        if not self.file.exists():
            return []
        lines = (one.split() for one in self.file.read_text(encoding="utf-8").splitlines())
        return [
            Effect(word == "begin", tool, call, int(pid), run_id, int(at) / 1e9)
            for word, tool, call, pid, run_id, at in lines
        ]

    def begun(self, tool: str | None = None, pid: int | None = None) -> list[Effect]:
        """Return the starts of tools, optionally of one tool and in one process."""
        return [
            one
            for one in self.all()
            if one.begins and tool in (None, one.tool) and pid in (None, one.pid)
        ]

    def ended(self) -> list[Effect]:
        """Return the ends of tools."""
        return [one for one in self.all() if not one.begins]

    def repeated(self, tool: str | None = None) -> list[str]:
        """Return the calls that started more than once."""
        calls = Counter(one.call for one in self.begun(tool))
        return [call for call, count in calls.items() if count > 1]


@dataclass
class Fleet:
    """Replicas that share a journal.

    Attributes:
        place: Directory of their directories.
        effects: The log of their tools.
        all: Started replicas by name.
    """

    place: Path
    url: str
    start: Start
    flags: Sequence[str]
    env: Mapping[str, str]
    agent: str = "benchmarks.replica_work:agent"
    effects: Effects = field(init=False)
    all: dict[str, Replica] = field(default_factory=dict[str, Replica])

    def __post_init__(self) -> None:
        self.effects = Effects(self.place / "effects.log")

    def begin(self, name: str, *, url: str | None = None) -> Replica:
        """Start another replica, and wait until it listens."""
        folder = self.place / name
        folder.mkdir(exist_ok=True)
        command = [
            *(sys.executable, "-m", "deep_agent_mcp", "serve", *filter(None, [self.agent])),
            *("--transport", "http", "--port", "0", "--state-dir", str(folder / "state")),
            *("--replicas", *self.flags),
        ]
        kept = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT") if key in os.environ}
        env = {
            **kept,
            "HOME": str(folder),
            "PYTHONPATH": str(REPO),
            "DEEP_AGENT_JOURNAL": url or self.url,
            EFFECTS: str(self.effects.file),
            **self.env,
        }
        log = folder / "stderr.txt"
        said, out = os.pipe()
        with log.open("ab") as errors, open(out, "wb") as its_out:
            process = self.start(command, env, its_out.fileno(), errors.fileno())
        with open(said, "rb") as stdout:
            line = stdout.readline()
        if not line:
            process.wait(30)
            raise RuntimeError(log.read_text(encoding="utf-8"))
        facts: dict[str, Any] = json.loads(line)
        made = Replica(name, process, facts["url"], facts["port"], log)
        self.all[name] = made
        return made


@contextmanager
def replicas(
    place: Path,
    url: str,
    names: Sequence[str],
    *,
    start: Start = started,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    agent: str = "benchmarks.replica_work:agent",
) -> Generator[Fleet]:
    """Start replicas, and stop all of them after the block.

    Args:
        place: Directory of their state and logs.
        url: URL of the journal.
        names: Names of the replicas.
        start: Starts a process.
        flags: Additional options of `serve`.
        env: Additional environment variables.
        agent: The agent that they serve; empty for the built-in one.
    """
    fleet = Fleet(place, url, start, flags, env or {}, agent)
    try:
        for name in names:
            fleet.begin(name)
        yield fleet
    finally:
        for one in fleet.all.values():
            one.end()
