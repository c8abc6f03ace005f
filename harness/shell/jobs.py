"""Commands that continue in the background, each with its own thread.

A job belongs to a thread of the journal and lives in this process, even after the end of its run
and event loop. Its supervisor ends it with the process. Its output is written to a file
immediately, so it can be read while the job runs, and after the process has ended.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from .._internal.records import record
from ..errors import ToolError
from .output import Output
from .session import CommandResult, ShellSession

__all__ = ["Job", "JobLimits", "JobPage", "JobPool", "default_directory"]

_TAIL_BYTES = 16 << 10
_KEPT_JOBS = 1_000
_FORGET_SECONDS = 5
_KEPT_SECONDS = 7 * 24 * 3_600
_ID = re.compile(r"job_[0-9a-f]{12}")


@record
class JobLimits:
    """Limits of background jobs: number, time and output.

    Attributes:
        running: Jobs of a thread that run at once.
        running_in_all: Jobs of this process that run at once.
        seconds: How long each may run.
        output_bytes: How much of its output is kept; of longer output, the start and the end.
    """

    running: int = 4
    running_in_all: int = 64
    seconds: float = 3_600.0
    output_bytes: int = 8 << 20


@record
class JobPage:
    """A part of a job's output.

    Attributes:
        data: The bytes.
        offset: Their start in the output.
        size: How many bytes are available now.
    """

    data: bytes
    offset: int
    size: int


class _Spool:
    """Receives a job's output; a `Sink`."""

    def __init__(self, path: Path, most: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._most = most
        self._tail = bytearray()
        self._size = 0

    async def add(self, data: bytes) -> None:
        """Write the next bytes. This may block, because a job's thread has nothing else to do."""
        room = max(0, self._most - self._size)
        self._size += len(data)
        _write(self._fd, data[:room])
        self._tail += data[room:]
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]

    async def finish(self) -> Output:
        """Write the end, if there was too much in between."""
        tail = bytes(self._tail[-_TAIL_BYTES:])
        left_out = self._size - self._most - len(tail)
        if left_out > 0:
            _write(self._fd, f"\n[… {left_out} bytes left out …]\n".encode())
        _write(self._fd, tail)
        return Output(b"", b"", self._size)

    def close(self) -> None:
        """Close the file, and keep it."""
        os.close(self._fd)


@dataclass(slots=True)
class Job:
    """One command in the background.

    Attributes:
        id: Its handle.
        thread_id: The thread it belongs to.
        ns: Namespace of the agent that started it.
        command: The command.
        path: The file with its output.
        began: Unix time of its start, in seconds.
        result: How it ended; None while it runs.
        told: Whether an agent was told how it ended.
        stopped: Whether it was asked to end.
    """

    id: str
    thread_id: str
    ns: str
    command: str
    path: Path
    began: float = field(default_factory=time.time)
    result: CommandResult | None = None
    told: bool = False
    stopped: bool = False
    _session: ShellSession | None = None
    _over: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        one = self.result
        if one is None:
            return f"running for {time.time() - self.began:.0f} s"
        took = f"after {one.seconds:.1f} s"
        if self.stopped:
            return f"stopped {took}"
        if one.passed:
            return f"stopped {took}: {one.passed}"
        if one.ending == "timeout":
            return f"stopped {took}, the longest a job may run"
        return f"exit code {one.exit_code} {took}"

    def stop(self) -> None:
        """Start to end it, with all its processes."""
        if self.result is None and self._session is not None:
            self.stopped = True
            self._session.hang_up()

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        with self._lock:
            own = os.dup(self._over) if self._over >= 0 else -1  # each waiter needs its own
        if own >= 0:
            try:
                with anyio.move_on_after(seconds):
                    await anyio.wait_readable(own)
            finally:
                os.close(own)
        return self.result is not None

    def start(self, session: ShellSession, limits: JobLimits) -> None:
        """Run the command in a session, in a separate thread."""
        spool = _Spool(self.path, limits.output_bytes)
        self._session = session
        self._over, open_until_then = os.pipe()

        async def run() -> None:
            result = await session.run(self.command, limits.seconds, spool)
            await session.close()
            self.result = result

        def follow() -> None:
            try:
                anyio.run(run)
            except BaseException as error:  # noqa: BLE001 - there is no caller to handle it
                nothing = Output(b"", b"", 0)
                why = f"it could not be followed: {type(error).__name__}: {error}"
                self.result = CommandResult(nothing, "ended", None, time.time() - self.began, why)
                session.hang_up()
            finally:
                os.close(open_until_then)  # wakes the waiting callers
                with self._lock:
                    os.close(self._over)
                    self._over = -1

        # A daemon, as the program must not wait for it to end: the supervisor ends the job then.
        threading.Thread(target=follow, name=self.id, daemon=True).start()


