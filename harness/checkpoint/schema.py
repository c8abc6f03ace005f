"""The tables of the SQLite journal: how they are made, migrated and opened.

`PRAGMA user_version` counts the migrations a file has had. They run in one transaction, so a file
is of one version or another and never between two. Everything here blocks: it runs in the thread
of a connection.

How the rows hang together: a *thread* has *scopes*, one per namespace; checkpoints and tasks name
their scope by number, and steps whose id is one of ours are numbers too, which keeps rows and
indices small. A checkpoint names its parent by `seq`, so walking to the root costs one lookup a
step. All writes of a task are one body: a row of `bodies` at first, soon after a part of a *page*
of its scope. Large values are *blobs*, found by digest; `uses` says which tasks hold them, and a
blob that nothing holds any more is deleted.
*Snapshots* are a cache: rows that may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

from harness.checkpoint.migrations import MIGRATIONS, Migration
from harness.database_files import make_private
from harness.errors import CheckpointError, NewerDatabase

__all__ = ["BUSY_SECONDS", "open_reader", "open_writer", "transaction"]

BUSY_SECONDS = 10.0
"""How long a transaction waits for another process to finish its own."""

_APPLICATION_ID = 0x44414D31
"""Marks a file as ours: `DAM1`. What `file` shows, and what keeps us out of foreign databases."""

_DAMAGE = (sqlite3.Error, ValueError, TypeError)
"""What a damaged file leads to: SQLite's own text about it need not be Unicode either."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the journal for writing; create or migrate it if need be.

    The file is the user's alone (0600), and so is each directory that has to be made (0700).

    Raises:
        NewerDatabase: A newer version wrote the file; it was not touched.
        CheckpointError: The file cannot be opened or is not a journal.
    """
    try:
        make_private(path)
        conn = _connect(path)
    except (OSError, *_DAMAGE) as error:
        raise _unusable(path, error) from error
    try:
        _set_up(conn, path)
    except _DAMAGE as error:
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
    except _DAMAGE as error:
        raise _unusable(path, error) from error


@contextlib.contextmanager
def transaction(conn: sqlite3.Connection) -> Generator[None]:
    """Hold the write lock, and commit unless an error is raised."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # temp_store: sorting must not spill messages into files outside of our directory.
        for pragma in ("synchronous = FULL", "temp_store = MEMORY", *pragmas):
            conn.execute(f"PRAGMA {pragma}")
    except BaseException:
        conn.close()
        raise
    return conn


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
    if _check(conn, path) == len(MIGRATIONS):
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        version = _check(conn, path)  # again: another process may have been faster
        for migration in MIGRATIONS[version:]:
            for part in migration:
                _apply(conn, part)
        conn.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _apply(conn: sqlite3.Connection, part: Migration) -> None:
    if callable(part):
        part(conn)
        return
    for statement in part.split(";"):
        conn.execute(statement)


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
    if version > len(MIGRATIONS):
        raise NewerDatabase(
            f"{path} has journal version {version}, but this program knows only up to version "
            f"{len(MIGRATIONS)}; it was not touched. Upgrade the program, or start with another "
            f"file."
        )
    return version


def _unusable(path: Path, error: Exception) -> CheckpointError:
    code = _code(error)
    damaged = code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
    if damaged or isinstance(error, ValueError | TypeError):
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
