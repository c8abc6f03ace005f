"""Head cache: remembers the newest checkpoint of each namespace, so that a commit needs no query.

A head is remembered from one step to the next; tasks that are stored ahead of their step make it
forgotten. Everything is, when another connection has written, when a transaction of this
one failed, and when one did something other than to commit batches.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

__all__ = ["Head", "HeadCache", "keep_numbers", "last_numbers"]

_LAST = """
SELECT max((SELECT coalesce(max(given), 0) FROM numbers),
           (SELECT coalesce(max(seq), 0) FROM checkpoints)),
       (SELECT coalesce(max(task), 0) FROM pending)
"""

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
        seq: The last number given to a checkpoint. None is given twice, not even that of a deleted
            row.
        task: The last number given to a pending task.
        oldest_event: No event is older that is kept; a Unix time.
    """

    def __init__(self) -> None:
        self.seq = self.task = 0
        self.oldest_event = 0.0
        self._version: int | None = None
        self._known: dict[tuple[str, str], Head] = {}

    def refresh(self, conn: sqlite3.Connection) -> None:
        """Forget what others may have changed; the first thing to do in a transaction."""
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._known.clear()
            self.seq, self.task = last_numbers(conn)
            self._version = version

    def forget(self) -> None:
        """Forget everything, until the next `refresh`."""
        self._version = None
        self.oldest_event = 0.0

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


def last_numbers(conn: sqlite3.Connection) -> tuple[int, int]:
    """Return the last numbers that were given to a checkpoint and to a pending task."""
    seq, task = conn.execute(_LAST).fetchone()
    if type(seq) is not int:
        raise ValueError(f"the last number that was given is damaged: it is {seq!r:.40}")
    return seq, task


def keep_numbers(conn: sqlite3.Connection) -> None:
    """Remember the last number of a checkpoint, before rows are deleted."""
    seq, _ = last_numbers(conn)
    conn.execute("UPDATE numbers SET given = ?1 WHERE given < ?1", (seq,))
