"""A cache in one SQLite file: it survives a restart, and processes may share it.

Each operation is one statement, or a few that need not happen together, so nothing is ever left
half-done. How many bytes there are is counted by triggers, whoever writes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import aiosqlite
import anyio

from harness.cache.base import CacheError
from harness.database_files import make_private

__all__ = ["SqliteCache"]

_BUSY_SECONDS = 2.0
"""How long an operation waits for another process: a cache is there to save time."""

_APPLICATION_ID = 0x44414D43
"""Marks a file as ours: `DAMC`."""

_VERSION = 1

_TABLES = (
    """CREATE TABLE entries (
        entry INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        written_at REAL NOT NULL,
        expires_at REAL,
        value BLOB NOT NULL
    )""",
    "CREATE INDEX entries_by_age ON entries (written_at, size)",
    "CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE TABLE total (bytes INTEGER NOT NULL)",
    "INSERT INTO total VALUES (0)",
    """CREATE TRIGGER entry_added AFTER INSERT ON entries
        BEGIN UPDATE total SET bytes = bytes + new.size; END""",
    """CREATE TRIGGER entry_replaced AFTER UPDATE ON entries
        BEGIN UPDATE total SET bytes = bytes + new.size - old.size; END""",
    """CREATE TRIGGER entry_removed AFTER DELETE ON entries
        BEGIN UPDATE total SET bytes = bytes - old.size; END""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)

_GET = "SELECT value FROM entries WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)"

_SET = """
INSERT INTO entries (key, size, written_at, expires_at, value) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET size = excluded.size, written_at = excluded.written_at,
    expires_at = excluded.expires_at, value = excluded.value
"""

_EXPIRE = "DELETE FROM entries WHERE expires_at <= ?"

_SHRINK = """
DELETE FROM entries WHERE entry IN (SELECT entry FROM (
    SELECT entry, sum(size) OVER (ORDER BY written_at DESC, entry DESC) AS newer FROM entries
) WHERE newer > ?)
"""

_KEPT = 0.9
"""Share of the bound that stays when it was met, so that not every write has to make room."""

_WRITES_PER_SWEEP = 256
"""Writes after which expired entries are removed, if there was room all the time."""

_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class _Connection(aiosqlite.Connection):
    """A connection that does not keep the process alive: a cache may be forgotten."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True

    async def start(self) -> None:
        """Open the database in the connection's thread."""
        try:
            await self
        except CacheError:
            self._thread.join()  # it has nothing left to do
            raise


class SqliteCache:
    """A `Cache` over one SQLite file.

    The file is opened by the first use, or by `open()` or `async with` if its errors are wanted
    early. It, and every directory that has to be made for it, is the user's alone. `close()` is
    final.

    Args:
        path: The file; made when it is not there.
        max_bytes: Bytes of keys and values kept; what was written first goes first. A value of
            more than half of it is not stored.
        clock: Seconds since the epoch.

    Raises:
        ValueError: `max_bytes` is not positive.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be positive; got {max_bytes}")
        self.path = Path(path)
        self._max_bytes = max_bytes
        self._clock = clock
        self._opening = anyio.Lock()
        self._connection: _Connection | None = None
        self._closed = False
        self._writes = 0

    async def open(self) -> None:
        """Open the file now.

        Raises:
            CacheError: It cannot be opened, is damaged, or is not a cache.
        """
        await self._connected()

    async def __aenter__(self) -> SqliteCache:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, key: str) -> bytes | None:
        """Return the value; see `Cache`."""
        for (value,) in await self._run(_GET, key, self._clock()):
            return value
        return None

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value; see `Cache`."""
        size = len(key.encode()) + len(value)
        if size > self._max_bytes // 2:
            return
        now = self._clock()
        expires = None if ttl is None else now + ttl
        await self._run(_SET, key, size, now, expires, value)
        self._writes += 1
        if await self._bytes() > self._max_bytes or self._writes % _WRITES_PER_SWEEP == 0:
            await self._make_room(now)

    async def clear(self) -> None:
        """Remove everything; see `Cache`."""
        await self._run("DELETE FROM entries")

    async def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                connection, self._connection = self._connection, None
                if connection is not None:
                    await connection.close()

    async def _make_room(self, now: float) -> None:
        await self._run(_EXPIRE, now)
        if await self._bytes() > self._max_bytes:
            await self._run(_SHRINK, int(self._max_bytes * _KEPT))

    async def _bytes(self) -> int:
        for (total,) in await self._run("SELECT bytes FROM total"):
            return total
        return 0

    async def _connected(self) -> _Connection:
        async with self._opening:
            if self._closed:
                raise CacheError(f"the cache {self.path} is closed; open a new one")
            if self._connection is None:
                connection = _Connection(partial(_open, self.path))
                # An opening that is left half-way would leave a file open behind.
                with anyio.CancelScope(shield=True):
                    await connection.start()
                self._connection = connection
            return self._connection

    async def _run(self, sql: str, *parameters: object) -> Iterable[sqlite3.Row]:
        connection = self._connection or await self._connected()
        try:
            return await connection.execute_fetchall(sql, parameters)
        # ValueError: the connection was closed meanwhile; also text that is not Unicode.
        except (sqlite3.Error, ValueError) as error:
            raise _failed(self.path, error) from error


def _open(path: Path) -> sqlite3.Connection:
    """Open the cache; make it if need be. Runs in the connection's thread."""
    try:
        make_private(path)
        conn = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise _failed(path, error) from error
    try:
        # A cache need not survive a power cut. temp_store: nothing spills into other directories.
        for pragma in ("synchronous = NORMAL", "temp_store = MEMORY"):
            conn.execute(f"PRAGMA {pragma}")
        _set_up(conn, path)
    except sqlite3.Error as error:
        conn.close()
        raise _failed(path, error) from error
    except BaseException:
        conn.close()
        raise
    return conn


def _set_up(conn: sqlite3.Connection, path: Path) -> None:
    """Make the tables, waiting for other processes that do the same."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            _check(conn, path)
            # Changing the journal mode is the one lock SQLite does not wait for by itself.
            conn.execute("PRAGMA journal_mode = WAL")
            _create(conn, path)
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # in the connection's own thread
        else:
            return


def _create(conn: sqlite3.Connection, path: Path) -> None:
    if _check(conn, path) == _VERSION:
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        if _check(conn, path) == 0:  # again: another process may have been faster
            for statement in _TABLES:
                conn.execute(statement)
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _check(conn: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file; 0 for an empty one."""
    version, application, tables = conn.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if application != _APPLICATION_ID and (tables or version or application):
        raise CacheError(
            f"{path} is a database of another program; it was not touched. Give the cache a file "
            "of its own."
        )
    if version > _VERSION:
        raise CacheError(
            f"{path} was made by a newer version; it was not touched. Upgrade the program, or "
            "give the cache another file."
        )
    return version


def _failed(path: Path, error: Exception) -> CacheError:
    if _code(error) in _DAMAGED:
        return CacheError(
            f"the cache {path} is damaged or not a database ({error}). Delete it, together with "
            "its -wal and -shm files; a new one is then made, and nothing is lost but time."
        )
    if _code(error) in _BUSY:
        return CacheError(
            f"the cache {path} has been locked by another process for {_BUSY_SECONDS:.0f} s. Try "
            "again, or stop that process."
        )
    return CacheError(
        f"the cache {path} cannot be used: {error}. Check that the file and its directory belong "
        "to you and are writable, and that the disk is not full."
    )


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 when SQLite did not raise it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
