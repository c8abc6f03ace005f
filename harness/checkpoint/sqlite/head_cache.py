"""Head cache: remembers the newest checkpoint of each namespace, so that a commit needs no query.

A head is remembered from one step to the next; tasks that are stored ahead of their step make it
forgotten. Everything is, when another connection has written, when a transaction of this
one failed, and when one did something other than to commit batches.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

__all__ = ["Head", "HeadCache"]

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


class HeadCache:
    """What is known inside a transaction. One thread uses it.

    Attributes:
        task: The last number given to a task. The tables promise that none is given twice, not
            even that of a deleted row.
        seq: The same for checkpoints.
    """

    def __init__(self) -> None:
        self.task = self.seq = 0
        self._version: int | None = None
        self._known: dict[tuple[str, str], Head] = {}

    def refresh(self, conn: sqlite3.Connection) -> None:
        """Forget what others may have changed; the first thing to do in a transaction."""
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._known.clear()
            given = dict(conn.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            self.task, self.seq = given.get("tasks", 0), given.get("checkpoints", 0)
            self._version = version

    def forget(self) -> None:
        """Forget everything, until the next `refresh`."""
        self._version = None

    def of(self, thread_id: str, ns: str) -> Head | None:
        """Return where a namespace stands, if that is known; who moves it changes that."""
        return self._known.get((thread_id, ns))

    def note(self, thread_id: str, ns: str, head: Head) -> None:
        """Remember where a namespace stands."""
        if len(self._known) >= _MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._known[thread_id, ns] = head

    def drop(self, thread_id: str, ns: str) -> None:
        """Forget where a namespace stands."""
        self._known.pop((thread_id, ns), None)
