"""Shell process: a running shell behind its supervisor, and the pipes to both.

Each wait for a file descriptor is registered separately, so a process belongs to no event loop and
may be used in another one later. Descriptors are only closed when nothing waits for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict

import anyio
import anyio.lowlevel
import anyio.to_thread

from .mount_guard import GUARD_LOST, MountGuard
from .policies import Launch
from .resource_limits import descendants

__all__ = ["ShellProcess", "SupervisorOptions", "start_process"]

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_PIPE_BYTES = 1 << 20
_CHUNK = 1 << 18
_LINE = 1_024
_SUPERVISOR_SECONDS = 6.0
_CLEANUP_SECONDS = 21.0


class SupervisorOptions(TypedDict):
    """Options of the supervisor, sent as JSON over the leash after their length in eight bytes.

    Attributes:
        argv: The command line of the shell.
        inputs: What it can read from descriptors, by their numbers, each byte a character.
        own_keyring: Whether the shell must not have this process's session keyring.
        lease: Seconds until the first lease runs out.
        grace: Seconds that processes have to end after SIGTERM.
        limits: Values for `resource.setrlimit`, by the name of the resource.
        cleanup: A command to run when the shell is gone; may be empty.
        most_processes: How many processes there may be at once; 0 for any number.
        most_memory: Bytes of memory that all of them may have together; 0 for any amount.
        watched: Paths of this machine whose moving away makes the supervisor look at the mounts.
    """

    argv: list[str]
    inputs: dict[str, str]
    own_keyring: bool
    lease: float
    grace: float
    limits: dict[str, int]
    cleanup: list[str]
    most_processes: int
    most_memory: int
    watched: list[str]


class ShellProcess:
    """One shell, from its start to the end of everything it started.

    Attributes:
        code: The shell's exit code once everything has ended; 128 plus the signal that ended it.
        end_seconds: How long the supervisor may take to end everything.
    """

    def __init__(
        self,
        supervisor: subprocess.Popen[bytes],
        leash: socket.socket,
        pipes: tuple[int, int, int],
        end_seconds: float,
    ) -> None:
        self.code: int | None = None
        self._supervisor = supervisor
        self._leash = leash
        self._stdin, self._output, self._status = pipes
        self.end_seconds = end_seconds
        self._said = b""
        self._mounts: MountGuard | None = None
        self._lost = False
        self._next_look = 0.0
        self._close = weakref.finalize(self, _close, leash, pipes)

    @property
    def usable(self) -> bool:
        """Whether its descriptors are open; the shell may still have ended."""
        return self._close.alive

    @property
    def ended(self) -> bool:
        """Whether all processes of the shell have ended."""
        return self.code is not None or self._supervisor.poll() is not None

    @property
    def passed(self) -> str:
        """The limit for which the supervisor ends the shell, such as `more than 9 processes`."""
        if self._lost:
            return GUARD_LOST
        with contextlib.suppress(OSError):  # `wait` may not have had its turn yet
            self._said += self._leash.recv(_LINE)
        return self._said.partition(b"\n")[2].decode().strip()

    async def send(self, data: bytes) -> None:
        """Write to the shell's stdin; data that the shell no longer reads is dropped."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin)
            except BrokenPipeError:
                return

    async def output(self) -> bytes:
        """Return the next bytes of output of the shell and its children, or nothing at the end."""
        if self._mounts is not None:  # more arrives in the meantime, and is checked together
            await anyio.sleep(max(0.0, self._next_look - time.monotonic()))
        return self._guarded(await _read(self._output))

    async def status(self) -> bytes:
        """Return the next bytes of the shell's own stderr, or nothing at the end."""
        return self._guarded(await _read(self._status))

    async def keep_mounts(self, places: Sequence[str]) -> None:
        """End the shell as soon as its mounts change, and drop its output from then on.

        Args:
            places: Where it must have mounts now.

        Raises:
            OSError: Mounts are missing, or they cannot be read.
        """
        mounts = await anyio.to_thread.run_sync(_mounts_of, self._supervisor.pid, places)
        self._mounts = mounts
        with contextlib.suppress(OSError):  # the supervisor has gone; `ended` tells
            self._leash.send(f"guard {mounts.pid} {mounts.digest}\n".encode())

    def _guarded(self, data: bytes) -> bytes:
        """Return data if all mounts are still in place, so they were when it was written."""
        if self._mounts is not None and not self._lost:
            began = time.monotonic()
            self._lost = not self._mounts.intact()
            now = time.monotonic()
            self._next_look = now + 4 * (now - began)
        return b"" if self._lost else data

    def lease(self, seconds: float) -> None:
        """Make the supervisor end everything after this time, unless the lease is renewed."""
        with contextlib.suppress(OSError):  # the supervisor has gone; `ended` tells
            self._leash.send(f"{seconds:.3f}\n".encode())

    async def wait(self) -> int:
        """Return the shell's exit code, once all its processes have ended."""
        while self.code is None:
            try:
                got = self._leash.recv(_LINE)
            except BlockingIOError:
                await anyio.wait_readable(self._leash)
                continue
            except OSError:
                got = b""
            if got:
                self._said += got
            else:
                self.code = await self._reap()
        return self.code

    def hang_up(self) -> None:
        """Tell the supervisor to end everything; `wait` returns when it has."""
        if self.usable:
            with contextlib.suppress(OSError):
                self._leash.shutdown(socket.SHUT_WR)

    async def end(self) -> None:
        """End everything and release all resources, in limited time. Must not be cancelled."""
        if not self.usable:
            return
        with anyio.CancelScope(shield=True):
            self.hang_up()
            with anyio.move_on_after(self.end_seconds):
                await self.wait()
            if self.code is None:
                self._supervisor.kill()
                self.code = await self._reap()
        self._close()
        if self._mounts is not None:
            self._mounts.close()

    async def _reap(self) -> int:
        """Return the supervisor's exit code; see to the shell if the supervisor was killed."""
        assert sys.platform != "win32"
        wait = partial(self._supervisor.wait, _SUPERVISOR_SECONDS)
        try:
            code = await anyio.to_thread.run_sync(wait)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        shell = self._said.partition(b"\n")[0]
        if code < 0 and shell.isdigit():
            with contextlib.suppress(OSError):
                os.killpg(int(shell), signal.SIGKILL)
        return code if code >= 0 else 128 - code


