"""Migrations of the journal file: one script for each version.

A released script never changes. What a script cannot say in SQL is a function beside it, which
uses nothing of the present layout but the codec, whose bodies are readable for good.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ...databases.sqlite_files import Migration
from ..base import StoredWrite
from ..codec import SHARED_FROM, compress, digest_of, pack, step_key

__all__ = ["MIGRATIONS", "share"]

_CREATE = """
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
"""

_RUN_ATTEMPTS = """
ALTER TABLE runs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN used TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN base TEXT
"""

_PACKED = """
CREATE TABLE new_checkpoints (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    id NOT NULL,
    parent INTEGER,
    step INTEGER NOT NULL,
    source TEXT NOT NULL,
    author TEXT NOT NULL,
    next TEXT NOT NULL,
    run_id TEXT,
    created_at REAL NOT NULL,
    weight INTEGER NOT NULL,
    summary TEXT NOT NULL
);
CREATE TABLE tasks (
    task INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    step NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    page INTEGER,
    place INTEGER,
    length INTEGER
);
CREATE TABLE bodies (
    task INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
);
CREATE TABLE uses (
    task INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (task, blob)
) WITHOUT ROWID;
CREATE INDEX uses_by_blob ON uses (blob);
CREATE TABLE pages (
    page INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX pages_by_scope ON pages (scope);
CREATE TABLE snapshots (
    seq INTEGER NOT NULL,
    schema TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (seq, schema)
);
CREATE TABLE new_file_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    thread INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    before BLOB,
    blob INTEGER,
    after_digest TEXT,
    checkpoint_seq INTEGER NOT NULL
)
"""

_UNPACKED = """
DROP TABLE writes;
DROP TABLE checkpoints;
DROP TABLE file_changes;
ALTER TABLE new_checkpoints RENAME TO checkpoints;
ALTER TABLE new_file_changes RENAME TO file_changes;
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (scope, id);
CREATE INDEX checkpoints_by_scope ON checkpoints (scope);
CREATE INDEX tasks_by_step ON tasks (scope, step);
CREATE INDEX file_changes_by_thread ON file_changes (thread, checkpoint_seq);
CREATE INDEX file_changes_by_blob ON file_changes (blob) WHERE blob IS NOT NULL
"""


_EVENTS = """
CREATE TABLE event_logs (
    log INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    run_id TEXT NOT NULL UNIQUE,
    newest INTEGER NOT NULL
);
CREATE INDEX event_logs_by_thread ON event_logs (thread);
CREATE TABLE events (
    log INTEGER NOT NULL,
    last INTEGER NOT NULL,
    created_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (log, last)
) WITHOUT ROWID;
CREATE INDEX events_by_age ON events (created_at)
"""


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


def _pack_rows(conn: sqlite3.Connection) -> None:
    """Put the writes of each task into one body, and large values where they are shared."""
    for name in ("checkpoints", "file_changes"):
        conn.execute(
            "INSERT INTO sqlite_sequence SELECT 'new_' || name, seq FROM sqlite_sequence"
            " WHERE name = ?",
            (name,),
        )
    conn.executemany(
        "INSERT INTO new_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
        _checkpoints(conn),
    )
    for key, writes in _tasks(conn):
        used: set[int] = set()

        def keep(value: bytes, used: set[int] = used) -> int:
            blob = share(conn, value)
            used.add(blob)
            return blob

        task = conn.execute(
            "INSERT INTO tasks (scope, step, task_id, idx) VALUES (?, ?, ?, ?)", key
        ).lastrowid
        body = compress(pack(writes, keep))
        conn.execute("INSERT INTO bodies VALUES (?, ?)", (task, body))
        conn.executemany("INSERT INTO uses VALUES (?, ?)", [(task, blob) for blob in used])
    conn.executemany(
        "INSERT INTO new_file_changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _file_changes(conn)
    )


def _checkpoints(conn: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    rows = conn.execute(
        "SELECT seq, scope, id, parent, step, source, author, next, run_id, created_at, summary"
        " FROM checkpoints ORDER BY seq"
    )
    for seq, scope, step, *rest in rows:
        yield seq, scope, step_key(step), *rest


def _tasks(conn: sqlite3.Connection) -> Iterator[tuple[tuple[Any, ...], list[StoredWrite]]]:
    """Give each task's key and writes, in order of commit; a task's rows follow each other."""
    rows: Iterable[tuple[Any, ...]] = conn.execute(
        "SELECT scope, step_id, task_id, idx, channel, value, overwrite, zipped"
        " FROM writes ORDER BY write"
    )
    for (scope, step, task_id, index), group in groupby(rows, key=lambda row: row[:4]):
        yield (
            (scope, step_key(step), task_id, index),
            [
                StoredWrite(channel, _value(value, zipped), bool(overwrite))
                for *_, channel, value, overwrite, zipped in group
                if channel is not None
            ],
        )


def _file_changes(conn: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    rows = conn.execute(
        "SELECT seq, thread, run_id, path, before, zipped, after_digest, checkpoint_seq"
        " FROM file_changes ORDER BY seq"
    )
    for seq, thread, run_id, path, before, zipped, *rest in rows:
        content = None if before is None else _value(before, zipped)
        if content is None:
            body, blob = None, None
        elif len(content) >= SHARED_FROM:
            body, blob = None, share(conn, content)
        else:
            body, blob = compress(content), None
        yield seq, thread, run_id, path, body, blob, *rest


def _value(data: bytes, zipped: int) -> bytes:
    return zlib.decompress(data) if zipped else data


MIGRATIONS: tuple[Migration, ...] = (
    _CREATE.split(";"),
    _RUN_ATTEMPTS.split(";"),
    [*_PACKED.split(";"), _pack_rows, *_UNPACKED.split(";")],
    _EVENTS.split(";"),
)
"""Version n is the state after the first n."""
