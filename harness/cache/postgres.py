"""A cache in a Postgres database: for many processes and machines.

Needs the extra `postgres` (psycopg and psycopg_pool), and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ..databases.postgres import AsyncConnection, PostgresDatabase
from ..databases.postgres_tables import DatabaseKind
from . import CacheError

__all__ = ["PostgresCache"]

_CREATE = (
    """CREATE TABLE {entries} (
        entry bigint GENERATED ALWAYS AS IDENTITY,
        key text COLLATE "C" PRIMARY KEY,
        size bigint NOT NULL,
        expires_at double precision,
        value bytea NOT NULL
    )""",
    "CREATE INDEX entries_by_age ON {entries} (entry)",
    "CREATE INDEX entries_by_expiry ON {entries} (expires_at) WHERE expires_at IS NOT NULL",
)

_CACHE = DatabaseKind(
    name="cache",
    lock=0x44414D43,  # `DAMC`
    tables=("entries",),
    migrations=(_CREATE,),
    error=CacheError,
    newer=CacheError,
    settings={"synchronous_commit": "off"},  # a cache need not survive a power cut
)

_NOW = "coalesce(%(now)s::float8, extract(epoch FROM statement_timestamp())::float8)"

_GET = f"""
SELECT value FROM {{entries}}
WHERE key = %(key)s AND (expires_at IS NULL OR expires_at > {_NOW})
"""

_SET = f"""
INSERT INTO {{entries}} (key, size, expires_at, value)
VALUES (%(key)s, %(size)s, {_NOW} + %(ttl)s::float8, %(value)s)
ON CONFLICT (key) DO UPDATE SET entry = DEFAULT, size = excluded.size,
    expires_at = excluded.expires_at, value = excluded.value
"""

_EXPIRE = f"""
DELETE FROM {{entries}} WHERE key IN (
    SELECT key FROM {{entries}} WHERE expires_at <= {_NOW} LIMIT 1000 FOR UPDATE SKIP LOCKED
)
"""

_SHRINK = """
DELETE FROM {entries} WHERE key IN (
    SELECT key FROM {entries} WHERE entry <= (
        SELECT max(entry) FROM (
            SELECT entry, sum(size) OVER (ORDER BY entry DESC) AS newer FROM {entries}
        ) AS ages WHERE newer > %(kept)s
    ) FOR UPDATE SKIP LOCKED
)
"""

_KEPT = 0.9
"""Share of the bound that stays when it was met."""

_UNCOUNTED = 0.05
"""Share of the bound that a process writes before it counts what all have stored."""


class PostgresCache:
    """A `Cache` over a table in a Postgres database.

    It connects at the first use, or by `open()` or `async with` if its errors are wanted early, and
    makes the table if it is missing. `close()` is final.

    Args:
        conninfo: The database, as a connection string or URL of libpq.
        schema: The schema of the table, up to 63 bytes; made if missing.
        max_bytes: Bytes of keys and values kept; what was written first goes first. A value of
            more than half of it is not stored. Each process counts after it has written a
            twentieth of it, so there may be that much more.
        connections: How many there are at most; more callers wait.
        timeout: Seconds that a caller waits for a connection at most, and then for the server.
        clock: Unix time in seconds; by default the server's.

    Raises:
        ValueError: An argument is not as described.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "deep_agent_cache",
        max_bytes: int = 256 * 1024 * 1024,
        connections: int = 4,
        timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be positive; got {max_bytes}")
        self._database = PostgresDatabase(
            _CACHE, conninfo, schema, connections=connections, timeout=timeout
        )
        self._max_bytes = max_bytes
        self._clock = clock
        self._uncounted = max_bytes  # so that the first write counts

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect now, and make the table if it is missing.

        Raises:
            CacheError: The database cannot be reached, or refuses.
        """
        await self._database.open()

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        await self._database.close()

    async def get(self, key: str) -> bytes | None:
        """Return the value; see `Cache`."""

        async def work(conn: AsyncConnection) -> bytes | None:
            statement = self._database.tables.statement(_GET)
            found = await conn.execute(statement, {"key": key, "now": self._now()}, binary=True)
            row = await found.fetchone()
            return None if row is None else row[0]

        return await self._database.read(work)

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value; see `Cache`."""
        size = len(key.encode()) + len(value)
        if size > self._max_bytes // 2:
            return
        self._uncounted += size
        counts = self._uncounted > self._max_bytes * _UNCOUNTED
        given = {"key": key, "size": size, "ttl": ttl, "value": value, "now": self._now()}

        async def work(conn: AsyncConnection) -> None:
            await conn.execute(self._database.tables.statement(_SET), given)

        await self._database.transact(work)
        if counts:
            self._uncounted = 0
            # Not in the same transaction: two that hold an entry each would wait for each other.
            await self._database.transact(self._make_room)

    async def clear(self) -> None:
        """Remove everything; see `Cache`."""

        async def work(conn: AsyncConnection) -> None:
            await conn.execute(self._database.tables.sql("DELETE FROM {entries}"))

        await self._database.transact(work)

    async def _make_room(self, conn: AsyncConnection) -> None:
        tables = self._database.tables
        await conn.execute(tables.statement(_EXPIRE), {"now": self._now()})
        found = await conn.execute(tables.sql("SELECT coalesce(sum(size), 0) FROM {entries}"))
        row = await found.fetchone()
        if row is not None and row[0] > self._max_bytes:
            kept = int(self._max_bytes * _KEPT)
            await conn.execute(tables.statement(_SHRINK), {"kept": kept})

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()
