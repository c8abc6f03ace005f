"""Insert buffer: inserts many rows at a time, without a query for the newest checkpoints.

A statement costs several times as much as a row. Row numbers are assigned in advance, from the last
numbers in the tables, so that waiting rows can refer to each other.

The newest checkpoint (head) of each namespace is cached from one step to the next. It is dropped if
tasks are stored ahead of their step. All heads are dropped if another connection has written, if a
transaction of this connection failed, or if one did anything but commit batches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from ..base import Batch, Checkpoint, StoredWrite, TaskWrites
from ..codec import SHARED_FROM, PackedTask, compress, digest_of, pack, pack_step, plain, step_key
from .page_compaction import Pager
from .runs import RunCache

__all__ = [
    "Head",
    "HeadCache",
    "InsertBuffer",
    "StepBegun",
    "keep_numbers",
    "last_numbers",
    "packed",
    "share",
]


_LAST = """
SELECT max((SELECT coalesce(max(given), 0) FROM numbers),
           (SELECT coalesce(max(seq), 0) FROM checkpoints)),
       (SELECT coalesce(max(task), 0) FROM pending)
"""

_MOST_HEADS = 10_000
"""The most namespaces whose heads are cached; the oldest entry is dropped first."""


@dataclass(slots=True)
class Head:
    """Newest checkpoint of a namespace, and its numbers.

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
    """Cache of heads and numbers for transactions. Only one thread uses it.

    Attributes:
        seq: The last number of a checkpoint. Numbers are never reused, not even of deleted rows.
        task: The last number of a pending task.
        oldest_event: A Unix time before which there are no events.
        runs: The known open runs.
    """

    def __init__(self) -> None:
        self.seq = self.task = 0
        self.oldest_event = 0.0
        self.runs = RunCache()
        self._version: int | None = None
        self._known: dict[tuple[str, str], Head] = {}

    def refresh(self, conn: sqlite3.Connection) -> None:
        """Drop data that others may have changed; call it first in a transaction."""
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._known.clear()
            self.runs.clear()
            self.seq, self.task = last_numbers(conn)
            self._version = version

    def forget(self) -> None:
        """Drop everything, until the next `refresh`."""
        self._version = None
        self.oldest_event = 0.0

    def of(self, thread_id: str, ns: str) -> Head | None:
        """Return the cached position of a namespace, if any, which the caller may change."""
        return self._known.get((thread_id, ns))

    def note(self, thread_id: str, ns: str, head: Head) -> None:
        """Cache the position of a namespace."""
        if len(self._known) >= _MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._known[thread_id, ns] = head

    def drop(self, thread_id: str, ns: str) -> None:
        """Drop the position of a namespace."""
        self._known.pop((thread_id, ns), None)


def last_numbers(conn: sqlite3.Connection) -> tuple[int, int]:
    """Return the last numbers of a checkpoint and of a pending task."""
    seq, task = conn.execute(_LAST).fetchone()
    if type(seq) is not int:
        raise ValueError(f"the last number that was given is damaged: it is {seq!r:.40}")
    return seq, task


def keep_numbers(conn: sqlite3.Connection) -> None:
    """Store the last number of a checkpoint, before rows are deleted."""
    seq, _ = last_numbers(conn)
    conn.execute("UPDATE numbers SET given = ?1 WHERE given < ?1", (seq,))


_BEGUN = """
WITH asked (scope, step) AS (VALUES {})
SELECT 1 FROM asked CROSS JOIN pending t ON t.scope = asked.scope AND t.step = asked.step LIMIT 1
"""

_INSERT = {
    "pending": "INSERT INTO pending (task, scope, step, task_id, idx, body) VALUES {}",
    "uses": "INSERT INTO uses (holder, blob) VALUES {}",
    "checkpoints": "INSERT INTO checkpoints (seq, scope, id, parent, step, source, author, next,"
    " run_id, created_at, weight, summary, page, place, length, body) VALUES {}",
}

_TOUCH = """
UPDATE threads SET updated_at = ?1, (checkpoints, newest) = (
    SELECT checkpoints + count(*), coalesce(max(seq), newest) FROM checkpoints c
    WHERE c.scope IN (SELECT scope FROM scopes WHERE thread = ?2) AND c.seq > newest)
WHERE thread = ?2
"""

_SIZES = (64, 8, 2, 1)
"""Numbers of rows per statement: a row among many costs half as much, and each number needs a
prepared statement."""

_by_place = attrgetter("place")


class StepBegun(Exception):
    """A task waits for a step that was assumed to be new, without a check."""


