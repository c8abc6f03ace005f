"""SQLite queries: reads rows as records.

Each function that needs more than one statement runs in one read transaction, so what it returns
belongs together even while others commit. All of it runs in the connection's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from ...errors import CheckpointError
from ..admission import in_step_order, missing_ancestor, prefix_range
from ..base import (
    OPEN,
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    RunStatus,
    StoredWrite,
    TaskWrites,
    ThreadInfo,
    ThreadSlice,
    step_id,
)
from ..codec import decompress, step_key, unpack
from .page_compaction import Bodies
from .records import (
    FILE_CHANGE,
    ancestry_of,
    check,
    checkpoint_of,
    events,
    interrupt_of,
    run_of,
    thread_info_of,
    writes_of,
)
from .rows import seq_of

__all__ = [
    "events",
    "file_changes",
    "find_runs",
    "history",
    "interrupts",
    "interrupts_of_thread",
    "load",
    "namespaces",
    "run",
    "threads",
]

_CHECKPOINT = """
SELECT c.seq, c.id, p.id, c.step, c.source, c.author, c.next, c.run_id, c.created_at, c.summary,
       c.weight
FROM checkpoints c LEFT JOIN checkpoints p ON p.seq = c.parent
WHERE c.scope = :scope
"""

_PENDING = """
SELECT task_id, idx, body FROM pending WHERE scope = ? AND step = ? ORDER BY idx, task
"""

_RUN = """
SELECT r.id, t.thread_id, r.kind, r.agent, r.status, r.goal, r.owner, r.answer, r.reason,
       r.idempotency_key, r.created_at, r.updated_at, r.attempt, r.used, r.base
FROM runs r JOIN threads t USING (thread)
"""

_INTERRUPT = """
SELECT i.id, t.thread_id, i.ns, i.step_id, i.run_id, i.kind, i.path, i.message, i.payload,
       i.answer_schema, i.idx, i.answer, i.answered
FROM interrupts i JOIN threads t USING (thread)
"""

_THREADS = """
SELECT t.thread_id, t.checkpoints + (
           SELECT count(*) FROM checkpoints c WHERE c.seq > t.newest
           AND c.scope IN (SELECT scope FROM scopes WHERE thread = t.thread)),
       t.created_at, t.updated_at,
       r.id, t.thread_id, r.kind, r.agent, r.status, r.goal, r.owner, r.answer, r.reason,
       r.idempotency_key, r.created_at, r.updated_at, r.attempt, r.used, r.base
FROM (SELECT * FROM threads {where} ORDER BY updated_at DESC LIMIT :limit) t
LEFT JOIN runs r ON r.run = (SELECT max(run) FROM runs WHERE thread = t.thread)
ORDER BY t.updated_at DESC
"""

# Numbers first: they are in the indices, so only the rows of the page are read.
_RUNS = (
    _RUN
    + """
