"""Caches of model answers and tool results: the protocol, one in memory, and one in a SQLite file.

A cache maps keys to bytes, with an optional lifetime. The SQLite cache survives a restart, and
processes may share it. Each of its operations is one statement, or a few that need not happen
together, so nothing is left half-done. Triggers count the stored bytes, whichever process writes.
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio

from ..databases.sqlite_files import Connection, DatabaseKind
from ..errors import HarnessError

__all__ = ["Cache", "CacheError", "MemoryCache", "SqliteCache"]


class CacheError(HarnessError):
    """A cache could not be read or written. A run continues without it."""


class Cache(Protocol):
    """A cache: bytes by key. Implementations are safe for concurrent calls.

    An entry may vanish at any time. Nothing makes callers that ask for the same missing key wait
    for each other: each does the work, and the last one's value stays.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None if there is none or its time is over.

        Raises:
            CacheError: The cache cannot be read.
        """
        ...

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value, in place of an older one.

        Args:
            key: The key.
            value: The value.
            ttl: Seconds it may be used; None for as long as there is room.

        Raises:
            CacheError: The cache cannot be written.
        """
        ...

    async def clear(self) -> None:
        """Remove everything.

        Raises:
            CacheError: The cache cannot be written.
        """
        ...


class MemoryCache:
    """A `Cache` that keeps the entries used last.

    Args:
        max_entries: Entries kept; the one that was not used for the longest time goes first.
        clock: Seconds that only grow.

    Raises:
        ValueError: `max_entries` is not positive.
    """

    def __init__(
        self, max_entries: int = 1_024, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be positive; got {max_entries}")
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None if there is none or its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expires = entry
        if expires is not None and expires <= self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value; see `Cache`."""
        self._entries[key] = (value, None if ttl is None else self._clock() + ttl)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    async def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()


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

_CACHE = DatabaseKind(
    "cache",
    0x44414D43,
    _TABLES,
    CacheError,
    CacheError,
    synchronous="NORMAL",  # a cache need not survive a power cut
    busy_seconds=2.0,
    remedy=(
        "Delete it, together with its -wal and -shm files; a new one is then made, and nothing is "
        "lost but time"
    ),
)


class SqliteCache:
    """A `Cache` over one SQLite file.

    The file is opened by the first use, or by `open()` or `async with` if its errors are wanted
    early. Only the user can access it, and every directory that is created for it. `close()` is
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
        self._connection: Connection | None = None
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

    async def _connected(self) -> Connection:
        async with self._opening:
            if self._closed:
                raise CacheError(f"the cache {self.path} is closed; open a new one")
            if self._connection is None:
                connection = Connection(partial(_CACHE.open_writer, self.path))
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
            raise _CACHE.refusal(self.path, error) from error