class JobPool:
    """Job pool: the background jobs of this process.

    Args:
        directory: The directory for output; created if missing.
        limits: Bounds.
    """

    def __init__(self, directory: Path, limits: JobLimits) -> None:
        self.limits = limits
        self._directory = directory
        self._jobs: dict[str, Job] = {}
        self._closings = 0

    def of(self, thread_id: str) -> Sequence[Job]:
        """Return the jobs of a thread, oldest first."""
        return [one for one in self._jobs.values() if one.thread_id == thread_id]

    def get(self, job_id: str) -> Job | None:
        """Return a job of any thread."""
        return self._jobs.get(job_id)

    def require_room(self, thread_id: str) -> None:
        """Raise `ToolError` if no further job may run."""
        running = [one for one in self._jobs.values() if one.result is None]
        own = [one for one in running if one.thread_id == thread_id]
        if len(own) >= self.limits.running:
            raise ToolError(
                f"No job was started: {len(own)} jobs of this thread run, which is the most. "
                f"Wait for one or stop one: {', '.join(one.id for one in own)}."
            )
        if len(running) >= self.limits.running_in_all:
            raise ToolError(
                "No job was started: too many jobs of other threads are running. Try again later, "
                "or run the command without background."
            )

    async def start(self, session: ShellSession, thread_id: str, ns: str, command: str) -> Job:
        """Run a command in a session, which the job closes in the end.

        Raises:
            ToolError: Too many are running, or its thread was deleted meanwhile.
            OSError: Its output cannot be kept.
        """
        self.require_room(thread_id)
        closings = self._closings
        self._prune()
        job_id = f"job_{secrets.token_hex(6)}"
        job = Job(job_id, thread_id, ns, command, self._path(job_id))
        self._jobs[job_id] = job
        try:
            await anyio.to_thread.run_sync(self._prepare)
            if self._closings != closings:  # nothing would end it
                raise ToolError("No job was started: the agent was closed in the meantime.")
            if job_id not in self._jobs:
                raise ToolError("No job was started: its thread was deleted in the meantime.")
            job.start(session, self.limits)
        except BaseException:
            self._jobs.pop(job_id, None)
            raise
        return job

    async def page(self, job_id: str, offset: int | None, limit: int) -> JobPage | None:
        """Return a part of a job's output, also of an earlier process; None if it is gone.

        Args:
            job_id: The job.
            offset: The start, in bytes; None for the end of the current output.
            limit: The most bytes.
        """
        if not _ID.fullmatch(job_id):
            return None
        return await anyio.to_thread.run_sync(_page, self._path(job_id), offset, limit)

    async def aclose(self) -> None:
        """End all jobs, including jobs that are about to start."""
        self._closings += 1
        running = [one for one in self._jobs.values() if one.result is None]
        for one in running:
            one.stop()
        with anyio.CancelScope(shield=True):
            for one in running:
                await one.wait(30)

    async def forget(self, thread_id: str) -> None:
        """End the jobs of a thread that no longer exists, and delete their output."""
        own = self.of(thread_id)
        for one in own:
            del self._jobs[one.id]
            one.stop()
        with anyio.move_on_after(_FORGET_SECONDS, shield=True):
            for one in own:
                await one.wait(_FORGET_SECONDS)
        if own:
            await anyio.to_thread.run_sync(_unlink, [one.path for one in own])

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.out"

    def _prepare(self) -> None:
        """Create the directory, and remove output files without changes for days."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in self._directory.glob("job_*.out"):
            try:
                if time.time() - one.lstat().st_mtime > _KEPT_SECONDS:
                    one.unlink()
            except OSError:
                continue  # another process was faster

    def _prune(self) -> None:
        """Forget the oldest ended jobs, first those whose end was reported."""
        ended = [one for one in self._jobs.values() if one.result is not None]
        ended.sort(key=lambda one: (not one.told, one.began))
        for one in ended[:-_KEPT_JOBS]:
            del self._jobs[one.id]


def _unlink(paths: Sequence[Path]) -> None:
    for one in paths:
        with suppress(OSError):
            one.unlink()


def default_directory() -> Path:
    """Return a directory for outputs that only this user can read; blocking."""
    uid = os.getuid() if sys.platform != "win32" else 0
    path = Path(tempfile.gettempdir()) / f"deep-agent-jobs-{uid}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="deep-agent-jobs-"))
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077
    return path if own else Path(tempfile.mkdtemp(prefix="deep-agent-jobs-"))


def _page(path: Path, offset: int | None, limit: int) -> JobPage | None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - limit) if offset is None else min(offset, size)
            file.seek(begin)
            return JobPage(file.read(limit), begin, size)
    except FileNotFoundError:
        return None


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
