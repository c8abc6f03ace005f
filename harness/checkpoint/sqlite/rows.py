"""What the SQLite journal writes: records to rows, one batch at a time.

The functions run inside a transaction that the caller holds, in the connection's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from harness.checkpoint.base import (
    Batch,
    EventLimits,
    FileChange,
    Interrupt,
    Run,
    StoredWrite,
    TaskWrites,
)
from harness.checkpoint.codec import SHARED_FROM, compress, pack, plain, step_key
from harness.checkpoint.laws import (
    admit,
    json_text,
    late_write,
    run_elsewhere,
    unknown_snapshot,
)
from harness.checkpoint.sqlite import event_rows
from harness.checkpoint.sqlite.migrations import share
from harness.checkpoint.sqlite.pages import Pager

__all__ = [
    "content",
    "note_uses",
    "packed",
    "seq_of",
    "store",
    "store_task",
]

_RUN = """
INSERT INTO runs (id, thread, kind, agent, status, goal, owner, answer, reason, idempotency_key,
                  created_at, updated_at, attempt, used, base)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    kind = excluded.kind, agent = excluded.agent, status = excluded.status, goal = excluded.goal,
    owner = excluded.owner, answer = excluded.answer, reason = excluded.reason,
    idempotency_key = excluded.idempotency_key, created_at = excluded.created_at,
    updated_at = excluded.updated_at, attempt = excluded.attempt, used = excluded.used,
    base = excluded.base
WHERE thread = excluded.thread
"""

_INTERRUPT = """
INSERT INTO interrupts (thread, id, ns, step_id, run_id, kind, path, message, payload,
                        answer_schema, idx, answer, answered)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread, id) DO UPDATE SET
    ns = excluded.ns, step_id = excluded.step_id, run_id = excluded.run_id, kind = excluded.kind,
    path = excluded.path, message = excluded.message, payload = excluded.payload,
    answer_schema = excluded.answer_schema, idx = excluded.idx,
    answer = CASE WHEN answered THEN answer ELSE excluded.answer END,
    answered = answered OR excluded.answered
"""

_CHECKPOINT = """
INSERT INTO checkpoints (scope, id, parent, step, source, author, next, run_id, created_at, weight,
                         summary)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_KNOWN = """
SELECT (SELECT seq FROM checkpoints WHERE scope = ?1 AND id = ?2),
       (SELECT seq FROM checkpoints WHERE scope = ?1 AND id = ?3)
"""

_PLACE = """
SELECT t.thread, t.newest, s.scope, (SELECT max(seq) FROM checkpoints WHERE scope = s.scope)
FROM threads t LEFT JOIN scopes s ON s.thread = t.thread AND s.ns = ?
WHERE t.thread_id = ?
"""


def store(
    conn: sqlite3.Connection, batch: Batch, now: float, pager: Pager, limits: EventLimits
) -> None:
    """Insert a batch's rows.

    Args:
        conn: A connection inside a transaction, which the caller rolls back on an error.
        batch: What to store; `check_batch` has passed it.
        now: Unix time of the commit, in seconds.
        pager: Says where in a page the bodies will be.
        limits: How many events are kept.

    Raises:
        StaleThread: Somebody else moved the thread.
        CheckpointError: Something of the batch cannot be stored.
        sqlite3.Error: The database failed.
    """
    thread, newest, scope, head = _place(conn, batch, now)
    if scope is not None:
        _store_tasks(conn, scope, batch, pager)
        head = _store_checkpoints(conn, scope, head, batch)
        _store_snapshots(conn, scope, batch)
    if batch.checkpoints:
        newest = head
    conn.execute(
        "UPDATE threads SET updated_at = ?, checkpoints = checkpoints + ?, newest = ?"
        " WHERE thread = ?",
        (now, len(batch.checkpoints), newest, thread),
    )
    for run in batch.runs:
        _store_run(conn, thread, run)
    for interrupt in batch.interrupts:
        _store_interrupt(conn, thread, interrupt)
    if batch.answers:
        _store_answers(conn, thread, batch.answers)
    for change in batch.file_changes:
        _store_change(conn, thread, newest, change)
    if batch.events:
        event_rows.store_events(conn, thread, batch.events, limits)


def _place(
    conn: sqlite3.Connection, batch: Batch, now: float
) -> tuple[int, int | None, int | None, int | None]:
    """Return the keys of thread and namespace, and the seqs of their newest checkpoints.

    The namespace is None if the batch needs none.
    """
    row = conn.execute(_PLACE, (batch.ns, batch.thread_id)).fetchone()
    if row is None:
        statement = "INSERT INTO threads (thread_id, created_at, updated_at) VALUES (?, ?, ?)"
        row = _insert(conn, statement, (batch.thread_id, now, now)), 0, None, None
    thread, newest, scope, head = row
    if not (batch.writes or batch.checkpoints or batch.snapshots):
        return thread, newest, None, None
    if scope is None:
        statement = "INSERT INTO scopes (thread, ns) VALUES (?, ?)"
        scope = _insert(conn, statement, (thread, batch.ns))
    return thread, newest, scope, head


