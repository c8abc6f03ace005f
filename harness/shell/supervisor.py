"""Shell supervisor: a process between server and shell that ends everything the shell started.

It is run as a script, by path, and must not import the rest of the package, because each session
waits for its start. It starts the shell, with limits and as the leader of its own process group,
and adopts processes that the shell's children leave behind. It ends all of them, and then itself,
when the shell has ended, when its lease runs out, or when the other end of its leash is closed, for
example by a crash.

The leash is a socket. The supervisor writes the shell's process id to it. If the session exceeds a
limit, it writes the limit on the next line, before it ends the session. Each line that it reads has
the seconds for which the lease is valid from then on, or `guard`, a process id and a digest, which
identify mounts that must not change (see `mount_guard`). It exits with the shell's exit code.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

assert sys.platform != "win32", "shells need POSIX"

if TYPE_CHECKING:
    from .process import SupervisorOptions

if TYPE_CHECKING or __package__:
    from .mount_guard import GUARD_LOST, LOOK_SECONDS, MountGuard, MoveWatch
    from .resource_limits import Bounds, ControlGroups, descendants
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from mount_guard import GUARD_LOST, LOOK_SECONDS, MountGuard, MoveWatch
    from resource_limits import Bounds, ControlGroups, descendants

    del sys.path[0]

__all__: list[str] = []

_CLEANUP_SECONDS = 20.0
_KILL_SECONDS = 5.0
_NICE = 5
_HURRY = -5
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_SET_PDEATHSIG = 1
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""Number of the system call, by machine."""
_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    """Set a Linux process attribute; other systems have none of those used here."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(options: SupervisorOptions, groups: ControlGroups) -> int:
    """Start the shell and return its process id."""
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # it has done so itself, and is another program now
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        for one in (*_IGNORED, signal.SIGCHLD):
            signal.signal(one, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        if options["own_keyring"]:
            _leave_keyring()
        for number, text in options["inputs"].items():
            _provide(int(number), text.encode("latin-1"))
        groups.enter()
        with contextlib.suppress(OSError):
            os.nice(_NICE)
        _limit(options["limits"])
        os.execvpe(options["argv"][0], options["argv"], os.environ)
    except BaseException as error:  # noqa: BLE001 - a forked child must not go on from here
        os.write(2, f"{options['argv'][0]} cannot be started: {error}\n".encode())
    os._exit(127)


def _leave_keyring() -> None:
    """Take a new, empty session keyring: keys of the old one could be read and removed.

    Raises:
        OSError: The kernel has keyrings but returned none; the shell must not start.
    """
    call = _KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if call is None:
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(call, _JOIN_SESSION_KEYRING, None) < 0:
        number = ctypes.get_errno()
        if number != errno.ENOSYS:
            raise OSError(number, f"no session keyring: {os.strerror(number)}")


def _provide(number: int, data: bytes) -> None:
    """Make bytes readable for the shell's command line from a descriptor."""
    assert sys.platform == "linux"  # only bubblewrap uses inputs
    fd = os.memfd_create("input")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, number)
    if fd == number:
        os.set_inheritable(fd, True)
    else:
        os.close(fd)


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
        """Record ended processes."""
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
        """Send a signal to all processes that can be found.

        A kill starts with the commands, which are the deepest processes, so that none of them
        continues while its shell is killed. A request to end starts with the shells, because a
        surviving shell would report the end of its command in the output.
        """
        with contextlib.suppress(OSError):  # all at once; in a sandbox the rest ends with the first
            os.killpg(self.shell, number)
        found = descendants(os.getpid())
        for pid in reversed(found) if number == signal.SIGKILL else found:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


class _Leash:
    """Messages on the leash.

    Attributes:
        deadline: The end of the lease, on the monotonic clock.
        dropped: The file with an exceptional condition for `select` after a mount was dropped.
    """

    def __init__(self, leash: socket.socket, lease: float) -> None:
        self.deadline = time.monotonic() + lease
        self.dropped: list[int] = []
        self._leash = leash
        self._lines = b""
        self._guard: MountGuard | None = None
        self._lost = False

    def read(self) -> bool:
        """Read lines from the leash; return False if its other end is closed."""
        try:
            got = self._leash.recv(4096)
        except OSError:
            return False
        *complete, self._lines = (self._lines + got).split(b"\n")
        for line in complete:
            word, *rest = line.decode().split()
            if word == "guard":
                self._take_guard(*rest)
            else:
                self.deadline = time.monotonic() + float(word)
        return bool(got)

    def guard_lost(self) -> bool:
        """Whether the mounts differ from the guarded ones."""
        return self._lost or (self._guard is not None and not self._guard.intact())

    def _take_guard(self, pid: str, digest: str) -> None:
        try:
            self._guard = MountGuard(int(pid))
        except OSError:
            self._lost = True
        else:
            self.dropped = [self._guard.fd]
            self._lost = self._guard.digest != digest


def _watch(
    options: SupervisorOptions, leash: socket.socket, woken: int, children: _Children
) -> str | None:
    """Wait for the end of the session; return the exceeded limit, or None."""
    told = _Leash(leash, options["lease"])
    bounds = Bounds(options["most_processes"], options["most_memory"])
    moves = MoveWatch(options["watched"])
    period = min(bounds.seconds, LOOK_SECONDS) if options["watched"] else bounds.seconds
    while children.code is None:
        left = told.deadline - time.monotonic()
        if left <= 0:
            return None
        passed = GUARD_LOST if told.guard_lost() else bounds.passed()
        if passed is not None:
            return passed
        waited = [leash, woken, *moves.fds]
        ready, _, _ = select.select(waited, [], told.dropped, min(left, period))
        moves.clear()
        if woken in ready:
            os.read(woken, 4096)
            children.reap()
        if leash in ready and not told.read():
            return None
    return None


def _end(children: _Children, grace: float, woken: int) -> None:
    """End every process, asking them first if they have time to answer."""
    children.reap()
    if children.left and grace > 0:
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


def _told(leash: socket.socket) -> SupervisorOptions:
    """Read the options, which may be too long for a command line."""
    return json.loads(_exactly(leash, int.from_bytes(_exactly(leash, 8), "big")))


def _exactly(leash: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = leash.recv(min(size - len(data), 1 << 16))
        if not got:
            os._exit(1)  # the starting process has ended
        data += got
    return bytes(data)


def _main(leash: socket.socket) -> int:
    options = _told(leash)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    for one in _IGNORED:
        signal.signal(one, signal.SIG_IGN)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, _note_nothing)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    groups = ControlGroups(options["most_processes"], options["most_memory"])
    children = _Children(_start(options, groups))
    with contextlib.suppress(OSError):  # only root may; this matters most for fork bombs of root
        os.nice(_HURRY)
    _let_go()
    with contextlib.suppress(OSError):
        leash.sendall(f"{children.shell}\n".encode())
    grace = 0.0
    try:
        passed = _watch(options, leash, woken, children)
        if passed is None:
            grace = options["grace"]
        else:  # before the kill: a shell that outlives its command by a moment reports its end
            with contextlib.suppress(OSError):
                leash.sendall(f"{passed}\n".encode())
    finally:
        _end(children, grace, woken)
        groups.remove()
    _clean_up(options["cleanup"])
    code = children.code
    if code is None:
        return 137
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _given:
        # `select` only accepts numbers below 1,024, and the starting process may have more open.
        _leash = _given.dup()
    # The interpreter's normal exit would delay a waiting caller.
    os._exit(_main(_leash))
