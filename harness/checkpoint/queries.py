"""What the SQLite journal reads: rows to records.

Each function that needs more than one statement runs in one read transaction, so what it returns
belongs together even while others commit. All of it runs in the connection's thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from harness.checkpoint.base import (
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
from harness.checkpoint.laws import in_step_order
from harness.checkpoint.rows import seq_of, unzip
from harness.errors import CheckpointError

__all__ = [
    "file_changes",
    "find_runs",
    "history",
    "interrupts",
    "load",
    "run",
    "threads",
]

_CHECKPOINT = """
SELECT c.seq, c.id, p.id, c.step, c.source, c.author, c.next, c.run_id, c.created_at, c.summary
FROM checkpoints c LEFT JOIN checkpoints p ON p.seq = c.parent
WHERE c.scope = :scope
"""

# From the checkpoint upwards, up to and without the cached one. The left join keeps a row for a
# step without writes, so the first row always shows where the walk ended.
_WRITES = """
WITH RECURSIVE chain (id, parent, depth) AS (
    SELECT id, parent, 0 FROM checkpoints WHERE seq = :seq
    UNION ALL
    SELECT p.id, p.parent, depth + 1
    FROM chain JOIN checkpoints p ON p.seq = chain.parent
    WHERE chain.parent IS NOT :cached
)
SELECT chain.parent, w.channel, w.value, w.overwrite, w.zipped
FROM chain LEFT JOIN writes w ON w.scope = :scope AND w.step_id = chain.id
ORDER BY depth DESC, w.idx, w.write
"""

_PENDING = """
SELECT task_id, idx, channel, value, overwrite, zipped FROM writes
WHERE scope = ? AND step_id = ? ORDER BY idx, write
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
SELECT t.thread_id, t.checkpoints, t.created_at, t.updated_at,
       r.id, t.thread_id, r.kind, r.agent, r.status, r.goal, r.owner, r.answer, r.reason,
       r.idempotency_key, r.created_at, r.updated_at, r.attempt, r.used, r.base
