"""Runs the tests in several processes, forked when all tests have been collected.

Importing and collecting all tests takes longer than most of them together, so one process does it
for all. Each takes the next unit of tests, what takes long first, until none is left: none waits
long for another at the end. A unit is a file, or a directory whose tests share what is dear to
start. `-n auto` means this where it works, on Linux; `-n 2` is pytest-xdist, `-n 0` one process.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

__all__ = ["WORKERS", "ForkedRun", "can_fork", "compiled_beside"]

WORKERS = pytest.StashKey[int]()
"""How many processes a run has."""

ROOT = Path(__file__).parent

SECONDS = {
    "replicas": 110,
    "e2e": 90,
    "server": 100,
    "viewer": 60,
    "checkpoint": 70,
    "models": 50,
    "middleware": 45,
    "backends": 25,
    "shell": 40,
    "store": 35,
    "loop": 25,
    "policy": 20,
    "subagents": 18,
    "mcp_servers": 18,
    "terminal": 18,
    "telemetry": 11,
    "skills": 10,
    "agent_file": 10,
    "studio": 8,
    "redaction": 6,
    "definitions": 5,
    "agenda": 5,
    "conformance": 5,
    "plugins": 4,
    ".": 30,
    "replicas/test_deaths.py": 60,
    "replicas/test_chaos.py": 40,
    "e2e/test_hostile_calls.py": 30,
    "e2e/test_hostile_input.py": 20,
    "backends/test_confinement.py": 22,
    "models/test_broken_vendor_streams.py": 20,
    "server/test_sampling.py": 20,
    "shell/test_escapes.py": 25,
    "test_crash.py": 8,
}
"""Roughly what the tests of a directory take of a slow core, and of some files in it beside that.

