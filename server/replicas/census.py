"""Census of replicas: which are alive, and which are dead, as the database sees it.

A replica holds an advisory lock for as long as its connection lives, and says every two seconds
that it works. A process that was killed loses the lock at once. One that stands still, or whose
machine has vanished, keeps it for a while, but says nothing any more. Only the clock of the
database counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...harness._internal.records import record
from ...harness.databases.postgres import AsyncConnection, PostgresDatabase
from ...harness.databases.postgres_tables import Tables

__all__ = ["SILENT_SECONDS", "Census", "Replica", "census_of", "take_census"]

SILENT_SECONDS = 15.0
"""A replica that has said nothing for so long is dead, even if it has its lock."""

_FREE_LOOKS = 2
"""How often in a row a lock must be found free: a connection that broke is soon there again."""

_ALL = """
SELECT r.id, r.host, r.version, extract(epoch FROM r.started_at)::float8,
    extract(epoch FROM clock_timestamp() - r.seen_at)::float8, r.working, r.draining,
    l.objid IS NOT NULL,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8
FROM {replicas} AS r LEFT JOIN (
    SELECT classid::bigint AS classid, objid::bigint AS objid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS l ON l.classid = ((r.lock >> 32) & 4294967295) AND l.objid = (r.lock & 4294967295)
"""


@record
class Replica:
    """Replica as the others see it.

    Attributes:
        id: Its id, which is the `owner` of the runs it works on.
        host: The name of its machine.
        version: Of the program.
        started_at: Unix time in seconds, by the clock of the database.
        silent: Seconds since it last said that it works.
        working: How many runs it works on, as it said then.
        draining: Whether it is being stopped.
        has_lock: Whether its connection lives.
    """

    id: str
    host: str
    version: str
    started_at: float
    silent: float
    working: int
    draining: bool
    has_lock: bool


@record
class Census:
    """Result of one look at all replicas.

    Attributes:
        replicas: By id, those that died lately too.
        uptime: For how many seconds the database has been running.
        free: How often in a row a lock was found free, by id; only those that were.
    """

    replicas: Mapping[str, Replica] = field(default_factory=dict[str, Replica])
    uptime: float = 0.0
    free: Mapping[str, int] = field(default_factory=dict[str, int])

    def after(self, earlier: Census) -> Census:
        """Return this census, with what the one before says of locks."""
        free = {
            one.id: earlier.free.get(one.id, 0) + 1
            for one in self.replicas.values()
            if not one.has_lock
        }
        return Census(self.replicas, self.uptime, free)

    def is_dead(self, owner: str) -> bool:
        """Whether a replica is gone: it ended, was killed, or stands still."""
        found = self.replicas.get(owner)
        return (
            found is None or found.silent > SILENT_SECONDS or self.free.get(owner, 0) >= _FREE_LOOKS
        )

    @property
    def living(self) -> list[Replica]:
        """Those that are there, the oldest first."""
        living = [one for one in self.replicas.values() if not self.is_dead(one.id)]
        return sorted(living, key=lambda one: (one.started_at, one.id))


async def take_census(conn: AsyncConnection, tables: Tables) -> Census:
    """Look at all replicas."""
    rows = await (await conn.execute(tables.statement(_ALL))).fetchall()
    found = {row[0]: Replica(*row[:8]) for row in rows}
    return Census(found, rows[0][8] if rows else 0.0).after(Census())


async def census_of(database: PostgresDatabase) -> Census:
    """Return who is there, for a program that looks once.

    Whoever has no lock is taken for dead at once.
    """
    found = await database.read(lambda conn: take_census(conn, database.tables))
    return found.after(found)
