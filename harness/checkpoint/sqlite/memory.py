"""What the writer of a journal remembers of its file, so that the next step need not ask again.

It holds until another connection has written, or something of this one's was taken back or was not
a step: then all is forgotten.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

__all__ = ["Head", "Memory"]

_MOST_HEADS = 10_000
"""Of the namespaces that moved, so many are remembered; the one first seen goes first."""


@dataclass(slots=True)
class Head:
    """Where a namespace stands.

    Attributes:
        thread: The thread's number.
        scope: The namespace's number.
        seq: Seq of its newest checkpoint.
        id: Id of that checkpoint.
    """

    thread: int
    scope: int
    seq: int
    id: str


class Memory:
    """What is known inside a transaction. One thread uses it.

    Attributes:
        task: The last number given to a task. The tables promise that none is given twice, not
            even that of a deleted row.
        seq: The same for checkpoints.
    """

    def __init__(self) -> None:
        self.task = self.seq = 0
        self._version: int | None = None
        self._heads: dict[tuple[str, str], Head] = {}

    def refresh(self, conn: sqlite3.Connection) -> None:
        """Forget what others may have changed; the first thing to do in a transaction."""
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._heads.clear()
            given = dict(conn.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            self.task, self.seq = given.get("tasks", 0), given.get("checkpoints", 0)
            self._version = version

    def forget(self) -> None:
        """Forget everything, until the next `refresh`."""
        self._version = None

    def head(self, thread_id: str, ns: str) -> Head | None:
        """Return where a namespace stands, if that is known; who moves it changes that."""
        return self._heads.get((thread_id, ns))

    def note_head(self, thread_id: str, ns: str, head: Head) -> None:
        """Remember where a namespace stands, which was not known."""
        if len(self._heads) >= _MOST_HEADS:
            del self._heads[next(iter(self._heads))]
        self._heads[thread_id, ns] = head

    def forget_head(self, thread_id: str, ns: str) -> None:
        """Say that something other than a whole step was stored in a namespace."""
        self._heads.pop((thread_id, ns), None)
