"""The file of the SQLite store: its tables, and how it is opened.

`PRAGMA user_version` counts the migrations a file has had. They run in one transaction, so a file
is of one version or another and never between two. Everything but the connection's own methods
blocks: it runs in the thread of a connection.

How `items.namespace` is written is said in `harness.store.names`. `words` holds the words of an
item as `harness.store.texts` found them, with spaces between; its tokenizer splits at those only.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiosqlite

from harness.database_files import make_private
from harness.store.base import NewerStore, StoreError

__all__ = ["BUSY_SECONDS", "Connection", "open_reader", "open_writer"]

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long a transaction waits for another process to finish its own."""

_APPLICATION_ID = 0x44414D53
"""Marks a file as ours: `DAMS`."""

_CREATE = (
    """CREATE TABLE items (
        item INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        ttl REAL,
        expires_at REAL,
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX items_by_expiry ON items (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'ascii')",
    """CREATE TABLE vectors (
        vector INTEGER PRIMARY KEY,
        item INTEGER NOT NULL,
        direction BLOB NOT NULL
    )""",
    "CREATE INDEX vectors_by_item ON vectors (item)",
    """CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
        DELETE FROM words WHERE rowid = old.item;
        DELETE FROM vectors WHERE item = old.item;
    END""",
)

_MIGRATIONS = (_CREATE,)
"""Statements in order; a released script never changes. Version n is the state after n scripts."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Connection(aiosqlite.Connection):
    """A connection whose thread runs whole transactions.

    The thread does not keep the process alive: what was acknowledged is on disk.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True

    async def start(self) -> None:
        """Open the database in the connection's thread."""
        try:
            await self
        except StoreError:
            self._thread.join()  # it has nothing left to do
            raise

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the connection's thread, after all that were handed over before."""
        return await self._execute(function, self._conn)  # pyright: ignore[reportUnknownMemberType]

    async def finish(self) -> None:
        """Run what was handed over, then close the database and end the thread."""
        await self.close()
        self._thread.join()  # it has run its last function


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the store for writing; create or migrate it if need be.

    The file is the user's alone (0600), and so is each directory that has to be made (0700).

    Raises:
        NewerStore: A newer version wrote the file; it was not touched.
        StoreError: The file cannot be opened or is not a store.
    """
    try:
        make_private(path)
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
    """Open a store that `open_writer` has made ready, for reading only.

    Raises:
        StoreError: The file cannot be opened.
    """
    try:
        return _connect(path, "query_only = ON")
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # temp_store: sorting must not spill values into files outside of our directory.
        for pragma in ("synchronous = FULL", "temp_store = MEMORY", *pragmas):
            conn.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
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
    if _check(conn, path) == len(_MIGRATIONS):
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        version = _check(conn, path)  # again: another process may have been faster
        for script in _MIGRATIONS[version:]:
            for statement in script:
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
        raise StoreError(
            f"{path} is a database of another program; it was not touched. Give the store a file "
            "of its own."
        )
    if version > len(_MIGRATIONS):
        raise NewerStore(
            f"{path} has store version {version}, but this program knows only up to version "
            f"{len(_MIGRATIONS)}; it was not touched. Upgrade the program, or use another file."
        )
    return version


def _unusable(path: Path, error: Exception) -> StoreError:
    code = _code(error)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreError(
            f"{path} is damaged or not a database ({error}). Move it away, together with its -wal "
            "and -shm files, or restore a backup; a new store is then made."
        )
    if code in _BUSY:
        return StoreError(
            f"{path} has been locked by another process for {BUSY_SECONDS:.0f} s. Try again, or "
            "stop that process."
        )
    if "fts5" in str(error):
        return StoreError(
            f"the store {path} cannot be opened: this Python's SQLite was built without FTS5. Use "
            "another build of Python, or PostgresStore."
        )
    return StoreError(
        f"the store {path} cannot be opened for writing: {error}. Check that the file and its "
        "directory exist, belong to you, are writable, and that the disk is not full."
    )


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 when SQLite did not raise it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
