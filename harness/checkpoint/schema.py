"""The tables of the SQLite journal: how they are made, migrated and opened.

`PRAGMA user_version` counts the migrations a file has had. They run in one transaction, so a file
is of one version or another and never between two. Everything here blocks: it runs in the thread
of a connection.

How the rows hang together: a *thread* has *scopes*, one per namespace; checkpoints and writes
name their scope by number, which keeps rows and indices small. A checkpoint names its parent by
`seq`, so walking to the root costs one lookup a step. A task without writes has one row without a
channel, since that it finished is worth knowing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from harness.errors import CheckpointError, NewerDatabase

__all__ = ["BUSY_SECONDS", "open_reader", "open_writer"]

BUSY_SECONDS = 10.0
"""How long a transaction waits for another process to finish its own."""

_APPLICATION_ID = 0x44414D31
"""Marks a file as ours: `DAM1`. What `file` shows, and what keeps us out of foreign databases."""

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

_MIGRATIONS = (_CREATE, _RUN_ATTEMPTS)
"""Scripts in order; a released one never changes. Version n is the state after the first n."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the journal for writing; create or migrate it if need be.

    The file is the user's alone (0600), and so is each directory that has to be made (0700).

    Raises:
        NewerDatabase: A newer version wrote the file; it was not touched.
        CheckpointError: The file cannot be opened or is not a journal.
    """
    try:
        _make_private(path)
        conn = _connect(path)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(path, error) from error
    try:
        _set_up(conn, path)
    except sqlite3.Error as error:
        conn.close()
        raise _unusable(path, error) from error
    except BaseException:
        conn.close()
        raise
    return conn


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a journal that `open_writer` has made ready, for reading only.

    Raises:
        CheckpointError: The file cannot be opened.
    """
    try:
        return _connect(path, "query_only = ON")
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # temp_store: sorting must not spill messages into files outside of our directory.
        for pragma in ("synchronous = FULL", "temp_store = MEMORY", *pragmas):
            conn.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        conn.close()
        raise
    return conn


def _make_private(path: Path) -> None:
    missing = [each for each in path.parents if not each.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    # SQLite gives the -wal and -shm files the mode of the database.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if os.name != "posix":
        return
    for suffix in ("", "-wal", "-shm"):
        # Another process may remove -wal and -shm at any time; a file of another user stays as is.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            Path(f"{path}{suffix}").chmod(0o600)


def _set_up(conn: sqlite3.Connection, path: Path) -> None:
    """Check and migrate, waiting for other processes that do the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            _check(conn, path)
            # Changing the journal mode is the one lock SQLite does not wait for by itself.
            conn.execute("PRAGMA journal_mode = WAL")
            conn.execute("PRAGMA journal_size_limit = 16777216")
            _migrate(conn, path)
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # in the connection's own thread
        else:
            return


def _migrate(conn: sqlite3.Connection, path: Path) -> None:
    if _check(conn, path) == len(_MIGRATIONS):
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        version = _check(conn, path)  # again: another process may have been faster
        for script in _MIGRATIONS[version:]:
            for statement in script.split(";"):
                conn.execute(statement)
        conn.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _check(conn: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file; 0 for an empty one."""
    # In one statement: another process may be making the file right now.
    version, application, tables = conn.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if application != _APPLICATION_ID and (tables or version or application):
        raise CheckpointError(
            f"{path} is a database of another program; it was not touched. Give the journal a "
            f"file of its own."
        )
    if version > len(_MIGRATIONS):
        raise NewerDatabase(
            f"{path} has journal version {version}, but this program knows only up to version "
            f"{len(_MIGRATIONS)}; it was not touched. Upgrade the program, or start with another "
            f"file."
        )
    return version


def _unusable(path: Path, error: Exception) -> CheckpointError:
    code = _code(error)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return CheckpointError(
            f"{path} is damaged or not a database ({error}). Move it away, together with its -wal "
            f"and -shm files, or restore a backup; a new journal is then made."
        )
    if code in _BUSY:
        return CheckpointError(
            f"{path} has been locked by another process for {BUSY_SECONDS:.0f} s. Try again, or "
            f"stop that process."
        )
    return CheckpointError(
        f"the journal {path} cannot be opened for writing: {error}. Check that the file and its "
        f"directory exist, belong to you, are writable, and that the disk is not full."
    )


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 when SQLite did not raise it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
