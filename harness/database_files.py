"""Files of SQLite databases that are the user's alone."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

__all__ = ["make_private"]

_creating = threading.Lock()


def make_private(database: Path) -> None:
    """Make a database's file, and the directories it needs, for this user only (0600, 0700).

    A file that is there keeps its content and gets the mode. It is never opened: SQLite guards it
    with POSIX locks, and whatever closes a descriptor of a file drops all locks its process has on
    it. Another process would then take the database for unused and remove the log under it.

    Raises:
        OSError: The file or a directory cannot be made.
    """
    missing = [each for each in database.parents if not each.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    # The lock: nobody here may connect to a new file before its first descriptor is closed.
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if os.name != "posix":
        return
    # SQLite gives the -wal and -shm files the mode of the database.
    for suffix in ("", "-wal", "-shm"):
        # Another process may remove -wal and -shm at any time; a file of another user stays as is.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            Path(f"{database}{suffix}").chmod(0o600)
