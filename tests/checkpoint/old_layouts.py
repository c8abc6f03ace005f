"""Journals as earlier versions made them: their tables, and how they wrote a step."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from deep_agent_mcp.harness.checkpoint.base import Batch

APPLICATION_ID = 0x44414D31

FIRST = f"""
CREATE TABLE threads (
    thread INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    checkpoints INTEGER NOT NULL DEFAULT 0,
    newest INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX threads_by_change ON threads (updated_at);
CREATE TABLE scopes (
    scope INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    ns TEXT NOT NULL,
    UNIQUE (thread, ns)
);
CREATE TABLE checkpoints (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    id TEXT NOT NULL,
    parent INTEGER,
    step INTEGER NOT NULL,
    source TEXT NOT NULL,
    author TEXT NOT NULL,
    next TEXT NOT NULL,
    run_id TEXT,
    created_at REAL NOT NULL,
    summary TEXT NOT NULL,
    UNIQUE (scope, id)
);
CREATE INDEX checkpoints_by_scope ON checkpoints (scope);
CREATE TABLE writes (
    write INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    step_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    channel TEXT,
    overwrite INTEGER NOT NULL,
    zipped INTEGER NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (scope, step_id, task_id, pos)
);
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    thread INTEGER NOT NULL,
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    goal TEXT NOT NULL,
    owner TEXT,
    answer TEXT,
    reason TEXT,
    idempotency_key TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE INDEX runs_by_thread ON runs (thread);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_by_key ON runs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE interrupts (
    interrupt INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    id TEXT NOT NULL,
    ns TEXT NOT NULL,
    step_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    message TEXT NOT NULL,
    payload TEXT NOT NULL,
    answer_schema TEXT NOT NULL,
    idx INTEGER NOT NULL,
    answer TEXT NOT NULL,
    answered INTEGER NOT NULL,
    UNIQUE (thread, id)
);
CREATE INDEX interrupts_by_step ON interrupts (thread, step_id);
CREATE INDEX interrupts_by_run ON interrupts (run_id);
CREATE TABLE file_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    thread INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    before BLOB,
    zipped INTEGER NOT NULL,
    after_digest TEXT,
    checkpoint_seq INTEGER NOT NULL
);
CREATE INDEX file_changes_by_thread ON file_changes (thread, checkpoint_seq);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = 1;
INSERT INTO threads VALUES (1, 'thread_1', 1, 1, 0, 0);
"""

SECOND = f"""
{FIRST}
ALTER TABLE runs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN used TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN base TEXT;
PRAGMA user_version = 2;
"""


def write_second(path: Path, batches: list[Batch]) -> None:
    """Make a journal of the second version with the batches of one thread in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    conn = sqlite3.connect(path)
    conn.executescript(SECOND)
    with conn:
        for batch in batches:
            _write(conn, batch)
    conn.close()


def _write(conn: sqlite3.Connection, batch: Batch) -> None:
    conn.execute("INSERT OR IGNORE INTO scopes (thread, ns) VALUES (1, ?)", (batch.ns,))
    (scope,) = conn.execute("SELECT scope FROM scopes WHERE ns = ?", (batch.ns,)).fetchone()
    for task in batch.writes:
        key = (scope, task.step_id, task.task_id, task.index)
        rows: list[tuple[object, ...]] = [
            (*key, pos, one.channel, int(one.overwrite), *_zip(one.value))
            for pos, one in enumerate(task.writes)
        ]
        conn.executemany(
            "INSERT INTO writes (scope, step_id, task_id, idx, pos, channel, overwrite, zipped,"
            " value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows or [(*key, 0, None, 0, 0, b"")],
        )
    for new in batch.checkpoints:
        conn.execute(
            "INSERT INTO checkpoints (scope, id, parent, step, source, author, next, run_id,"
            " created_at, summary) VALUES (?, ?, (SELECT seq FROM checkpoints WHERE scope = ?"
            " AND id = ?), ?, ?, ?, ?, ?, ?, ?)",
            (
                *(scope, new.id, scope, new.parent_id, new.step, new.source, new.author),
                *(new.next, new.run_id, new.created_at, new.summary),
            ),
        )
        conn.execute(
            "UPDATE threads SET checkpoints = checkpoints + 1,"
            " newest = (SELECT max(seq) FROM checkpoints)"
        )
    for change in batch.file_changes:
        zipped, before = (0, None) if change.before is None else _zip(change.before)
        conn.execute(
            "INSERT INTO file_changes (thread, run_id, path, before, zipped, after_digest,"
            " checkpoint_seq) VALUES (1, ?, ?, ?, ?, ?, (SELECT newest FROM threads))",
            (change.run_id, change.path, before, zipped, change.after_digest),
        )


def _zip(value: bytes) -> tuple[int, bytes]:
    small = zlib.compress(value, 1)
    return (1, small) if len(value) >= 512 and len(small) < len(value) else (0, value)
