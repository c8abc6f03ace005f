"""Rows of tasks and checkpoints that wait to be inserted together, one statement for each table.

A statement costs several times what a row does. The numbers of the rows are given out before, from
where the tables stand, so that rows can name each other while they wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from harness.checkpoint.base import Checkpoint, StoredWrite, TaskWrites
from harness.checkpoint.codec import pack, plain, step_key
from harness.checkpoint.sqlite.migrations import share
from harness.checkpoint.sqlite.pages import Pager

__all__ = ["WaitingRows", "packed"]

_STATEMENTS = {
    "tasks": "INSERT INTO tasks (task, scope, step, task_id, idx, page, place, length)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "bodies": "INSERT INTO bodies (task, body) VALUES (?, ?)",
    "uses": "INSERT INTO uses (task, blob) VALUES (?, ?)",
    "checkpoints": "INSERT INTO checkpoints (seq, scope, id, parent, step, source, author, next,"
    " run_id, created_at, weight, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "threads": "UPDATE threads SET updated_at = ?, checkpoints = checkpoints + ?,"
    " newest = coalesce(?, newest) WHERE thread = ?",
}

Row = tuple[Any, ...]


class WaitingRows:
    """What a transaction will insert. One thread uses it.

    Args:
        conn: A connection that has just begun a transaction, or a savepoint in one; nobody else
            inserts tasks and checkpoints in it.
        pager: Says where in a page the bodies will be.
    """

    def __init__(self, conn: sqlite3.Connection, pager: Pager) -> None:
        self._conn = conn
        self._pager = pager
        # The tables promise that no number is given twice, not even that of a deleted row.
        given = dict(conn.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        self._task, self._seq = given.get("tasks", 0), given.get("checkpoints", 0)
        self._rows: dict[str, list[Row]] = {table: [] for table in _STATEMENTS}
        self._scopes: set[int] = set()

    def add_task(self, scope: int, task: TaskWrites) -> None:
        """Add the rows of a task; the large values it writes are stored now."""
        body, used = packed(self._conn, task.writes)
        self._task += 1
        page, place = self._pager.place(scope, self._task, len(body))
        self._scopes.add(scope)
        key = step_key(task.step_id)
        self._rows["tasks"].append(
            (self._task, scope, key, task.task_id, task.index, page, place, len(body))
        )
        self._rows["bodies"].append((self._task, plain(body)))
        self._rows["uses"] += [(self._task, blob) for blob in used]

    def add_checkpoint(self, scope: int, parent: int | None, new: Checkpoint) -> int:
        """Add a checkpoint, given its parent's seq; return its own."""
        self._seq += 1
        self._scopes.add(scope)
        self._rows["checkpoints"].append(
            (
                *(self._seq, scope, step_key(new.id), parent, new.step, new.source, new.author),
                *(new.next, new.run_id, new.created_at, new.weight, new.summary),
            )
        )
        return self._seq

    def touch(self, thread: int, now: float, checkpoints: int, newest: int | None) -> None:
        """Note when a thread changed, how many checkpoints it got, and the seq of the last."""
        self._rows["threads"].append((now, checkpoints, newest, thread))

    def waits(self, scope: int) -> bool:
        """Whether there are rows of a namespace, which no statement sees yet."""
        return scope in self._scopes

    def insert(self) -> None:
        """Insert what waits.

        Raises:
            sqlite3.Error, ValueError, OverflowError: A row cannot be stored; roll back.
        """
        for table, rows in self._rows.items():
            if rows:
                self._conn.executemany(_STATEMENTS[table], rows)
                rows.clear()
        self._scopes.clear()


def packed(conn: sqlite3.Connection, writes: Sequence[StoredWrite]) -> tuple[bytes, set[int]]:
    """Store the large values of writes; return the writes as a body, and what it uses."""
    used: set[int] = set()

    def keep(value: bytes) -> int:
        blob = share(conn, value)
        used.add(blob)
        return blob

    return pack(writes, keep), used
