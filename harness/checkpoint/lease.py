"""Leases: let one process at a time use a journal that several machines can reach.

Whether a run's process is alive is known on its own machine only, so a second server elsewhere
would take over runs that are being carried out. A lease ends with its process: Postgres drops the
lock with the connection, the operating system that of a file, and the key in Redis expires.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol, runtime_checkable

import anyio.to_thread
from filelock import FileLock, Timeout

from .._internal.records import record
from ..errors import CheckpointError

__all__ = ["Claimable", "FileLease", "Holder", "Lease"]


@record
class Holder:
    """Holder of a lease.

    Attributes:
        owner: The id of the process; empty if it is not known.
        host: The name of its machine; empty if it is not known.
        place: What tells state directories apart; empty if it is not known.
    """

    owner: str = ""
    host: str = ""
    place: str = ""

    def text(self) -> str:
        """Return the holder as one line of plain characters."""
        return " ".join(_plain(one) or "-" for one in (self.owner, self.place, self.host))

    @classmethod
    def parse(cls, text: str) -> Holder:
        """Return the holder that a line stands for."""
        parts = [*text.split(" "), "", "", ""][:3]
        owner, place, host = ("" if one == "-" else one for one in parts)
        return cls(owner, host, place)


class Lease(Protocol):
    """A lease; for one event loop."""

    async def acquire(self) -> Holder | None:
        """Take the lease, or see that it is still ours; return who else has it, or None.

        Raises:
            CheckpointError: The database cannot be asked.
        """
        ...

    async def take_over(self, dead: Holder) -> None:
        """Let go of the lease of a process that is known to be dead."""
        ...

    async def release(self) -> None:
        """Give the lease back. It ends by itself where that is not possible."""
        ...


@runtime_checkable
class Claimable(Protocol):
    """A journal that one process at a time can claim. A `Checkpointer` need not be one."""

    @property
    def place(self) -> str:
        """Where it is, without secrets; the same for all that keep the same threads."""
        ...

    def lease(self, holder: Holder) -> Lease:
        """Return a lease on it, which nobody holds yet."""
        ...


class FileLease:
    """A lease on a journal that is a file; it is a lock on another file beside it.

    Args:
        journal: The journal.
        holder: Who we are.
    """

    def __init__(self, journal: Path, holder: Holder) -> None:
        self._file = journal.with_name(f"{journal.name}.lease")
        self._note = journal.with_name(f"{journal.name}.holder")  # a locked file may be unreadable
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
        """See `Lease`; the system has let go of it already."""

    async def release(self) -> None:
        """See `Lease`."""
        self._lock.release()


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]", "_", text)[:24]
