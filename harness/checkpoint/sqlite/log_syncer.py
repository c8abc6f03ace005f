"""Log syncer: flushes SQLite's log soon after commits that did not wait for the disk."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

__all__ = ["SYNC_WITHIN", "LogSyncer"]

logger = logging.getLogger(__name__)

SYNC_WITHIN = 0.02
"""Seconds from a commit that did not wait for the disk to the request that the disk keep it."""


class LogSyncer:
    """A thread that syncs the write-ahead log of one database; asleep unless there is something.

    The log is synced through a descriptor of its own: SQLite keeps its locks on other files, so
    closing this one drops none.

    Args:
        database: The database, open in this process until after `close()`.
    """

    def __init__(self, database: Path) -> None:
        self._log = Path(f"{database}-wal")
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal-sync", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Say that a commit did not wait for the disk. Safe from any thread."""
        self._dirty.set()

    def close(self) -> None:
        """End the thread; what is noted and not yet synced is left to the database's own close."""
        self._closing.set()
        self._dirty.set()
        self._thread.join()

    def _work(self) -> None:
        descriptor: int | None = None
        try:
            while not self._closing.is_set():  # close() may have come just before the clear()
                self._dirty.wait()
                if self._closing.wait(SYNC_WITHIN):
                    return
                self._dirty.clear()
                if descriptor is None:
                    descriptor = os.open(self._log, os.O_RDWR)
                os.fsync(descriptor)
        except OSError as error:
            logger.error(
                "the journal's log %s cannot be synced (%s). Steps survive this process, but a "
                "power cut may lose the newest; check the disk.",
                self._log,
                error,
            )
        finally:
            if descriptor is not None:
                os.close(descriptor)
