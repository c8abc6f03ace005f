"""What the SQLite journal writes: records to rows, one batch at a time.

The functions run inside a transaction that the caller holds, in the connection's thread.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from harness.checkpoint.base import (
    Batch,
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    StoredWrite,
    TaskWrites,
)
from harness.checkpoint.laws import admit, json_text, late_write
from harness.errors import CheckpointError

__all__ = ["delete_thread", "seq_of", "store", "unzip"]

_ZIP_FROM = 512
"""Values of fewer bytes gain too little from compression to be worth the time."""

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

_FORGET = (
    "DELETE FROM writes WHERE scope IN (SELECT scope FROM scopes WHERE thread = ?)",
    "DELETE FROM checkpoints WHERE scope IN (SELECT scope FROM scopes WHERE thread = ?)",
    "DELETE FROM scopes WHERE thread = ?",
    "DELETE FROM runs WHERE thread = ?",
    "DELETE FROM interrupts WHERE thread = ?",
    "DELETE FROM file_changes WHERE thread = ?",
    "DELETE FROM threads WHERE thread = ?",
)


def store(conn: sqlite3.Connection, batch: Batch, now: float) -> None:
    """Insert a batch's rows.

    Args:
        conn: A connection inside a transaction, which the caller rolls back on an error.
        batch: What to store; `check_batch` has passed it.
        now: Unix time of the commit, in seconds.

    Raises:
        StaleThread: Somebody else moved the thread.
        CheckpointError: Something of the batch cannot be stored.
        sqlite3.Error: The database failed.
    """
    thread = _thread(conn, batch.thread_id, now)
    if batch.writes or batch.checkpoints:
        scope, head = _scope(conn, thread, batch.ns)
        _store_writes(conn, scope, batch)
        if batch.checkpoints:
            _store_checkpoints(conn, thread, scope, head, batch.checkpoints)
    for run in batch.runs:
        _store_run(conn, thread, run)
    for interrupt in batch.interrupts:
        _store_interrupt(conn, thread, interrupt)
    if batch.answers:
        _store_answers(conn, thread, batch.answers)
    if batch.file_changes:
        _store_changes(conn, thread, batch.file_changes)


def delete_thread(conn: sqlite3.Connection, thread_id: str) -> None:
    """Delete all rows of a thread; unknown ids do nothing."""
    row = conn.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    if row is not None:
        for statement in _FORGET:
            conn.execute(statement, row)


def unzip(data: bytes, zipped: int) -> bytes:
    """Return a value as it was handed over."""
    return zlib.decompress(data) if zipped else data


def _zip(data: bytes) -> tuple[int, bytes]:
    """Return whether the value was compressed, and what to store."""
    if len(data) >= _ZIP_FROM:
        smaller = zlib.compress(data, 1)
        if len(smaller) < len(data):
            return 1, smaller
    return 0, data


def _thread(conn: sqlite3.Connection, thread_id: str, now: float) -> int:
    row = conn.execute(
        "UPDATE threads SET updated_at = ? WHERE thread_id = ? RETURNING thread", (now, thread_id)
    ).fetchone()
    if row is not None:
        return row[0]
    return _insert(
        conn,
        "INSERT INTO threads (thread_id, created_at, updated_at) VALUES (?, ?, ?)",
        (thread_id, now, now),
    )


def _scope(conn: sqlite3.Connection, thread: int, ns: str) -> tuple[int, int | None]:
    """Return the key of a namespace and the seq of its head."""
    key = (thread, ns)
    row = conn.execute(
        "SELECT scope, (SELECT max(seq) FROM checkpoints WHERE scope = scopes.scope)"
        " FROM scopes WHERE thread = ? AND ns = ?",
        key,
    ).fetchone()
    if row is not None:
        return row
    return _insert(conn, "INSERT INTO scopes (thread, ns) VALUES (?, ?)", key), None


def _insert(conn: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    key = conn.execute(statement, values).lastrowid
    assert key is not None  # an INSERT of one row always has one
    return key


def seq_of(conn: sqlite3.Connection, scope: int, checkpoint_id: str) -> int | None:
    """Return the seq of a checkpoint, or None if there is none."""
    row = conn.execute(
        "SELECT seq FROM checkpoints WHERE scope = ? AND id = ?", (scope, checkpoint_id)
    ).fetchone()
    return row[0] if row is not None else None


def _store_writes(conn: sqlite3.Connection, scope: int, batch: Batch) -> None:
    for task in batch.writes:
        known, finished = conn.execute(
            "SELECT EXISTS (SELECT 1 FROM writes WHERE scope = ?1 AND step_id = ?2"
            " AND task_id = ?3), EXISTS (SELECT 1 FROM checkpoints WHERE scope = ?1 AND id = ?2)",
            (scope, task.step_id, task.task_id),
        ).fetchone()
        if known:
            continue
        if finished:
            raise late_write(batch.thread_id, task.step_id, task.task_id)
        conn.executemany(
            "INSERT INTO writes (scope, step_id, task_id, idx, pos, channel, overwrite, zipped,"
            " value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            _write_rows(scope, task),
        )


def _write_rows(scope: int, task: TaskWrites) -> list[tuple[object, ...]]:
    key = (scope, task.step_id, task.task_id, task.index)
    if not task.writes:
        return [(*key, 0, None, 0, 0, b"")]
    return [_write_row(key, pos, write) for pos, write in enumerate(task.writes)]


def _write_row(key: tuple[object, ...], pos: int, write: StoredWrite) -> tuple[object, ...]:
    zipped, value = _zip(write.value)
    return (*key, pos, write.channel, int(write.overwrite), zipped, value)


def _store_checkpoints(
    conn: sqlite3.Connection,
    thread: int,
    scope: int,
    head: int | None,
    checkpoints: Sequence[Checkpoint],
) -> None:
    for new in checkpoints:
        known, parent = conn.execute(
            "SELECT (SELECT seq FROM checkpoints WHERE scope = ?1 AND id = ?2),"
            " (SELECT seq FROM checkpoints WHERE scope = ?1 AND id = ?3)",
            (scope, new.id, new.parent_id),
        ).fetchone()
        admit(
            new,
            exists=known is not None,
            parent_exists=parent is not None,
            parent_is_head=parent == head,
        )
        head = _insert(
            conn,
            "INSERT INTO checkpoints (scope, id, parent, step, source, author, next, run_id,"
            " created_at, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(scope, new.id, parent, new.step, new.source, new.author, new.next),
                *(new.run_id, new.created_at, new.summary),
            ),
        )
    conn.execute(
        "UPDATE threads SET checkpoints = checkpoints + ?, newest = ? WHERE thread = ?",
        (len(checkpoints), head, thread),
    )


def _store_run(conn: sqlite3.Connection, thread: int, run: Run) -> None:
    values = (run.id, thread, run.kind, run.agent, run.status, run.goal, run.owner, run.answer)
    values += (run.reason, run.idempotency_key, run.created_at, run.updated_at)
    values += (run.attempt, run.used, run.base)
    if conn.execute(_RUN, values).rowcount == 0:
        raise CheckpointError(
            f"run {run.id} belongs to another thread. Nothing was stored; use a new id."
        )


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


def _store_changes(conn: sqlite3.Connection, thread: int, changes: Sequence[FileChange]) -> None:
    (newest,) = conn.execute("SELECT newest FROM threads WHERE thread = ?", (thread,)).fetchone()
    for change in changes:
        zipped, before = (0, None) if change.before is None else _zip(change.before)
        conn.execute(
            "INSERT INTO file_changes (thread, run_id, path, before, zipped, after_digest,"
            " checkpoint_seq) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (thread, change.run_id, change.path, before, zipped, change.after_digest, newest),
        )