Of others it is next to nothing.
"""

WHOLE = {"viewer", "mcp_servers", "store"}
"""Directories whose tests share what is dear to start, such as a browser, in one process."""

Unit: TypeAlias = Sequence[pytest.Item]


def can_fork() -> bool:
    """Whether this system tells when a process has ended that was forked."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def units(items: Sequence[pytest.Item]) -> list[Unit]:
    """Return what stays together in one process, what takes longest first."""
    found: dict[object, list[pytest.Item]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for item in items:
        name = _directory(item)
        counts[name] += 1
        found[name if name in WHOLE else item.path].append(item)

    def seconds(unit: Unit) -> float:
        name = _directory(unit[0])
        own = SECONDS.get(unit[0].path.relative_to(ROOT).as_posix())
        return own or SECONDS.get(name, 0.0) * len(unit) / counts[name]

    return sorted(found.values(), key=seconds, reverse=True)


def _directory(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0] if item.path.parent != ROOT else "."


@contextmanager
def compiled_beside(files: Sequence[Path]) -> Generator[None]:
    """Compile files that were never imported, from the last on, while we import from the first."""
    if not files or (files[-1].parent / "__pycache__").is_dir():
        yield
        return
    pid = os.fork()
    if not pid:
        for path in reversed(files):
            with suppress(BaseException):  # who collects it is told what is wrong
                name = path.relative_to(ROOT.parent).with_suffix("")
                importlib.import_module(".".join(name.parts))
        os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@dataclass
class _Worker:
    """A process, from the one that forked it.

    Attributes:
        name: What its reports are shown with.
        pid: Its number.
        ended: A descriptor that can be read when it has ended.
        heard: Its messages.
        left: The tests it has taken and not finished.
        broken: Why it gave up, if it could say so.
    """

    name: str
    pid: int
    ended: int
    heard: Connection
    left: deque[pytest.Item]
    broken: str = ""


class ForkedRun:
    """Runs the tests of a session.

    Args:
        session: All are collected.
        count: How many processes there are.
    """

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._units = units(session.items)
        self._count = min(count, len(self._units))
        self._workers: list[_Worker] = []
        self._unfinished = len(session.items)
        self._numbers = iter(range(1_000_000))
        self._base: Path = session.config._tmp_path_factory.getbasetemp()
        # Whoever reads from the pipe has the next unit; what is in it fits its buffer.
        self._next, sink = os.pipe()
        with open(sink, "wb") as file:
            file.write(b"".join(one.to_bytes(2, "big") for one in range(len(self._units))))

    def run(self) -> None:
        try:
            for _ in range(self._count):
                self._begin([])
            while self._workers:
                ready = wait([one for each in self._workers for one in (each.heard, each.ended)])
                for worker in [*self._workers]:
                    if worker.heard in ready or worker.ended in ready:
                        self._hear(worker)
            if self._unfinished:
                raise RuntimeError(f"{self._unfinished} tests did not run")
        finally:
            self._stop()
            os.close(self._next)

    def _begin(self, first: Unit) -> None:
        """Start a process that runs these tests, then those that nobody has taken."""
        heard, told = Pipe(duplex=False)
        name = f"worker{next(self._numbers)}"
        pid = os.fork()
        if not pid:
            _work(self._session, name, self._base / name, told, self._taken(first, told))
        told.close()
        self._workers.append(_Worker(name, pid, os.pidfd_open(pid), heard, deque(first)))

    def _taken(self, first: Unit, told: Connection) -> Iterator[pytest.Item]:
        yield from first
        while number := os.read(self._next, 2):
            told.send(("takes", int.from_bytes(number, "big")))
            yield from self._units[int.from_bytes(number, "big")]

    def _hear(self, worker: _Worker) -> None:
        ended = wait([worker.ended], 0)  # before all that it said is read
        with suppress(EOFError, OSError):
            while worker.heard.poll():
                self._take(worker, *worker.heard.recv())
        if not ended:
            return
        _, status = os.waitpid(worker.pid, 0)
        self._workers.remove(worker)
        os.close(worker.ended)
        worker.heard.close()
        code = os.waitstatus_to_exitcode(status)
        if worker.left:
            self._report_end(worker, code)
            self._begin([*worker.left])
        elif code:
            raise RuntimeError(f"a process of tests ended with {code}. {worker.broken}")

    def _take(self, worker: _Worker, kind: str, value: Any) -> None:
        session, hook = self._session, self._session.config.hook
        if kind == "takes":
            worker.left.extend(self._units[value])
        elif kind == "broken":
            worker.broken = value
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=value)
            report.node = SimpleNamespace(  # as pytest-xdist says it
                gateway=SimpleNamespace(id=worker.name), _workerinfocache=f"[{worker.name}]"
            )
            hook.pytest_runtest_logreport(report=report)
        else:
            item = worker.left.popleft()
            self._unfinished -= 1
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _report_end(self, worker: _Worker, code: int) -> None:
        """Let a test fail whose process has ended."""
        item = worker.left.popleft()
        self._unfinished -= 1
        text = f"the process of this test ended with {code}. {worker.broken}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)

    def _stop(self) -> None:
        for worker in self._workers:
            os.kill(worker.pid, signal.SIGINT)  # it tears down what it has set up
        end = time.monotonic() + 20
        for worker in self._workers:
            wait([worker.ended], max(0.0, end - time.monotonic()))
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


class _Reporter:
    """Tells the process that forked this one what it ran."""

    def __init__(self, config: pytest.Config, told: Connection) -> None:
        self._config = config
        self._told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._told.send(("report", data))

    def pytest_runtest_logfinish(self) -> None:
        self._told.send(("ends", None))


def _work(
    session: pytest.Session, name: str, place: Path, told: Connection, items: Iterable[pytest.Item]
) -> None:
    """Run tests in a forked process; end it."""
    code = 1
    try:
        config = session.config
        random.seed()
        place.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = place
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(_Reporter(config, told))
        _capture_here(config)
        try:
            for item, following in pairwise(chain(items, [None])):
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException:
            session._setupstate.teardown_exact(None)
            raise
        code = 0
    except BaseException:  # noqa: BLE001  the other process tells of it
        told.send(("broken", traceback.format_exc()))
    finally:
        told.close()
        os._exit(code)


def _capture_here(config: pytest.Config) -> None:
    """Capture into files of this process; the streams stay those that others have already."""
    capture = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for stream, number in ((capture.out, 1), (capture.err, 2)):
        if hasattr(stream, "tmpfile"):
            with TemporaryFile() as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)
                os.dup2(file.fileno(), number)
