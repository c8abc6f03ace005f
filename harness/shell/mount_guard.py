"""Mount guard: notices when a sandbox loses a mount that protects a path.

A mount belongs to a file, not to a name. If another file is renamed over a guarded one, like
editors do when they save, the kernel drops the mount in every sandbox. If a guarded file or a
directory above it is moved, its mounts move with it. In both cases the name shows the new file.
Commands cannot change mounts, so a list of mounts that differs from the start means exactly this.

A dropped mount never returns. So if a check finds all mounts in place, they were also in place for
all output written before it.

It is part of the supervisor, and must not import the rest of the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
import weakref
from collections.abc import Sequence

__all__ = ["GUARD_LOST", "LOOK_SECONDS", "MountGuard", "MoveWatch"]

GUARD_LOST = (
    "a path that the policy guards was replaced or moved on this machine, and what commands wrote "
    "since then is not shown; run it again"
)
LOOK_SECONDS = 0.05
"""How often to check for changes that the kernel does not report."""

_CHUNK = 1 << 16
_ESCAPES = ((b"\\", rb"\134"), (b" ", rb"\040"), (b"\t", rb"\011"), (b"\n", rb"\012"))
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_DELETE_SELF, _MOVE_SELF, _DONT_FOLLOW = 0x400, 0x800, 0x02000000


class MountGuard:
    """The mounts that a process has, as they are when the object is made.

    The kernel's file stays open, even beyond the end of the process: `fd` has an exceptional
    condition for `select` whenever a mount was dropped, but not when one was moved.

    Args:
        pid: The process; must be seen by this one.

    Raises:
        OSError: Its mounts cannot be read.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd = os.open(f"/proc/{pid}/mountinfo", os.O_RDONLY)
        self.close = weakref.finalize(self, os.close, self.fd)
        self._text = _whole(self.fd)
        self._points = _points(self._text)

    @property
    def digest(self) -> str:
        """A digest of the mounts at the start, with which two processes can compare them."""
        return hashlib.sha256(repr(self._points).encode()).hexdigest()

    def has(self, places: Sequence[str]) -> bool:
        """Whether there was a mount at each of these real paths."""
        return {_escaped(one) for one in places} <= {point for _, point in self._points}

    def intact(self) -> bool:
        """Whether all mounts are unchanged, and no others were added."""
        text = _whole(self.fd)
        if text == self._text:
            return True
        if _points(text) != self._points:
            return False
        self._text = text
        return True


class MoveWatch:
    """Wakes a `select` when one of some paths is moved or removed, where the system can.

    Args:
        paths: Files and directories; those that cannot be watched are left out.

    Attributes:
        fds: Descriptors that become readable after a change; empty if nothing can be watched.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.fds: list[int] = []
        if not paths:
            return
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            fd = libc.inotify_init1(_NONBLOCK | _CLOEXEC)
            if fd >= 0:
                self.fds.append(fd)
            for path in paths if fd >= 0 else ():
                wanted = _DELETE_SELF | _MOVE_SELF | _DONT_FOLLOW
                libc.inotify_add_watch(fd, os.fsencode(path), wanted)

    def clear(self) -> None:
        """Discard pending events."""
        for fd in self.fds:
            with contextlib.suppress(BlockingIOError):
                while os.read(fd, _CHUNK):
                    pass


def _whole(fd: int) -> bytes:
    assert sys.platform != "win32"
    parts: list[bytes] = []
    size = 0
    while part := os.pread(fd, _CHUNK, size):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _points(text: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the number and the place of each mount."""
    return [(words[0], words[4]) for line in text.splitlines() if (words := line.split(b" "))]


def _escaped(place: str) -> bytes:
    """Return a path as the kernel writes it."""
    path = os.fsencode(os.path.normpath(place))
    for char, code in _ESCAPES:
        path = path.replace(char, code)
    return path