async def start_process(launch: Launch, *, grace: float, lease: float) -> ShellProcess:
    """Start a shell behind a supervisor.

    Args:
        launch: The command line and its limits.
        grace: Seconds that processes have to end by themselves before they are killed.
        lease: Seconds until it is ended, unless `ShellProcess.lease` changes that.

    Raises:
        OSError: The supervisor cannot be started; nothing runs.
    """
    return await anyio.to_thread.run_sync(partial(_start, launch, grace, lease))


def _start(launch: Launch, grace: float, lease: float) -> ShellProcess:
    ends = grace + _SUPERVISOR_SECONDS + (_CLEANUP_SECONDS if launch.cleanup else 0)
    ours, theirs = socket.socketpair()
    fds: list[int] = []
    try:
        for _ in range(3):
            fds += os.pipe()
        (stdin, to_stdin, output, to_output, status, to_status) = fds
        options: SupervisorOptions = {
            "argv": list(launch.argv),
            "inputs": {str(fd): data.decode("latin-1") for fd, data in launch.inputs.items()},
            "own_keyring": launch.own_keyring,
            "lease": lease,
            "grace": grace,
            "limits": dict(launch.rlimits),
            "cleanup": list(launch.cleanup),
            "most_processes": launch.most_processes or 0,
            "most_memory": launch.most_memory or 0,
            "watched": list(launch.watched),
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SUPERVISOR, str(theirs.fileno())],
            stdin=stdin,
            stdout=to_output,
            stderr=to_status,
            pass_fds=(theirs.fileno(),),
            env=dict(launch.env),
            cwd=launch.cwd or Path(launch.workspace),
            start_new_session=True,
        )
    except BaseException:
        _close(ours, tuple(fds))
        raise
    finally:
        theirs.close()
    for fd in (stdin, to_output, to_status):
        os.close(fd)
    told = json.dumps(options).encode()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `wait` reports that it ended
        ours.sendall(len(told).to_bytes(8, "big") + told)
    kept = (to_stdin, output, status)
    ours.setblocking(False)
    assert sys.platform != "win32"
    for fd in kept:
        os.set_blocking(fd, False)
    _widen(output)
    return ShellProcess(process, ours, kept, ends)


def _mounts_of(supervisor: int, places: Sequence[str]) -> MountGuard:
    """Return the mounts of the process below a supervisor that has some at these places.

    Raises:
        OSError: No process has mounts there, or they cannot be read.
    """
    problem = OSError("no process of the shell has the mounts that it was started with")
    for pid in reversed(descendants(supervisor)):  # inner processes come later
        try:
            mounts = MountGuard(pid)
        except OSError as error:
            problem = error
            continue
        if mounts.has(places):
            return mounts
        mounts.close()
    raise problem


def _widen(pipe: int) -> None:
    """Enlarge a pipe's buffer if the system allows it: fewer reads for large output."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _close(leash: socket.socket, fds: tuple[int, ...]) -> None:
    leash.close()
    for fd in fds:
        os.close(fd)


async def _read(fd: int) -> bytes:
    while True:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(fd)
            continue
        await anyio.lowlevel.checkpoint()  # a fast writer must not block the event loop
        return data
