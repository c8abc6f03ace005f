"""Insert buffer: collects rows of tasks and checkpoints, and inserts many with one statement.

A statement costs several times what a row does. The numbers of the rows are given out before, from
where the tables stand, so that rows can name each other while they wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ..base import Batch, Checkpoint, StoredWrite, TaskWrites
from ..codec import SHARED_FROM, pack, plain, step_key
from .head_cache import Head, HeadCache
from .migrations import share
from .page_compaction import Pager

__all__ = ["InsertBuffer", "StepBegun", "packed"]

_BEGUN = """
WITH asked (scope, step) AS (VALUES {})
SELECT 1 FROM asked CROSS JOIN tasks t ON t.scope = asked.scope AND t.step = asked.step LIMIT 1
"""

_INSERT = {
    "tasks": "INSERT INTO tasks (task, scope, step, task_id, idx, page, place, length) VALUES {}",
    "bodies": "INSERT INTO bodies (task, body) VALUES {}",
    "uses": "INSERT INTO uses (task, blob) VALUES {}",
    "checkpoints": "INSERT INTO checkpoints (seq, scope, id, parent, step, source, author, next,"
    " run_id, created_at, weight, summary) VALUES {}",
}

_TOUCH = """
UPDATE threads SET updated_at = ?1, (checkpoints, newest) = (
    SELECT checkpoints + count(*), coalesce(max(seq), newest) FROM checkpoints c
    WHERE c.scope IN (SELECT scope FROM scopes WHERE thread = ?2) AND c.seq > newest)
WHERE thread = ?2
"""

_SIZES = (64, 8, 2, 1)
"""How many rows go into a statement: a row among many costs half as much, and each size has to be
prepared."""


class StepBegun(Exception):
    """Something of a step is stored that was taken for a new one; nobody asked before."""


class InsertBuffer:
    """What a transaction will insert. One thread uses it.

    Args:
        conn: A connection that has just begun a transaction, or a savepoint in one; nobody else
            inserts tasks and checkpoints in it.
        pager: Says where in a page the bodies will be.
        heads: Knows the numbers that were given.
    """

    def __init__(self, conn: sqlite3.Connection, pager: Pager, heads: HeadCache) -> None:
        self.heads = heads
        self._conn = conn
        self._pager = pager
        self._rows: dict[str, list[Any]] = {table: [] for table in _INSERT}
        self._touched: dict[int, float] = {}
        self._new: list[Any] = []
        self._scopes: set[int] = set()

    def add_task(self, scope: int, step: int | str, task: TaskWrites) -> None:
        """Add the rows of a task of a step; the large values it writes are stored now."""
        body, used = packed(self._conn, task.writes)
        size = len(body)
        heads = self.heads
        heads.task = number = heads.task + 1
        page, place = self._pager.place(scope, number, size)
        self._scopes.add(scope)
        rows = self._rows
        rows["tasks"] += (number, scope, step, task.task_id, task.index, page, place, size)
        rows["bodies"] += (number, plain(body))
        for blob in used:
            rows["uses"] += (number, blob)

    def add_checkpoint(
        self, scope: int, step: int | str, parent: int | None, new: Checkpoint
    ) -> int:
        """Add the checkpoint of a step, given its parent's seq; return its own."""
        heads = self.heads
        heads.seq = seq = heads.seq + 1
        self._scopes.add(scope)
        self._rows["checkpoints"] += (
            *(seq, scope, step, parent, new.step, new.source, new.author),
            *(new.next, new.run_id, new.created_at, new.weight, new.summary),
        )
        return seq

    def add_steps(self, head: Head, batch: Batch) -> int:
        """Add the steps that a batch brings after a head, which moves; return the last one's seq.

        That no task of them is stored is for `insert` to make sure.
        """
        scope, steps = head.scope, {one.id: step_key(one.id) for one in batch.checkpoints}
        for task in batch.writes:
            self.add_task(scope, steps[task.step_id], task)
        for step_id in {task.step_id for task in batch.writes}:
            self._new += (scope, steps[step_id])
        for new in batch.checkpoints:
            head.seq = self.add_checkpoint(scope, steps[new.id], head.seq, new)
            head.id = new.id
        return head.seq

    def touch(self, thread: int, now: float) -> None:
        """Note when a thread changed, with what it holds then."""
        self._touched[thread] = now

    def waits(self, scope: int) -> bool:
        """Whether there are rows of a namespace, which no statement sees yet."""
        return scope in self._scopes

    def insert(self) -> None:
        """Insert what waits.

        Raises:
            StepBegun: A step must be new and is not; roll back.
            sqlite3.Error, ValueError, OverflowError: A row cannot be stored; roll back.
        """
        for statement, values in _filled(_BEGUN, self._new):
            if self._conn.execute(statement, values).fetchone() is not None:
                raise StepBegun
        for table, rows in self._rows.items():
            for statement, values in _filled(_INSERT[table], rows):
                self._conn.execute(statement, values)
            rows.clear()
        self._conn.executemany(_TOUCH, [(now, thread) for thread, now in self._touched.items()])
        self._touched.clear()
        self._new.clear()
        self._scopes.clear()


def _filled(template: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Give statements that take all the values of rows between them, each with its own."""
    done = 0
    for rows in _SIZES if values else ():
        statement, count = _statement(template, rows)
        while len(values) - done >= count:
            yield statement, values[done : done + count]
            done += count


@cache
def _statement(template: str, rows: int) -> tuple[str, int]:
    """Return a statement with places for the values of so many rows, and how many those are."""
    columns = template[template.index("(") : template.index(")")].count(",") + 1
    places = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return template.format(places), rows * columns


def packed(conn: sqlite3.Connection, writes: Sequence[StoredWrite]) -> tuple[bytes, set[int]]:
    """Store the large values of writes; return the writes as a body, and what it uses."""
    for one in writes:
        if len(one.value) >= SHARED_FROM:
            break
    else:
        return pack(writes, None), set()
    used: set[int] = set()

    def keep(value: bytes) -> int:
        blob = share(conn, value)
        used.add(blob)
        return blob

    return pack(writes, keep), used
