"""Census of replicas: which are alive and which are dead, according to the database.

A replica holds an advisory lock as long as its connection exists, and sends a heartbeat every two
seconds. A killed process loses the lock at once. A process that hangs, or whose machine is gone,
keeps the lock for a while, but its heartbeats stop. Only the clock of the database counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...harness._internal.records import record
from ...harness.databases.postgres import AsyncConnection, PostgresDatabase
from ...harness.databases.postgres_tables import Tables

__all__ = ["SILENT_SECONDS", "Census", "Replica", "census_of", "take_census"]

SILENT_SECONDS = 15.0
"""A replica without a heartbeat for this many seconds is dead, even if it has its lock."""

_FREE_LOOKS = 2
"""Free locks in a row that prove a replica dead; a broken connection soon comes back."""

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
    """A replica, as seen by the others.

    Attributes:
        id: Its id, which is the `owner` of the runs it works on.
        host: The name of its machine.
        version: Of the program.
        started_at: Unix time in seconds, by the clock of the database.
        silent: Seconds since its last heartbeat.
        working: How many runs it works on, by its last heartbeat.
        draining: Whether it is shutting down.
        has_lock: Whether its connection exists.
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
    """The state of all replicas at one moment.

    Attributes:
        replicas: Replicas by id, including those that died lately.
        uptime: Seconds for which the database has been running.
        free: How often in a row a lock was found free, by id, for locks that were.
    """

    replicas: Mapping[str, Replica] = field(default_factory=dict[str, Replica])
    uptime: float = 0.0
    free: Mapping[str, int] = field(default_factory=dict[str, int])

    def after(self, earlier: Census) -> Census:
        """Return this census, with the counts of free locks carried over from an earlier one."""
        free = {
            one.id: earlier.free.get(one.id, 0) + 1
            for one in self.replicas.values()
            if not one.has_lock
        }
        return Census(self.replicas, self.uptime, free)

    def is_dead(self, owner: str) -> bool:
        """Whether a replica is gone: it ended, was killed, or hangs."""
        found = self.replicas.get(owner)
        return (
            found is None or found.silent > SILENT_SECONDS or self.free.get(owner, 0) >= _FREE_LOOKS
        )

    @property
    def living(self) -> list[Replica]:
        """The live replicas, oldest first."""
        living = [one for one in self.replicas.values() if not self.is_dead(one.id)]
        return sorted(living, key=lambda one: (one.started_at, one.id))


async def take_census(conn: AsyncConnection, tables: Tables) -> Census:
    """Read the state of all replicas."""
    rows = await (await conn.execute(tables.statement(_ALL))).fetchall()
    found = {row[0]: Replica(*row[:8]) for row in rows}
    return Census(found, rows[0][8] if rows else 0.0).after(Census())


async def census_of(database: PostgresDatabase) -> Census:
    """Return the live replicas, for a program that reads the census once.

    A replica without its lock counts as dead at once.
    """
    found = await database.read(lambda conn: take_census(conn, database.tables))
    return found.after(found)
