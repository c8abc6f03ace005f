"""SQLite files that only the user can read: created, migrated and opened.

`PRAGMA user_version` is the version of a file's tables. A migration is one transaction, so a file
is never between two versions. All functions except the methods of `Connection` block: they run in
a connection's thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import aiosqlite

from ..errors import HarnessError
from . import Version

__all__ = [
    "Connection",
    "DatabaseKind",
    "Migration",
    "is_busy",
    "is_damaged",
    "make_private",
    "new_private_file",
    "removed",
]

T = TypeVar("T")

Migration: TypeAlias = Sequence[str | Callable[[sqlite3.Connection], None]]
"""Statements and functions, in order. A released migration never changes."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)

_NO_TEXT = "Could not decode to UTF-8"
"""Start of Python's error for text that is not UTF-8; SQLite itself does not check that."""

_LEAST_FREE_BYTES = 64 * 1024
"""Minimum free space that SQLite needs to open a database: the index of its log has 32 KiB."""

_creating = threading.Lock()


class Connection(aiosqlite.Connection):
    """A connection with its own thread, which runs whole transactions.

    It is a daemon thread: acknowledged changes are already in the file when the process ends.

    Args:
        connector: Opens the database, in the connection's thread.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True

    async def start(self) -> None:
        """Open the database in the connection's thread.

        Raises:
            HarnessError: It cannot be opened.
        """
        try:
            await self
        except HarnessError:
            self._thread.join()  # returns soon: the thread has no work left
            raise

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the connection's thread, after all earlier ones; return its result."""
        return await self._execute(function, self._conn)  # pyright: ignore[reportUnknownMemberType]

    def hand_over(self, function: Callable[[sqlite3.Connection], None]) -> None:
        """Queue a function for the connection's thread and return at once.

        Nobody waits for the function: it must report its result itself and must not raise.

        Raises:
            ValueError: The connection is closed.
        """
        if not self._running:
            raise ValueError("the connection is closed")
        run = partial(function, self._conn)
        self._tx.put_nowait((None, run))  # pyright: ignore[reportUnknownMemberType]

    async def finish(self) -> None:
        """Run all queued functions, then close the database and end the thread."""
        await self.close()
        self._thread.join()  # returns soon: the last function has run


