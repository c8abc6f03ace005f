"""Stands between this process and a shell, so that nothing the shell starts outlives its session.

It is run as a script, by path, and must not import the rest of the package: a session starts with
it. It starts the shell, with limits and as the leader of its own process group, and adopts what
the shell's children leave behind. It ends all of them, and then itself, when the shell has ended,
when its lease runs out, or when nobody holds the other end of its leash any more, as after a crash.

The leash is a socket. The guardian writes the shell's process id to it. Each line it reads says
for how many seconds the lease is good from then on. It exits with the shell's exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, TypedDict

__all__ = ["GuardianOptions"]

_CLEANUP_SECONDS = 20.0
_KILL_SECONDS = 5.0
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


class GuardianOptions(TypedDict):
    """What the guardian is told, as JSON in its only argument.

    Attributes:
        argv: The command line of the shell.
        leash: File descriptor of the leash.
        lease: Seconds until the first lease runs out.
        grace: Seconds that processes have to end after SIGTERM.
        limits: Values for `resource.setrlimit`, by the name of the resource.
        cleanup: A command to run when the shell is gone; may be empty.
    """

    argv: list[str]
    leash: int
    lease: float
    grace: float
    limits: dict[str, int]
    cleanup: list[str]


def _prctl(option: int, value: int) -> None:
    """Set a Linux process attribute; other systems have none of those used here."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(options: GuardianOptions) -> int:
    """Start the shell and return its process id."""
    guardian = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # it has done so itself, and is another program now
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(1)
        for one in (*_IGNORED, signal.SIGCHLD):
            signal.signal(one, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _limit(options["limits"])
        os.execvpe(options["argv"][0], options["argv"], os.environ)
    except BaseException as error:  # noqa: BLE001 - a forked child must not go on from here
        os.write(2, f"{options['argv'][0]} cannot be started: {error}\n".encode())
    os._exit(127)


def _limit(limits: dict[str, int]) -> None:
    import resource

    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


class _Children:
    """The shell and everything that descends from it."""

    def __init__(self, shell: int) -> None:
        self.shell = shell
        self.code: int | None = None
        self.left = True

    def reap(self) -> None:
        """Take note of what has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.left = False
                return
            if pid == 0:
                return
            if pid == self.shell:
                self.code = os.waitstatus_to_exitcode(status)

    def signal(self, number: int) -> None:
        """Send a signal to all that can be found."""
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        with contextlib.suppress(OSError):
            os.killpg(self.shell, number)


def _descendants(root: int) -> Iterable[int]:
    """Return the processes below one, where the system lists them."""
    below: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                below.setdefault(_parent(int(name)), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may hold anything.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _watch(options: GuardianOptions, leash: socket.socket, woken: int, children: _Children) -> None:
    """Return when the session is over."""
    deadline = time.monotonic() + options["lease"]
    lines = b""
    while children.code is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        ready, _, _ = select.select([leash, woken], [], [], left)
        if woken in ready:
            os.read(woken, 4096)
            children.reap()
        if leash in ready:
            try:
                got = leash.recv(4096)
            except OSError:
                return
            if not got:
                return
            *complete, lines = (lines + got).split(b"\n")
            if complete:
                deadline = time.monotonic() + float(complete[-1])


def _end(children: _Children, grace: float, woken: int) -> None:
    """End every process, asking them first."""
    children.reap()
    if children.left:
        children.signal(signal.SIGTERM)
        children.signal(signal.SIGCONT)
        _await_end(children, grace, woken)
    deadline = time.monotonic() + _KILL_SECONDS
    while children.left and time.monotonic() < deadline:
        children.signal(signal.SIGKILL)
        _await_end(children, 0.05, woken)


def _await_end(children: _Children, seconds: float, woken: int) -> None:
    deadline = time.monotonic() + seconds
    children.reap()
    while children.left:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if select.select([woken], [], [], left)[0]:
            os.read(woken, 4096)
            children.reap()


def _clean_up(command: list[str]) -> None:
    if not command:
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CLEANUP_SECONDS,
            check=False,
        )


def _let_go() -> None:
    """Close this process's ends of the shell's pipes, so that they end with the shell."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)


def _note_nothing(number: int, frame: Any) -> None:
    """Handle SIGCHLD, so that it writes to the wake-up pipe."""


def _main(options: GuardianOptions) -> int:
    _prctl(_SET_CHILD_SUBREAPER, 1)
    for one in _IGNORED:
        signal.signal(one, signal.SIG_IGN)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, _note_nothing)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    leash = socket.socket(fileno=options["leash"])
    leash.set_inheritable(False)
    children = _Children(_start(options))
    _let_go()
    with contextlib.suppress(OSError):
        leash.sendall(f"{children.shell}\n".encode())
    try:
        _watch(options, leash, woken, children)
    finally:
        _end(children, options["grace"], woken)
    _clean_up(options["cleanup"])
    code = children.code
    if code is None:
        return 137
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # The interpreter's own end takes time that somebody waits for.
    os._exit(_main(json.loads(sys.argv[1])))