class InsertBuffer:
    """The rows that a transaction will insert. Only one thread uses it.

    Args:
        conn: A connection that has just begun a transaction, or a savepoint in one; no other code
            inserts checkpoints and tasks in it.
        pager: Assigns the positions of bodies in pages.
        heads: The cache with the last numbers.
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
        """Add a task that has to wait for its step; its large values are stored now."""
        body, used = packed(self._conn, task.writes)
        heads = self.heads
        heads.task = number = heads.task + 1
        self._note(scope, -number, used)
        self._rows["pending"] += (number, scope, step, task.task_id, task.index, plain(body))

    def add_checkpoint(
        self,
        scope: int,
        step: int | str,
        parent: int | None,
        new: Checkpoint,
        tasks: Sequence[TaskWrites],
        waited: Sequence[PackedTask] = (),
        used: Collection[int] = (),
    ) -> int:
        """Add a checkpoint with all writes of its step; return its seq.

        Args:
            scope: The namespace's number.
            step: The checkpoint's id.
            parent: Its parent's seq.
            new: The checkpoint.
            tasks: Tasks of the step; their large values are stored now.
            waited: Tasks that were stored before, in order.
            used: The numbers of the large values that the latter use.
        """
        held, uses = [*waited], {*used}
        for task in tasks:
            writes, blobs = packed(self._conn, task.writes)
            held.append(PackedTask(task.task_id, task.index, writes))
            uses |= blobs
        if len(held) > 1:
            held.sort(key=_by_place)
        body = pack_step(held)
        size = len(body)
        heads = self.heads
        heads.seq = seq = heads.seq + 1
        self._note(scope, seq, uses)
        page, place = self._pager.place(scope, seq, size)
        self._rows["checkpoints"] += (
            *(seq, scope, step, parent, new.step, new.source, new.author),
            *(new.next, new.run_id, new.created_at, new.weight, new.summary),
            *(page, place, size, plain(body)),
        )
        return seq

    def _note(self, scope: int, holder: int, used: Collection[int]) -> None:
        """Add a new row of a namespace, with the large values that it uses."""
        self._scopes.add(scope)
        for blob in used:
            self._rows["uses"] += (holder, blob)

    def add_steps(self, head: Head, batch: Batch) -> None:
        """Add the steps of a batch after a head, and move the head.

        `insert` makes sure that no task waits for one of them.
        """
        scope = head.scope
        tasks: dict[str, list[TaskWrites]] = {}
        for task in batch.writes:
            tasks.setdefault(task.step_id, []).append(task)
        for new in batch.checkpoints:
            step = step_key(new.id)
            self._new += (scope, step)
            head.seq = self.add_checkpoint(scope, step, head.seq, new, tasks.get(new.id, ()))
            head.id = new.id

    def touch(self, thread: int, now: float) -> None:
        """Store when a thread changed, with its counts."""
        self._touched[thread] = now

    def waits(self, scope: int) -> bool:
        """Whether there are waiting rows of a namespace, which statements cannot see yet."""
        return scope in self._scopes

    def insert(self) -> None:
        """Insert the waiting rows.

        Raises:
            StepBegun: A step that must be new is not; roll back.
            sqlite3.Error, ValueError, OverflowError: A row cannot be stored; roll back.
        """
        for statement, values in _filled(_BEGUN, self._new) if self._new else ():
            if self._conn.execute(statement, values).fetchone() is not None:
                raise StepBegun
        for table, rows in self._rows.items():
            if rows:
                for statement, values in _filled(_INSERT[table], rows):
                    self._conn.execute(statement, values)
                rows.clear()
        if self._touched:
            self._conn.executemany(_TOUCH, [(now, one) for one, now in self._touched.items()])
            self._touched.clear()
        self._new.clear()
        self._scopes.clear()


def _filled(template: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield statements that insert all rows together, each with its values."""
    done = 0
    for rows in _SIZES:
        statement, count = _statement(template, rows)
        while len(values) - done >= count:
            yield statement, values[done : done + count]
            done += count


@cache
def _statement(template: str, rows: int) -> tuple[str, int]:
    """Return a statement with placeholders for this many rows, and the number of rows."""
    columns = template[template.index("(") : template.index(")")].count(",") + 1
    places = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return template.format(places), rows * columns


def share(conn: sqlite3.Connection, value: bytes) -> int:
    """Store a value that others may also use; return its number."""
    digest = digest_of(value)
    row = conn.execute("SELECT blob FROM blobs WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        row = conn.execute(
            "INSERT INTO blobs (digest, body) VALUES (?, ?) RETURNING blob",
            (digest, compress(value)),
        ).fetchone()
    return row[0]


def packed(conn: sqlite3.Connection, writes: Sequence[StoredWrite]) -> tuple[bytes, set[int]]:
    """Store the large values of writes; return the writes as a body, and the numbers it uses."""
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