FROM threads t
LEFT JOIN runs r ON r.run = (SELECT max(run) FROM runs WHERE thread = t.thread)
"""

Row = tuple[Any, ...]


@contextmanager
def _snapshot(conn: sqlite3.Connection) -> Generator[None]:
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
) -> ThreadSlice | None:
    """Return what `Checkpointer.load` promises."""
    with _snapshot(conn):
        found = _scope(conn, thread_id, ns)
        if found is None:
            return None
        thread, scope = found
        if checkpoint_id is None:
            where, key = " ORDER BY c.seq DESC LIMIT 1", None
        else:
            where, key = " AND c.id = :id", checkpoint_id
        row = conn.execute(_CHECKPOINT + where, {"scope": scope, "id": key}).fetchone()
        if row is None:
            return None
        checkpoint = _checkpoint(row, thread_id, ns)
        base, writes = _writes_since(conn, scope, checkpoint, cached)
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
            _tasks(conn, scope, following),
            in_step_order(map(_interrupt, asked)),
        )


def history(
    conn: sqlite3.Connection, thread_id: str, ns: str, before: str | None, limit: int
) -> list[Checkpoint]:
    """Return what `Checkpointer.history` promises."""
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
        return [_checkpoint(row, thread_id, ns) for row in rows]


def threads(conn: sqlite3.Connection, limit: int, before: float | None) -> list[ThreadInfo]:
    """Return what `Checkpointer.threads` promises."""
    where = "WHERE t.updated_at < :before" if before is not None else ""
    rows = conn.execute(
        f"{_THREADS}{where} ORDER BY t.updated_at DESC LIMIT :limit",
        {"before": before, "limit": max(limit, 0)},
    )
    return [
        ThreadInfo(*info, last_run=Run(*last) if last[0] is not None else None)
        for *info, last in ((*row[:4], row[4:]) for row in rows)
    ]


def run(conn: sqlite3.Connection, run_id: str) -> Run | None:
    """Return a run by id."""
    row = conn.execute(_RUN + "WHERE r.id = ?", (run_id,)).fetchone()
    return Run(*row) if row is not None else None


def find_runs(
    conn: sqlite3.Connection,
    thread_id: str | None,
    status: RunStatus | None,
    idempotency_key: str | None,
    limit: int,
) -> list[Run]:
    """Return what `Checkpointer.find_runs` promises."""
    filters = {
        "r.thread = (SELECT thread FROM threads WHERE thread_id = ?)": thread_id,
        "r.status = ?": status,
        "r.idempotency_key = ?": idempotency_key,
    }
    given = {clause: value for clause, value in filters.items() if value is not None}
    where = "WHERE " + " AND ".join(given) if given else ""
    rows = conn.execute(
        f"{_RUN}{where} ORDER BY r.run DESC LIMIT ?", (*given.values(), max(limit, 0))
    )
    return [Run(*row) for row in rows]


def interrupts(conn: sqlite3.Connection, run_id: str) -> list[Interrupt]:
    """Return what `Checkpointer.interrupts` promises."""
    rows = conn.execute(_INTERRUPT + "WHERE i.run_id = ? ORDER BY i.interrupt", (run_id,))
    return in_step_order(map(_interrupt, rows))


def file_changes(conn: sqlite3.Connection, thread_id: str, since_seq: int) -> list[FileChange]:
    """Return what `Checkpointer.file_changes` promises."""
    rows = conn.execute(
        "SELECT f.run_id, f.path, f.before, f.zipped, f.after_digest, f.checkpoint_seq, f.seq"
        " FROM file_changes f JOIN threads t USING (thread)"
        " WHERE t.thread_id = ? AND f.checkpoint_seq >= ? ORDER BY f.seq DESC",
        (thread_id, since_seq),
    )
    return [
        FileChange(
            thread_id, run_id, path, None if before is None else unzip(before, zipped), *rest
        )
        for run_id, path, before, zipped, *rest in rows
    ]


def _scope(conn: sqlite3.Connection, thread_id: str, ns: str) -> tuple[int, int] | None:
    return conn.execute(
        "SELECT thread, scope FROM threads JOIN scopes USING (thread)"
        " WHERE thread_id = ? AND ns = ?",
        (thread_id, ns),
    ).fetchone()


def _writes_since(
    conn: sqlite3.Connection, scope: int, checkpoint: Checkpoint, cached: str | None
) -> tuple[str | None, list[StoredWrite]]:
    """Return where the writes start, and the writes, oldest first."""
    if cached == checkpoint.id:
        return cached, []
    start = seq_of(conn, scope, cached) if cached is not None else None
    rows = conn.execute(
        _WRITES, {"scope": scope, "seq": checkpoint.seq, "cached": start}
    ).fetchall()
    end = rows[0][0]
    if end is not None and end != start:
        raise CheckpointError(
            f"an ancestor of checkpoint {checkpoint.id} of thread {checkpoint.thread_id!r} is "
            f"missing, so its state cannot be rebuilt. Restore a backup, or delete the thread."
        )
    return (cached if end is not None else None), _stored(row[1:] for row in rows)


def _tasks(conn: sqlite3.Connection, scope: int, step: str) -> list[TaskWrites]:
    rows = conn.execute(_PENDING, (scope, step)).fetchall()
    return [
        TaskWrites(step, task_id, index, tuple(_stored(row[2:] for row in group)))
        for (task_id, index), group in groupby(rows, key=lambda row: (row[0], row[1]))
    ]


def _stored(rows: Iterator[Row]) -> list[StoredWrite]:
    """Return the writes of (channel, value, overwrite, zipped) rows; no channel, no write."""
    return [
        StoredWrite(channel, unzip(value, zipped), bool(overwrite))
        for channel, value, overwrite, zipped in rows
        if channel is not None
    ]


def _checkpoint(row: Sequence[Any], thread_id: str, ns: str) -> Checkpoint:
    seq, *head, summary = row
    return Checkpoint(thread_id, ns, *head, seq=seq, summary=summary)


def _interrupt(row: Sequence[Any]) -> Interrupt:
    *head, path, message, payload, answer_schema, index, answer, answered = row
    return Interrupt(
        *head,
        path=tuple(json.loads(path)),
        message=message,
        payload=json.loads(payload),
        answer_schema=json.loads(answer_schema),
        index=index,
        answer=json.loads(answer),
        answered=bool(answered),
    )
