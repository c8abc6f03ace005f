"""Leases: allow one process at a time to use a journal that several machines can reach.

Only its own machine can check whether a run's process is alive, so a second server elsewhere would
take over working runs. A lease ends with its process: Postgres drops the lock with the connection,
the operating system releases a file's lock, and the key in Redis expires.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol, runtime_checkable

import anyio.to_thread
from filelock import FileLock, Timeout

from .._internal.records import record
from ..errors import CheckpointError

__all__ = ["Claimable", "FileLease", "Holder", "Lease", "lease_file"]


@record
class Holder:
    """Holder of a lease.

    Attributes:
        owner: The id of the process; empty if unknown.
        host: The name of its machine; empty if unknown.
        place: An identity of its state directory; empty if unknown.
    """

    owner: str = ""
    host: str = ""
    place: str = ""

    def text(self) -> str:
        """Return the holder as one line of ASCII."""
        return " ".join(_plain(one) or "-" for one in (self.owner, self.place, self.host))

    @classmethod
    def parse(cls, text: str) -> Holder:
        """Return the holder from such a line."""
        parts = [*text.split(" "), "", "", ""][:3]
        owner, place, host = ("" if one == "-" else one for one in parts)
        return cls(owner, host, place)


class Lease(Protocol):
    """A lease; for one event loop."""

    async def acquire(self) -> Holder | None:
        """Take the lease, or check that it is still ours; return its other holder, or None.

        Raises:
            CheckpointError: The database cannot be read.
        """
        ...

    async def take_over(self, dead: Holder) -> None:
        """Release the lease of a process that is known to be dead."""
        ...

    async def release(self) -> None:
        """Release the lease. If that is not possible, it ends by itself."""
        ...


@runtime_checkable
class Claimable(Protocol):
    """A journal that one process at a time can claim; optional for a `Checkpointer`."""

    @property
    def place(self) -> str:
        """The place of the journal, without secrets; the same for all with the same threads."""
        ...

    def lease(self, holder: Holder) -> Lease:
        """Return a lease on the journal, which is not taken yet."""
        ...


def lease_file(journal: Path) -> Path:
    """Return the file that is locked while somebody has the lease on a journal in a file."""
    journal = journal.resolve()  # the lease is the same under every name of the journal
    return journal.with_name(f"{journal.name}.lease")


class FileLease:
    """A lease on a journal in a file: a lock on another file beside it.

    Args:
        journal: The journal.
        holder: Our own identity.
    """

    def __init__(self, journal: Path, holder: Holder) -> None:
        self._file = lease_file(journal)
        self._note = self._file.with_suffix(".holder")  # a locked file may be unreadable
        self._holder = holder
        self._lock = FileLock(self._file, mode=0o600, thread_local=False)

    async def acquire(self) -> Holder | None:
        """See `Lease`."""
        return await anyio.to_thread.run_sync(self._acquire)

    def _acquire(self) -> Holder | None:
        if self._lock.is_locked:
            return None
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
            self._note.write_text(self._holder.text(), encoding="ascii")
        except Timeout:
            try:
                return Holder.parse(self._note.read_text(encoding="ascii"))
            except (OSError, ValueError):
                return Holder()
        except OSError as error:
            why = error.strerror or error
            raise CheckpointError(f"{self._file} cannot be locked: {why}") from error
        return None

    async def take_over(self, dead: Holder) -> None:
        """See `Lease`; the system has already released it."""

    async def release(self) -> None:
        """See `Lease`."""
        self._lock.release()


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]", "_", text)[:24]
