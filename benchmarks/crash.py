"""Crash test: agents are killed at random moments, and no acknowledged step may be lost.

The workers of `benchmarks.crash_work` run parallel tools, subagents, file writes, calls that must
run once, and approvals, on one SQLite journal. Each worker is killed with SIGKILL after a random
time; the last one may finish. Then the journal, the effects of the tools and the files are compared
with the plan. No finished call may have run again.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from benchmarks.client import REPO
from benchmarks.crash_work import (
    EFFECTS,
    FILES,
    JOURNAL,
    build,
    effects_of,
    plan_of,
    subgoals,
)
from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.messages.message import AIMessage, Message, ToolMessage

__all__ = ["Outcome", "kill_repeatedly", "run"]

LONGEST_LIFE = 0.2
"""Maximum seconds until a worker is killed: about as long as its threads need."""

PATIENCE = 120.0
"""Seconds after which an unfinished worker counts as stuck."""

LIVES_PER_KILL = 10
"""Maximum number of workers started per kill: some finish before they are killed."""

WORKERS = (sys.executable, "-m", "benchmarks.crash_work")

AT_THE_START = 0.2
"""Share of workers that are killed while they open the journal and resume old runs."""


@dataclass(slots=True)
class Outcome:
    """The results of a series of kills.

    Attributes:
        kills: Number of workers killed at work.
        threads: Number of threads that were started and recorded.
        acknowledged: Number of acknowledged steps.
        repeated: Number of calls that ran again because their result was not stored, which is
            allowed.
        open_seconds: Seconds to open and check the journal after each kill.
        wrong: Descriptions of errors; empty if there are none.
    """

    kills: int = 0
    threads: int = 0
    acknowledged: int = 0
    repeated: int = 0
    open_seconds: list[float] = field(default_factory=list[float])
    wrong: list[str] = field(default_factory=list[str])


def run(kills: int = 1_000) -> Report:
    """Kill this number of workers, in series of a hundred, each with a new journal."""
    outcomes: list[Outcome] = []
    for left in range(kills, 0, -100):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(kill_repeatedly(Path(folder), min(left, 100), seed=left))
    wrong = [text for one in outcomes for text in one.wrong]
    for text in wrong:
        print(text, file=sys.stderr)
    opened = [1_000 * seconds for one in outcomes for seconds in one.open_seconds]
    counts = {
        "kills": sum(one.kills for one in outcomes),
        "threads": sum(one.threads for one in outcomes),
        "acknowledged steps": sum(one.acknowledged for one in outcomes),
        "calls repeated, unfinished": sum(one.repeated for one in outcomes),
    }
    return Report(
        "crash",
        {
            **{name: {"n": count} for name, count in counts.items()},
            "journal opened and checked after a kill, ms": spread(opened),
        },
        [Bar("things that must not be", len(wrong), 0, "found")],
    )


def kill_repeatedly(
    folder: Path,
    kills: int,
    seed: int,
    *,
    command: Sequence[str] = WORKERS,
    patience: float = PATIENCE,
) -> Outcome:
    """Kill workers that share a journal, let the last one finish, and check the results.

    If a worker dies by itself or is stuck, the series ends with that error.

    Args:
        folder: Directory of the journal and the files.
        kills: Number of kills.
        seed: Seed for the times of the kills.
        command: Starts the process that starts workers; the folder is its last argument.
        patience: Seconds after which a worker counts as stuck.
    """
    outcome = Outcome()
    stopped = False
    with (
        (folder / "stderr.txt").open("wb") as stderr,
        subprocess.Popen(
            [*command, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=REPO,
        ) as zygote,
    ):
        workers = _Workers(zygote, patience)
        begun: list[str] = []
        stored: list[_Ack] = []
        try:
            _live_and_die(workers, folder, kills, random.Random(seed), begun, stored, outcome)
        except _StoppedError as error:
            stopped = True
            outcome.wrong.append(str(error))
        finally:
            assert zygote.stdin is not None
            zygote.stdin.close()
    errors = (folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")
    if errors:
        outcome.wrong.append(f"a worker wrote: {errors[-4_000:]}")
    outcome.acknowledged = len(workers.acks)
    if stopped:
        return outcome
    anyio.run(_check_threads, folder, begun, workers.acks, outcome)
    _check_effects(folder, begun, [*workers.acks, *stored], outcome)
    return outcome


def _live_and_die(
    workers: _Workers,
    folder: Path,
    kills: int,
    chance: random.Random,
    begun: list[str],
    stored: list[_Ack],
    outcome: Outcome,
) -> None:
    """Kill workers and let the last one finish.

    Raises:
        _StoppedError: A worker died by itself or was stuck, or too many finished too early.
    """
    for _ in range(kills * LIVES_PER_KILL):
        fresh = [f"thread-{len(begun) + number}" for number in range(4)]
        starting = chance.random() < AT_THE_START
        life = workers.live(fresh, chance.uniform(0.0, LONGEST_LIFE), starting=starting)
        begun += fresh
        outcome.kills += life.killed
        stored += _check_after_kill(folder, life, begun, outcome)
        if outcome.kills == kills:
            break
    else:
        raise _StoppedError(
            f"only {outcome.kills} of {kills * LIVES_PER_KILL} workers were killed at work; the "
            "others were done before"
        )
    last = workers.live([], None)
    if last.status != 0:
        outcome.wrong.append(f"the last worker ended with status {last.status}")


class _StoppedError(Exception):
    """The series cannot continue; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class _Ack:
    at: int
    thread_id: str
    checkpoint_id: str | None
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Life:
    killed: bool
    status: int
    acks: list[_Ack]


