"""Tables of the journal file: those of this version, and how a file of an older one gets them.

A released script never changes. What a script cannot say in SQL is a function of `upgrade`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...databases.sqlite_files import Migration
from .upgrade import pack_steps

__all__ = ["CREATE", "UPGRADES", "VERSION"]

VERSION = 5

_STEPS = """
CREATE TABLE numbers (
    given INTEGER NOT NULL
);
CREATE TABLE checkpoints (
    seq INTEGER PRIMARY KEY,
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
    summary TEXT NOT NULL,
    page INTEGER,
    place INTEGER NOT NULL,
    length INTEGER NOT NULL,
    body BLOB
);
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (scope, id);
CREATE INDEX checkpoints_by_scope ON checkpoints (scope);
CREATE TABLE pending (
    task INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    step NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX pending_by_step ON pending (scope, step);
CREATE TABLE uses (
    holder INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (holder, blob)
) WITHOUT ROWID;
CREATE INDEX uses_by_blob ON uses (blob)
"""

_FILE_CHANGES = """
CREATE TABLE file_changes (
    seq INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    before BLOB,
    blob INTEGER,
    after_digest TEXT,
    checkpoint_seq INTEGER NOT NULL
);
CREATE INDEX file_changes_by_thread ON file_changes (thread, checkpoint_seq);
CREATE INDEX file_changes_by_blob ON file_changes (blob) WHERE blob IS NOT NULL
"""

_RUNS_BY_STATUS = """
CREATE INDEX runs_by_status ON runs (status)
    WHERE status IN ('running', 'needs_approval', 'paused')
"""

_OTHERS = """
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
    updated_at REAL NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    used TEXT NOT NULL DEFAULT '',
    base TEXT
);
CREATE INDEX runs_by_thread ON runs (thread);
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
CREATE TABLE pages (
    page INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX pages_by_scope ON pages (scope);
CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
);
CREATE TABLE snapshots (
    seq INTEGER NOT NULL,
    schema TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (seq, schema)
);
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
) WITHOUT ROWID
"""

# Version 4 had tasks of finished steps too, and numbers that SQLite gave.
_OF_VERSION_4 = """
DROP INDEX checkpoints_by_id;
DROP INDEX checkpoints_by_scope;
DROP INDEX uses_by_blob;
DROP INDEX file_changes_by_thread;
DROP INDEX file_changes_by_blob;
DROP INDEX runs_by_status;
DROP INDEX events_by_age;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
ALTER TABLE uses RENAME TO old_uses;
ALTER TABLE file_changes RENAME TO old_file_changes
"""

_COPIED = """
INSERT INTO numbers
    SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'old_checkpoints';
INSERT INTO file_changes SELECT * FROM old_file_changes ORDER BY seq;
DROP TABLE old_file_changes;
INSERT INTO checkpoints SELECT *, NULL, 0, 0, NULL FROM old_checkpoints ORDER BY seq;
DROP TABLE old_checkpoints;
INSERT INTO uses SELECT DISTINCT c.seq, u.blob FROM old_uses u JOIN tasks t USING (task)
    JOIN checkpoints c ON c.scope = t.scope AND c.id = t.step
"""

_PACKED = """
DROP TABLE old_uses;
DROP TABLE tasks;
DROP TABLE bodies;
DELETE FROM sqlite_sequence
"""


def _parts(*scripts: str) -> Migration:
    return [part for script in scripts for part in script.split(";")]


CREATE = [
    *_parts(_STEPS, _FILE_CHANGES, _OTHERS, _RUNS_BY_STATUS),
    "INSERT INTO numbers VALUES (0)",
]
"""Makes the tables in an empty file."""

UPGRADES: Mapping[int, Migration] = {
    4: [
        *_parts(_OF_VERSION_4, _STEPS, _FILE_CHANGES, _RUNS_BY_STATUS, _COPIED),
        pack_steps,
        *_parts(_PACKED),
    ]
}
"""What makes a file one version newer."""