@dataclass(frozen=True)
class DatabaseKind:
    """Common properties of all files of one kind.

    Attributes:
        name: Name in error messages.
        application_id: Marks a file as ours. The command `file` shows it, and files of other
            programs are refused.
        create: Creates the tables in an empty file.
        error: Raised when a file cannot be used.
        newer: Raised when a newer version wrote the file.
        version: Version of the tables that `create` makes.
        readable_from: The oldest version whose programs may use these tables; by default `version`.
        upgrades: Migrations to the next version, by the version they start from.
        synchronous: `FULL` waits for the disk at each commit; with `NORMAL` the last commits may be
            lost in a power cut.
        busy_seconds: Maximum time to wait for another process's transaction.
        remedy: What the user can do about a damaged file.
    """

    name: str
    application_id: int
    create: Migration
    error: type[HarnessError]
    newer: type[HarnessError]
    version: int = 1
    readable_from: int | None = None
    upgrades: Mapping[int, Migration] = field(default_factory=dict[int, Migration])
    synchronous: str = "FULL"
    busy_seconds: float = 10.0
    remedy: str = (
        "Move it away, together with its -wal and -shm files, or restore a backup; a new one is "
        "then made"
    )

    def open_writer(self, path: Path) -> sqlite3.Connection:
        """Open a file for writing; create or migrate it if needed.

        Only the user can access the file (0600) and the directories that are created (0700).

        Raises:
            HarnessError: `newer` or `error`; the file is unchanged.
        """
        with self._refusing(path):
            make_private(path)
            conn = self._connect(path)
            try:
                self._set_up(conn, path)
            except BaseException:
                conn.close()
                raise
        return conn

    def open_reader(self, path: Path) -> sqlite3.Connection:
        """Open a file for reading only; `open_writer` must have opened it before.

        Raises:
            HarnessError: `error`: the file cannot be opened.
        """
        with self._refusing(path):
            return self._connect(path, "query_only = ON")

    @contextlib.contextmanager
    def _refusing(self, path: Path) -> Generator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise self.refusal(path, error) from error
        except (ValueError, TypeError) as error:  # SQLite's message about damage may not be Unicode
            raise self._damaged(path, error) from error

    def refusal(self, path: Path, error: Exception) -> HarnessError:
        """Return our exception for an error of SQLite or the operating system."""
        if is_damaged(error):
            return self._damaged(path, error)
        if is_busy(error):
            return self.error(
                f"the {self.name} {path} has been locked by another process for "
                f"{self.busy_seconds:.0f} s. Try again, or stop that process."
            )
        if _is_full(path):
            return self.error(
                f"the {self.name} {path} cannot be used, because its disk is full ({error}). Make "
                "room on the disk, then try again."
            )
        return self.error(
            f"the {self.name} {path} cannot be used: {error}. Check that the file and its "
            "directory exist, belong to you, are writable, and that the disk is not full."
        )

    def _damaged(self, path: Path, error: Exception) -> HarnessError:
        return self.error(
            f"the {self.name} {path} is damaged or not a database ({error}). {self.remedy}."
        )

    def _connect(self, path: Path, *pragmas: str) -> sqlite3.Connection:
        conn = sqlite3.connect(path, timeout=self.busy_seconds, isolation_level=None)
        try:
            # temp_store: sorting must not write values to files outside our directory.
            for pragma in (f"synchronous = {self.synchronous}", "temp_store = MEMORY", *pragmas):
                conn.execute(f"PRAGMA {pragma}")
        except BaseException:
            conn.close()
            raise
        return conn

    def _set_up(self, conn: sqlite3.Connection, path: Path) -> None:
        """Check and migrate the file; wait for other processes that do the same."""
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                self._check(conn, path)
                # SQLite's busy timeout does not cover a change of the journal mode.
                conn.execute("PRAGMA journal_mode = WAL")
                conn.execute("PRAGMA journal_size_limit = 16777216")
                self._migrate(conn, path)
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)  # in the connection's own thread
            else:
                return

    def _migrate(self, conn: sqlite3.Connection, path: Path) -> None:
        if self._check(conn, path) >= self.version:
            return
        conn.execute("BEGIN IMMEDIATE")
        try:
            version = self._check(conn, path)  # again: another process may have been faster
            for part in self._parts(version):
                if callable(part):
                    part(conn)
                else:
                    conn.execute(part)
            conn.execute(f"PRAGMA application_id = {self.application_id}")
            if version < self.version:
                made = Version.of(self.version, self.readable_from)
                conn.execute(f"PRAGMA user_version = {made.stored()}")
            conn.execute("COMMIT")
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")

    def _parts(self, version: int) -> Migration:
        """Return the migration from a version to the newest one."""
        if not version:
            return self.create
        return [part for one in range(version, self.version) for part in self.upgrades[one]]

    def _check(self, conn: sqlite3.Connection, path: Path) -> int:
        """Return the version of the file; 0 for an empty one."""
        # In one statement, because another process may be creating the file right now.
        stored, application, tables = conn.execute(
            "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_user_version, pragma_application_id"
        ).fetchone()
        version = Version.parse(stored)
        if application != self.application_id and (tables or stored or application):
            raise self.error(
                f"{path} is a database of another program; it was not touched. Give the "
                f"{self.name} its own file."
            )
        if not version.admits(self.version):
            raise self.newer(
                f"{path} was made by a newer version of this program: it has {self.name} version "
                f"{version.number}, and this one knows only up to {self.version}. It was not "
                f"touched. Upgrade the program, or give the {self.name} another file."
            )
        missing = range(version.number, self.version) if version.number else ()
        if any(one not in self.upgrades for one in missing):
            raise self.error(
                f"{path} has {self.name} version {version.number}, which this version of the "
                f"program can no longer read. It was not touched. Give the {self.name} another "
                "file."
            )
        return version.number


def _is_full(path: Path) -> bool:
    """Return whether the disk has too little space for SQLite's files next to a database."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_FREE_BYTES
    except OSError:
        return False


def make_private(database: Path) -> None:
    """Create a database's file and its directories with access for this user only (0600, 0700).

    An existing file keeps its content; its mode is changed. It is never opened here: SQLite uses
    POSIX locks, and closing any descriptor of a file drops all locks that the process has on it.
    Another process would then assume that the database is unused and remove its log.

    Raises:
        OSError: The file or a directory cannot be created, or the path is not a regular file.
            Changing the mode of a device, such as /dev/null, would lock out everybody else.
    """
    if database.exists() and not database.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    missing = [each for each in database.parents if not each.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    # With the lock, nobody in this process connects before the first descriptor is closed.
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if os.name != "posix":
        return
    # SQLite gives the -wal and -shm files the mode of the database.
    for suffix in ("", "-wal", "-shm"):
        # Another process may remove -wal and -shm at any time; another user's files stay unchanged.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            Path(f"{database}{suffix}").chmod(0o600)


def new_private_file(path: Path, error: type[HarnessError]) -> None:
    """Create an empty file with access for this user only (0600).

    Raises:
        HarnessError: `error`: the file exists or cannot be created.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise error(f"{path} exists already; nothing was written. Name a new file.") from None
    except OSError as failed:
        raise error(
            f"{path} cannot be written: {failed.strerror or failed}. Nothing was written."
        ) from failed


@contextlib.contextmanager
def removed(database: Path) -> Generator[None]:
    """Remove the database if the block raises, because it would be incomplete."""
    try:
        yield
    except BaseException:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        raise


def is_busy(error: Exception) -> bool:
    """Return whether another process has locked the database."""
    return _code(error) in _BUSY


def is_damaged(error: Exception) -> bool:
    """Return whether the file is damaged or not a database."""
    return _code(error) in _DAMAGED or str(error).startswith(_NO_TEXT)


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 if the error is not from SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