def _insert(conn: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    key = conn.execute(statement, values).lastrowid
    assert key is not None  # an INSERT of one row always has one
    return key


def seq_of(conn: sqlite3.Connection, scope: int, checkpoint_id: str) -> int | None:
    """Return the seq of a checkpoint, or None if there is none."""
    row = conn.execute(
        "SELECT seq FROM checkpoints WHERE scope = ? AND id = ?", (scope, step_key(checkpoint_id))
    ).fetchone()
    return row[0] if row is not None else None


def _store_tasks(conn: sqlite3.Connection, scope: int, batch: Batch, pager: Pager) -> None:
    for task in batch.writes:
        step = step_key(task.step_id)
        known, finished = conn.execute(
            "SELECT EXISTS (SELECT 1 FROM tasks WHERE scope = ?1 AND step = ?2"
            " AND task_id = ?3), EXISTS (SELECT 1 FROM checkpoints WHERE scope = ?1 AND id = ?2)",
            (scope, step, task.task_id),
        ).fetchone()
        if known:
            continue
        if finished:
            raise late_write(batch.thread_id, task.step_id, task.task_id)
        store_task(conn, pager, scope, task)


def store_task(conn: sqlite3.Connection, pager: Pager | None, scope: int, task: TaskWrites) -> None:
    """Insert the rows of a task, and the large values it writes.

    Without a pager the caller puts it into a page.
    """
    body, used = packed(conn, task.writes)
    page, place = pager.reserve(scope, len(body)) if pager else (None, 0)
    key = _insert(
        conn,
        "INSERT INTO tasks (scope, step, task_id, idx, page, place, length)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (scope, step_key(task.step_id), task.task_id, task.index, page, place, len(body)),
    )
    if pager:
        pager.note(scope, key, place)
    conn.execute("INSERT INTO bodies VALUES (?, ?)", (key, plain(body)))
    note_uses(conn, key, used)


def packed(conn: sqlite3.Connection, writes: Sequence[StoredWrite]) -> tuple[bytes, set[int]]:
    """Store the large values of writes; return the writes as a body, and what it uses."""
    used: set[int] = set()

    def keep(value: bytes) -> int:
        blob = share(conn, value)
        used.add(blob)
        return blob

    return pack(writes, keep), used


def note_uses(conn: sqlite3.Connection, task: int, used: set[int]) -> None:
    """Note which large values the body of a task uses."""
    if used:
        conn.executemany("INSERT INTO uses VALUES (?, ?)", [(task, blob) for blob in used])


def _store_checkpoints(
    conn: sqlite3.Connection, scope: int, head: int | None, batch: Batch
) -> int | None:
    """Insert checkpoints; return the seq of the head."""
    for new in batch.checkpoints:
        key = step_key(new.id)
        above = None if new.parent_id is None else step_key(new.parent_id)
        known, parent = conn.execute(_KNOWN, (scope, key, above)).fetchone()
        admit(
            new,
            exists=known is not None,
            parent_exists=parent is not None,
            parent_is_head=parent == head,
            imported=batch.imported,
        )
        head = _insert(
            conn,
            _CHECKPOINT,
            (
                *(scope, key, parent, new.step, new.source, new.author, new.next),
                *(new.run_id, new.created_at, new.weight, new.summary),
            ),
        )
    return head


def _store_snapshots(conn: sqlite3.Connection, scope: int, batch: Batch) -> None:
    for snapshot in batch.snapshots:
        seq = seq_of(conn, scope, snapshot.checkpoint_id)
        if seq is None:
            raise unknown_snapshot(batch.thread_id, snapshot)
        conn.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            (seq, snapshot.schema, compress(pack(snapshot.writes, None))),
        )


def _store_run(conn: sqlite3.Connection, thread: int, run: Run) -> None:
    values = (run.id, thread, run.kind, run.agent, run.status, run.goal, run.owner, run.answer)
    values += (run.reason, run.idempotency_key, run.created_at, run.updated_at)
    values += (run.attempt, run.used, run.base)
    if conn.execute(_RUN, values).rowcount == 0:
        raise run_elsewhere(run.id)


def _store_interrupt(conn: sqlite3.Connection, thread: int, asked: Interrupt) -> None:
    values = (thread, asked.id, asked.ns, asked.step_id, asked.run_id, asked.kind)
    values += (json_text(list(asked.path)), asked.message, json_text(asked.payload))
    values += (json_text(asked.answer_schema), asked.index, json_text(asked.answer))
    conn.execute(_INTERRUPT, (*values, int(asked.answered)))


def _store_answers(conn: sqlite3.Connection, thread: int, answers: Mapping[str, JsonValue]) -> None:
    conn.executemany(
        "UPDATE interrupts SET answer = ?, answered = 1"
        " WHERE thread = ? AND id = ? AND NOT answered",
        [(json_text(answer), thread, asked) for asked, answer in answers.items()],
    )


def _store_change(
    conn: sqlite3.Connection, thread: int, newest: int | None, change: FileChange
) -> None:
    body, blob = content(conn, change.before)
    conn.execute(
        "INSERT INTO file_changes (thread, run_id, path, before, blob, after_digest,"
        " checkpoint_seq) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (thread, change.run_id, change.path, body, blob, change.after_digest, newest),
    )


def content(conn: sqlite3.Connection, before: bytes | None) -> tuple[bytes | None, int | None]:
    """Return what a file held as a body or, stored by this call, as a shared value."""
    if before is None:
        return None, None
    if len(before) >= SHARED_FROM:
        return None, share(conn, before)
    return compress(before), None