WHERE r.run IN (SELECT run FROM runs {where} ORDER BY run DESC LIMIT :limit)
ORDER BY r.run DESC
"""
)

_UNFINISHED = ("queued", "running", "needs_approval", "paused")
"""Statuses of unfinished runs. A partial index covers them; a query must repeat its condition."""

# As text of any bytes; text compares by its bytes.
_BEGINS = "{column} >= CAST(:start AS TEXT) AND {column} < CAST(:end AS TEXT)"

Row = tuple[Any, ...]


@contextmanager
def _snapshot(conn: sqlite3.Connection) -> Generator[None]:
    if conn.in_transaction:
        yield
        return
    conn.execute("BEGIN")
    try:
        yield
    finally:
        conn.execute("ROLLBACK")


def load(
    conn: sqlite3.Connection,
    thread_id: str,
    ns: str,
    checkpoint_id: str | None,
    cached: str | None,
    schema: str | None,
) -> ThreadSlice | None:
    """Return a checkpoint with its writes; see `Checkpointer.load`."""
    with _snapshot(conn):
        found = _scope(conn, thread_id, ns)
        if found is None:
            return None
        thread, scope = found
        if checkpoint_id is None:
            where, key = " ORDER BY c.seq DESC LIMIT 1", None
        else:
            where, key = " AND c.id = :id", step_key(checkpoint_id)
        row = conn.execute(_CHECKPOINT + where, {"scope": scope, "id": key}).fetchone()
        if row is None:
            return None
        checkpoint = checkpoint_of(row, thread_id, ns)
        base, writes = _writes_since(conn, scope, checkpoint, cached, schema)
        following = step_id(checkpoint.id)
        if seq_of(conn, scope, following) is not None:
            return ThreadSlice(checkpoint, base, writes, (), ())
        asked = conn.execute(
            _INTERRUPT + "WHERE i.thread = ? AND i.step_id = ? AND i.ns = ? ORDER BY i.interrupt",
            (thread, following, ns),
        )
        return ThreadSlice(
            checkpoint,
            base,
            writes,
            _pending(conn, scope, following),
            in_step_order(map(interrupt_of, asked)),
        )


def history(
    conn: sqlite3.Connection, thread_id: str, ns: str, before: str | None, limit: int
) -> list[Checkpoint]:
    """Return checkpoints; see `Checkpointer.history`."""
    with _snapshot(conn):
        found = _scope(conn, thread_id, ns)
        if found is None:
            return []
        _, scope = found
        where = ""
        end: int | None = None
        if before is not None:
            end = seq_of(conn, scope, before)
            if end is None:
                return []
            where = " AND c.seq < :end"
        rows = conn.execute(
            f"{_CHECKPOINT}{where} ORDER BY c.seq DESC LIMIT :limit",
            {"scope": scope, "end": end, "limit": max(limit, 0)},
        )
        return [checkpoint_of(row, thread_id, ns) for row in rows]


def namespaces(conn: sqlite3.Connection, thread_id: str) -> list[str]:
    """Return the namespaces of a thread; see `Checkpointer.namespaces`."""
    rows = conn.execute(
        "SELECT s.ns, (SELECT min(seq) FROM checkpoints c WHERE c.scope = s.scope) AS first"
        " FROM threads t JOIN scopes s USING (thread)"
        " WHERE t.thread_id = ? AND first IS NOT NULL ORDER BY first",
        (thread_id,),
    )
    return [ns for ns, _ in rows]


def threads(
    conn: sqlite3.Connection, limit: int, before: float | None, prefix: str
) -> list[ThreadInfo]:
    """Return threads; see `Checkpointer.threads`."""
    where = _where({"updated_at < :before": before}, "thread_id", prefix)
    rows = conn.execute(
        _THREADS.format(where=where),
        {"before": before, "limit": max(limit, 0), **_range(prefix)},
    )
    return [thread_info_of(row[:4], row[4:]) for row in rows]


def run(conn: sqlite3.Connection, run_id: str) -> Run | None:
    """Return a run by id."""
    row = conn.execute(_RUN + "WHERE r.id = ?", (run_id,)).fetchone()
    return run_of(row) if row is not None else None


def find_runs(
    conn: sqlite3.Connection,
    thread_id: str | None,
    status: RunStatus | None,
    idempotency_key: str | None,
    prefix: str,
    limit: int,
) -> list[Run]:
    """Return runs; see `Checkpointer.find_runs`."""
    indexed = f" AND status IN {_UNFINISHED}" if status in _UNFINISHED else ""
    if status in OPEN:  # a thread has at most one such run, but may have had very many
        indexed += f" AND status IN {OPEN!r}"
    filters = {
        "thread = (SELECT thread FROM threads WHERE thread_id = :thread_id)": thread_id,
        f"status = :status{indexed}": status,
        "idempotency_key = :key": idempotency_key,
    }
    rows = conn.execute(
        _RUNS.format(where=_where(filters, "id", prefix)),
        {
            "thread_id": thread_id,
            "status": status,
            "key": idempotency_key,
            "limit": max(limit, 0),
            **_range(prefix),
        },
    )
    return [run_of(row) for row in rows]


def _where(filters: Mapping[str, object], column: str, prefix: str) -> str:
    given = [clause for clause, value in filters.items() if value is not None]
    given += [_BEGINS.format(column=column)] if prefix else []
    return "WHERE " + " AND ".join(given) if given else ""


def _range(prefix: str) -> dict[str, bytes]:
    return dict(zip(("start", "end"), prefix_range(prefix), strict=True)) if prefix else {}


def interrupts(conn: sqlite3.Connection, run_id: str) -> list[Interrupt]:
    """Return all interrupts of a run; see `Checkpointer.interrupts`."""
    rows = conn.execute(_INTERRUPT + "WHERE i.run_id = ? ORDER BY i.interrupt", (run_id,))
    return in_step_order(map(interrupt_of, rows))


def interrupts_of_thread(conn: sqlite3.Connection, thread: int) -> list[tuple[int, Interrupt]]:
    """Return all interrupts of a thread, with the numbers of their rows."""
    where = "WHERE i.thread = ? ORDER BY i.interrupt"
    numbers = conn.execute(f"SELECT i.interrupt FROM interrupts i {where}", (thread,)).fetchall()
    rows = conn.execute(_INTERRUPT + where, (thread,)).fetchall()
    return [(number, interrupt_of(row)) for (number,), row in zip(numbers, rows, strict=True)]


def file_changes(conn: sqlite3.Connection, thread_id: str, since_seq: int) -> list[FileChange]:
    """Return the changes of files; see `Checkpointer.file_changes`."""
    rows = conn.execute(
        "SELECT f.run_id, f.path, coalesce(f.before, b.body), f.after_digest, f.checkpoint_seq,"
        " f.seq, f.blob IS NOT NULL AND b.body IS NULL"
        " FROM file_changes f JOIN threads t USING (thread) LEFT JOIN blobs b USING (blob)"
        " WHERE t.thread_id = ? AND f.checkpoint_seq >= ? ORDER BY f.seq DESC",
        (thread_id, since_seq),
    )
    return [_file_change(thread_id, *row) for row in rows]


def _file_change(
    thread_id: str, run_id: str, path: str, before: bytes | None, *rest: Any
) -> FileChange:
    *head, lost = rest
    check((run_id, path, before, *head), FILE_CHANGE, f"a file of thread {thread_id!r}")
    if lost:
        raise CheckpointError(
            f"what {path!r} of thread {thread_id!r} held before a change is missing from the "
            f"journal. Restore a backup, or put the file back by hand."
        )
    return FileChange(
        thread_id, run_id, path, None if before is None else decompress(before), *head
    )


def _scope(conn: sqlite3.Connection, thread_id: str, ns: str) -> tuple[int, int] | None:
    return conn.execute(
        "SELECT thread, scope FROM threads JOIN scopes USING (thread)"
        " WHERE thread_id = ? AND ns = ?",
        (thread_id, ns),
    ).fetchone()


def _writes_since(
    conn: sqlite3.Connection,
    scope: int,
    checkpoint: Checkpoint,
    cached: str | None,
    schema: str | None,
) -> tuple[str | None, list[StoredWrite]]:
    """Return the checkpoint after which the writes start, and the writes, oldest first."""
    if cached == checkpoint.id:
        return cached, []
    start = seq_of(conn, scope, cached) if cached is not None else None
    way = ancestry_of(conn, scope, checkpoint.seq, start, schema)
    if way is None:
        raise missing_ancestor(checkpoint.thread_id)
    if way.snapshot:
        snapshot = _snapshot_of(conn, way.above, schema)
        if snapshot is None:
            return _writes_since(conn, scope, checkpoint, cached, None)
        return None, [*snapshot, *writes_of(conn, way.rows)]
    return (cached if way.above is not None else None), writes_of(conn, way.rows)


def _snapshot_of(
    conn: sqlite3.Connection, seq: int | None, schema: str | None
) -> list[StoredWrite] | None:
    """Return a snapshot, or None if it is damaged."""
    try:
        (body,) = conn.execute(
            "SELECT body FROM snapshots WHERE seq = ? AND schema = ?", (seq, schema)
        ).fetchone()
        data = decompress(body)
        return unpack(data, 0, len(data), Bodies(conn).shared)
    except (ValueError, TypeError):
        return None  # a cache: the writes themselves are there


def _pending(conn: sqlite3.Connection, scope: int, step: str) -> list[TaskWrites]:
    """Return the tasks of an unfinished step, in the order they are folded in."""
    bodies = Bodies(conn)
    found: list[TaskWrites] = []
    for task_id, index, body in conn.execute(_PENDING, (scope, step_key(step))).fetchall():
        check((task_id, index), ((str,), (int,)), "a task")
        data = decompress(body)
        writes = unpack(data, 0, len(data), bodies.shared)
        found.append(TaskWrites(step, task_id, index, tuple(writes)))
    return found
