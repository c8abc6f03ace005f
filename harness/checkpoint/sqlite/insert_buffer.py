"""Insert buffer: rows inserted many at a time, without a query for the newest checkpoints.

A statement costs several times what a row does. Row numbers are assigned in advance, from where the
tables stand, so that rows can name each other while they wait.

The newest checkpoint (head) of each namespace is remembered from one step to the next. Tasks that
are stored ahead of their step make it forgotten. All heads are forgotten when another connection
has written, when a transaction of this one failed, or when one did anything but commit batches.
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
"""Of the namespaces that moved, so many are remembered; the one first seen goes first."""


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
    """Heads and numbers known inside a transaction. One thread uses it.

    Attributes:
        seq: The last number given to a checkpoint. None is given twice, not even that of a deleted
            row.
        task: The last number given to a pending task.
        oldest_event: No event is older that is kept; a Unix time.
        runs: The open runs that are known.
    """

    def __init__(self) -> None:
        self.seq = self.task = 0
        self.oldest_event = 0.0
        self.runs = RunCache()
        self._version: int | None = None
        self._known: dict[tuple[str, str], Head] = {}

    def refresh(self, conn: sqlite3.Connection) -> None:
        """Forget what others may have changed; the first thing to do in a transaction."""
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._known.clear()
            self.runs.clear()
            self.seq, self.task = last_numbers(conn)
            self._version = version

    def forget(self) -> None:
        """Forget everything, until the next `refresh`."""
        self._version = None
        self.oldest_event = 0.0

    def of(self, thread_id: str, ns: str) -> Head | None:
        """Return the position of a namespace, if that is known; who moves it changes that."""
        return self._known.get((thread_id, ns))

    def note(self, thread_id: str, ns: str, head: Head) -> None:
        """Remember the position of a namespace."""
        if len(self._known) >= _MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._known[thread_id, ns] = head

    def drop(self, thread_id: str, ns: str) -> None:
        """Forget the position of a namespace."""
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
"""How many rows go into a statement: a row among many costs half as much, and each size has to be
prepared."""

_by_place = attrgetter("place")


class StepBegun(Exception):
    """A task of a step waits for it that was taken for a new one; nobody asked before."""


class InsertBuffer:
    """Rows that a transaction will insert. One thread uses it.

    Args:
        conn: A connection that has just begun a transaction, or a savepoint in one; nobody else
            inserts checkpoints and tasks in it.
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
        """Add a task that has to wait for its step; the large values it writes are stored now."""
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
            tasks: Tasks of the step; the large values they write are stored now.
            waited: Those that were stored before, in order.
            used: The numbers of the large values that these use.
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
        """Note that a namespace has a new row, and which large values that uses."""
        self._scopes.add(scope)
        for blob in used:
            self._rows["uses"] += (holder, blob)

    def add_steps(self, head: Head, batch: Batch) -> None:
        """Add the steps that a batch brings after a head, which moves.

        That no task waits for one of them is for `insert` to make sure.
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
    """Give statements that take all the values of rows between them, each with its own."""
    done = 0
    for rows in _SIZES:
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


def share(conn: sqlite3.Connection, value: bytes) -> int:
    """Store a value that others may hold too; return its number."""
    digest = digest_of(value)
    row = conn.execute("SELECT blob FROM blobs WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        row = conn.execute(
            "INSERT INTO blobs (digest, body) VALUES (?, ?) RETURNING blob",
            (digest, compress(value)),
        ).fetchone()
    return row[0]


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
