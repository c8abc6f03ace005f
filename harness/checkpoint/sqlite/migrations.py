"""Migrations of the journal file: the current tables, and how to upgrade an older file.

A released script never changes. Changes that are not possible in SQL are functions of `upgrade`.

Version 4 had a row for each task, also of finished steps, and a page held bodies of tasks.
Upgrading moves the writes of a finished step into its checkpoint's row. The whole journal is read
and rewritten, a few steps at a time, in the caller's transaction. Of the current layout, only the
codec is used, because its bodies always stay readable.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ...databases.sqlite_files import Migration
from ..codec import PackedTask, compress, decompress, pack_step, plain
from .runs import OPEN_RUNS

__all__ = ["CREATE", "UPGRADES", "VERSION", "pack_steps"]


_PAGE_BYTES = 32_768
_AT_ONCE = 200
_KEPT = 4
_SECONDS = 10.0
"""How often progress is logged."""

_FINISHED_STEPS = """
SELECT c.seq, t.task_id, t.idx, t.task, t.page, t.place, t.length, b.body
FROM (SELECT seq, id FROM checkpoints WHERE scope = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) c
LEFT JOIN tasks t ON t.scope = ?1 AND t.step = c.id LEFT JOIN bodies b ON b.task = t.task
ORDER BY c.seq, t.idx, t.task
"""

_UNFINISHED = """
SELECT t.step, t.task_id, t.idx, t.task, t.page, t.place, t.length, b.body
FROM tasks t LEFT JOIN bodies b USING (task) WHERE t.scope = ?1 AND NOT EXISTS
    (SELECT 1 FROM checkpoints c WHERE c.scope = ?1 AND c.id = t.step)
ORDER BY t.task
"""

logger = logging.getLogger(__name__)


def pack_steps(conn: sqlite3.Connection) -> None:
    """Store each step's writes in its row, and each task of an unfinished step in its own row."""
    (steps,) = conn.execute("SELECT count(*) FROM checkpoints").fetchone()
    if steps:
        logger.warning("the journal is brought up to date: %s steps, which may take long", steps)
    (floor,) = conn.execute("SELECT min(coalesce(min(page), 0), 0) FROM pages").fetchone()
    done, lost, said = 0, 0, time.monotonic()
    for (scope,) in conn.execute("SELECT scope FROM scopes").fetchall():
        pages = _Pages(conn, scope)
        for seq, step in _steps(conn, scope, pages):
            done += 1
            if step is None:  # so that only data that needs it fails
                lost += 1
                conn.execute("UPDATE checkpoints SET page = 0 WHERE seq = ?", (seq,))
            else:
                pages.add(seq, step)
            if time.monotonic() > said + _SECONDS:
                said = time.monotonic()
                logger.warning("the journal is brought up to date: %s of %s steps", done, steps)
        pages.store()
        _unfinished(conn, scope, pages)
        conn.execute("DELETE FROM pages WHERE scope = ? AND page >= ?", (scope, floor))
    if lost:
        logger.error("the journal was damaged before: the writes of %s steps are lost", lost)
    if steps:
        logger.warning("the journal is up to date")


class _Pages:
    """The pages of a namespace: those of version 4 are read, new ones are written."""

    def __init__(self, conn: sqlite3.Connection, scope: int) -> None:
        self._conn = conn
        self._scope = scope
        self._kept: dict[int, bytes] = {}
        self._steps: list[tuple[int, bytes]] = []
        self._size = 0

    def body(self, task: int, page: Any, place: Any, length: Any, body: bytes | None) -> bytes:
        """Return the body of a task, from its row or a page."""
        if body is not None:
            return decompress(body)
        number = task if page is None else page
        data = self._kept.get(number)
        if data is None:
            row = self._conn.execute("SELECT body FROM pages WHERE page = ?", (number,)).fetchone()
            if row is None:
                raise ValueError("a stored write is in a page that is not there")
            if len(self._kept) == _KEPT:
                del self._kept[next(iter(self._kept))]
            data = self._kept[number] = decompress(row[0])
        if not 0 <= place <= place + length <= len(data):
            raise ValueError("a stored write is beyond the end of its page")
        return data[place : place + length]

    def add(self, seq: int, step: bytes) -> None:
        """Put a step into the next page."""
        self._steps.append((seq, step))
        self._size += len(step)
        if self._size >= _PAGE_BYTES:
            self.store()

    def store(self) -> None:
        """Store the current page."""
        if not self._steps:
            return
        conn = self._conn
        (number,) = conn.execute("SELECT min(coalesce(min(page), 0), 0) - 1 FROM pages").fetchone()
        body = compress(b"".join([step for _, step in self._steps]))
        conn.execute("INSERT INTO pages VALUES (?, ?, ?)", (number, self._scope, body))
        place = 0
        for seq, step in self._steps:
            conn.execute(
                "UPDATE checkpoints SET page = ?, place = ?, length = ? WHERE seq = ?",
                (number, place, len(step), seq),
            )
            place += len(step)
        self._steps, self._size = [], 0


def _steps(
    conn: sqlite3.Connection, scope: int, pages: _Pages
) -> Iterator[tuple[int, bytes | None]]:
    """Yield each finished step as bytes, or None if its writes are damaged."""
    seq = 0
    while rows := conn.execute(_FINISHED_STEPS, (scope, seq, _AT_ONCE)).fetchall():
        for seq, tasks in groupby(rows, key=lambda row: row[0]):
            yield seq, _packed([task[1:] for task in tasks if task[3] is not None], pages)


def _packed(tasks: Sequence[Sequence[Any]], pages: _Pages) -> bytes | None:
    try:
        return pack_step(
            PackedTask(task_id, index, pages.body(*place)) for task_id, index, *place in tasks
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _unfinished(conn: sqlite3.Connection, scope: int, pages: _Pages) -> None:
    """Store the tasks of unfinished steps."""
    for step, task_id, index, *place in conn.execute(_UNFINISHED, (scope,)).fetchall():
        try:
            body = plain(pages.body(*place))
        except (ValueError, TypeError):
            body = b""  # readers of it get an error
        number = place[0]
        conn.execute(
            "INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)",
            (number, scope, step, task_id, index, body),
        )
        conn.execute(
            "INSERT INTO uses SELECT ?, blob FROM old_uses WHERE task = ?", (-number, number)
        )


VERSION = 7

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
    WHERE status IN ('queued', 'running', 'needs_approval', 'paused')
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
    *_parts(_STEPS, _FILE_CHANGES, _OTHERS, _RUNS_BY_STATUS, OPEN_RUNS),
    "INSERT INTO numbers VALUES (0)",
]
"""Makes the tables in an empty file."""

UPGRADES: Mapping[int, Migration] = {
    4: [
        *_parts(_OF_VERSION_4, _STEPS, _FILE_CHANGES, _RUNS_BY_STATUS, _COPIED),
        pack_steps,
        *_parts(_PACKED),
    ],
    5: [OPEN_RUNS],
    6: ["DROP INDEX runs_by_status", _RUNS_BY_STATUS],
}
"""The changes that upgrade a file by one version."""
