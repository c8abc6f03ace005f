"""Worker locks: shows which carriers of background tasks live, across processes.

Each has an id, the `owner` of the runs it carries, and holds a lock of that name while it works:
the system takes it back when the process ends, however that comes about. Of carriers at other
machines nothing can be known from here.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import stat
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HarnessError

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["WorkerLock", "is_worker_alive", "new_worker"]

_ID = re.compile(r"background-([0-9a-f]{12})-(\d+)-[0-9a-f]{16}")

_LIVING: set[str] = set()
"""Owners of runs in this process that are at work."""


def new_worker() -> str:
    """Return an id for a carrier in this process."""
    return f"background-{_here()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_worker_alive(owner: str) -> bool | None:
    """Whether a carrier is at work; None if that cannot be known here. Blocks for a moment."""
    if owner in _LIVING:
        return True
    found = _ID.fullmatch(owner)
    if found is None or found[1] != _here():
        return None
    path = _path(owner)
    if not path.exists():  # it never began, has let go of its lock, or somebody cleaned up
        return _is_running(int(found[2]))
    lock = _lock(path)
    if not _acquired(lock):
        return True
    lock.release()
    path.unlink(missing_ok=True)  # its id never comes back
    return False


class WorkerLock:
    """Shows others that a carrier is at work. Blocks for a moment.

    Args:
        owner: Its id. One that is not of `new_worker` shows in this process only.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._held: BaseFileLock | None = None

    def hold(self) -> None:
        """Begin to show it.

        Raises:
            HarnessError: The lock cannot be made.
        """
        if _ID.fullmatch(self._owner):
            path = _path(self._owner)
            lock = _lock(path)
            if not _acquired(lock):
                raise HarnessError(
                    f"{path} cannot be locked, so background tasks were not begun. Let the process "
                    "write there, or set TMPDIR to a directory where it may."
                )
            if sys.platform != "win32":  # what cleans directories up leaves such files alone
                path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_ISVTX)
            self._held = lock
        _LIVING.add(self._owner)

    def release(self) -> None:
        """End."""
        _LIVING.discard(self._owner)
        held, self._held = self._held, None
        if held is not None:
            held.release()
            _path(self._owner).unlink(missing_ok=True)


def _here() -> str:
    """Return what tells this machine, and the place of its locks, from every other."""
    place = f"{platform.node()}\0{tempfile.gettempdir()}"
    return blake2b(place.encode(), digest_size=6).hexdigest()


def _path(owner: str) -> Path:
    return Path(tempfile.gettempdir()) / f"deep-agent-{owner}.lock"


def _is_running(pid: int) -> bool:
    """Whether there is another process of that id, as far as that can be asked."""
    if pid == os.getpid() or sys.platform == "win32":  # there a file that is held stays
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _lock(path: Path) -> BaseFileLock:
    from filelock import FileLock  # not needed to begin

    return FileLock(path, blocking=False, thread_local=False, mode=0o600)


def _acquired(lock: BaseFileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire()
    except (Timeout, OSError):  # held, or not ours to open
        return False
    return True