class _Workers:
    """Starts workers one after another, and reads their output."""

    def __init__(self, zygote: subprocess.Popen[bytes], patience: float) -> None:
        self._zygote = zygote
        self._patience = patience
        self._worker: int | None = None
        self._stuck = False
        self.acks: list[_Ack] = []

    def live(self, threads: list[str], seconds: float | None, *, starting: bool = False) -> _Life:
        """Start a worker and kill it after `seconds`, unless it has finished.

        The time counts from its first acknowledged step or, with `starting`, from its start.

        Raises:
            _StoppedError: The worker died by itself, or was stuck.
        """
        self._worker = None
        watchdog = threading.Timer(self._patience, self._give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            life = self._live(threads, seconds, starting)
        finally:
            watchdog.cancel()
        if self._stuck:
            raise _StoppedError(f"a worker was not done after {self._patience:.0f} s")
        if life.status not in (0, -signal.SIGKILL):
            raise _StoppedError(f"a worker died by itself with status {life.status}")
        return life

    def _give_up(self) -> None:
        self._stuck = True
        if self._worker is None:
            self._zygote.kill()
        else:
            _kill(self._worker, 0)

    def _live(self, threads: list[str], seconds: float | None, starting: bool) -> _Life:
        assert self._zygote.stdin is not None
        with suppress(BrokenPipeError):  # the missing output is reported later
            self._zygote.stdin.write(f"work {' '.join(threads)}\n".encode())
            self._zygote.stdin.flush()
        acks: list[_Ack] = []
        for words in self._lines():
            match words:
                case ["started", worker]:
                    self._worker = int(worker)
                    if seconds is not None and starting:
                        _kill(self._worker, seconds)
                case ["ack", at, thread_id, checkpoint, calls]:
                    if self._worker and seconds is not None and not acks and not starting:
                        _kill(self._worker, seconds)
                    named = () if calls == "-" else tuple(calls.split(","))
                    known = None if checkpoint == "-" else checkpoint
                    acks.append(_Ack(int(at), thread_id, known, named))
                case ["ended", status]:
                    self.acks += acks
                    return _Life(int(status) == -signal.SIGKILL, int(status), acks)
                case _:
                    pass
        raise _StoppedError("the process that starts workers has ended")

    def _lines(self) -> Iterator[list[str]]:
        assert self._zygote.stdout is not None
        for line in self._zygote.stdout:
            # Ignore a line that the kill cut off.
            if line.endswith(b"\n"):
                yield line.decode().split()


def _kill(worker: int, seconds: float) -> None:
    time.sleep(seconds)
    with suppress(ProcessLookupError):  # it has finished already
        os.kill(worker, signal.SIGKILL)


def _check_after_kill(folder: Path, life: _Life, begun: list[str], outcome: Outcome) -> list[_Ack]:
    """Check that the journal is intact and contains the last acknowledged step of each thread.

    This is not possible later, because a repeated step gets the same id. Returns the calls of
    unfinished steps with a stored result; these were not acknowledged.
    """
    if not (folder / JOURNAL).exists():
        return []
    began = time.perf_counter()
    with closing(sqlite3.connect(folder / JOURNAL)) as database:
        (whole,) = database.execute("PRAGMA integrity_check").fetchone()
    if whole != "ok":
        outcome.wrong.append(f"the file is damaged: {whole}")
    missing, stored = anyio.run(_look, folder, life, begun)
    outcome.wrong += missing
    outcome.open_seconds.append(time.perf_counter() - began)
    return stored


async def _look(folder: Path, life: _Life, begun: list[str]) -> tuple[list[str], list[_Ack]]:
    newest = {one.thread_id: one.checkpoint_id for one in life.acks if one.checkpoint_id}
    missing: list[str] = []
    stored: list[_Ack] = []
    async with SqliteCheckpointer(folder / JOURNAL) as journal:
        for thread, checkpoint in newest.items():
            if await journal.load(thread, checkpoint_id=checkpoint) is None:
                missing.append(f"{checkpoint} of {thread} was acknowledged and is gone")
        for thread in begun:
            head = await journal.load(thread)
            calls = tuple(one.task_id for one in head.pending) if head is not None else ()
            if calls:
                stored.append(_Ack(time.monotonic_ns(), thread, None, calls))
    return missing, stored


async def _check_threads(
    folder: Path, begun: list[str], acks: list[_Ack], outcome: Outcome
) -> None:
    """Compare each thread with its plan: run record, transcript and files."""
    promised = {one.thread_id for one in acks}
    async with SqliteCheckpointer(folder / JOURNAL) as journal:
        agent = build(folder, journal)
        for thread_id in begun:
            runs = await journal.find_runs(thread_id=thread_id)
            if not runs:
                if thread_id in promised:
                    outcome.wrong.append(f"{thread_id} was acknowledged and has no run")
                continue
            outcome.threads += 1
            if [(one.status, one.answer) for one in runs] != [("done", "Finished.")]:
                ends = [(one.status, one.reason) for one in runs]
                outcome.wrong.append(f"{thread_id} did not finish: {ends}")
                continue
            state = await agent.get_state(thread_id)
            outcome.wrong += _strange(thread_id, state.values["messages"])
            outcome.wrong += [
                f"{thread_id}: {path.name} does not hold {text!r}"
                for path, text in _files(folder, thread_id)
                if path.read_text(encoding="utf-8") != text
            ]


def _strange(thread_id: str, messages: Sequence[Message]) -> list[str]:
    """Return descriptions of differences between a transcript and the plan."""
    found = [one for one in messages if isinstance(one, AIMessage | ToolMessage)]
    expected: list[tuple[str, tuple[str, ...]]] = []
    for turn in plan_of(thread_id):
        expected.append(("calls", tuple(call.id for call in turn)))
        expected += [("result", (call.id,)) for call in turn]
    shape = [
        ("calls", tuple(call.id for call in one.tool_calls))
        if isinstance(one, AIMessage)
        else ("result", (one.tool_call_id,))
        for one in found
    ]
    if shape != [*expected, ("calls", ())]:
        return [f"{thread_id} has another transcript: {shape}"]
    # A call that may have run before the kill is allowed to fail.
    return [
        f"{thread_id}: {one.name} failed: {one.text}"
        for one in found
        if isinstance(one, ToolMessage)
        and one.status == "error"
        and not (one.name == "pay" and "not known" in one.text)
        and one.name != "edit_file"
    ]


def _files(folder: Path, thread_id: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a thread with their expected content."""
    yield folder / FILES / f"{thread_id}.txt", "two"
    for sub in subgoals(thread_id):
        yield folder / FILES / f"{sub}.txt", sub


def _check_effects(folder: Path, begun: list[str], acks: list[_Ack], outcome: Outcome) -> None:
    """Check that no call started after its result was stored, and that `pay` ran at most once."""
    stored: dict[str, int] = {}
    for one in acks:
        for call in one.calls:
            stored[call] = min(one.at, stored.get(call, one.at))
    times: Counter[str] = Counter()
    for line in (folder / EFFECTS).read_text(encoding="utf-8").splitlines():
        _, at, call = line.split()
        times[call] += 1
        if int(at) > stored.get(call, int(at)):
            outcome.wrong.append(f"{call} ran again after its result was stored")
    outcome.repeated = sum(count - 1 for count in times.values())
    planned = {call for thread_id in begun for call in effects_of(thread_id)}
    outcome.wrong += [f"{call} ran unasked" for call in times.keys() - planned]
    plans = [call for thread_id in begun for turn in plan_of(thread_id) for call in turn]
    once = {call.id for call in plans if call.name == "pay"}
    outcome.wrong += [f"{call} must run once and ran again" for call in once if times[call] > 1]
    # A call that must run once is marked before it starts, so a kill in between leaves no effect.
    never = (stored.keys() & planned) - once - times.keys()
    outcome.wrong += [f"{call} has a result and never ran" for call in never]
