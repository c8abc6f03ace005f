"""A lease on the journal in a Postgres database: an advisory lock of a connection of its own.

One process holds it alone, or several that know of each other share it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import Any

import anyio
from psycopg.conninfo import make_conninfo

from ...databases import reason_of
from ...databases.postgres import AsyncConnection, Error
from ...errors import CheckpointError, LeaseLost
from ..lease import Holder

__all__ = ["PostgresLease", "SharedLease"]

_SECONDS = 10
_CONNECT_SECONDS = 5
_LOOK_SECONDS = 0.1
_NAME = "deep-agent-mcp "
_NAME_BYTES = 63
"""What Postgres keeps of a connection's name."""

_FIND = (
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (l.classid::bigint << 32 | l.objid::bigint) = %s"
)
_ALIVE = ("tcp_keepalives_idle = 15", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
"""So that the server notices within half a minute that a machine has vanished."""


def _name_of(holder: Holder) -> str:
    """Return the name of the holder's connection, which others see."""
    return (_NAME + holder.text())[:_NAME_BYTES]


def _named(conninfo: str, holder: Holder) -> str:
    """Return the connection string with the name of the holder's connection."""
    return make_conninfo(
        conninfo, application_name=_name_of(holder), connect_timeout=_CONNECT_SECONDS
    )


def _key(schema: str) -> int:
    digest = blake2b(schema.encode(), digest_size=8, person=b"journal lease").digest()
    return int.from_bytes(digest, signed=True)


async def _found(conn: AsyncConnection, key: int) -> str | None:
    """Return the name of the connection that holds a lease, which may be hidden; None for none."""
    found: Any = await (await conn.execute(_FIND, (key,))).fetchone()
    return str(found[0] or "") if found else None


def _holder(name: str) -> Holder:
    """Return the holder whose connection has this name; an empty one if that is unknown."""
    return Holder.parse(name.removeprefix(_NAME)) if name.startswith(_NAME) else Holder()


class PostgresLease:
    """See `Lease`.

    Args:
        conninfo: The database.
        schema: The schema of the journal's tables.
        holder: Who we are.
    """

    def __init__(self, conninfo: str, holder: Holder, *, schema: str) -> None:
        self._conninfo = _named(conninfo, holder)
        self._name = _name_of(holder)
        self._key = _key(schema)
        self._conn: AsyncConnection | None = None

    async def acquire(self) -> Holder | None:
        """See `Lease`."""
        try:
            with anyio.fail_after(_SECONDS):
                if self._conn is not None:
                    if await self._works(self._conn):
                        return None
                    await self._drop()
                return await self._locked()
        except (Error, TimeoutError) as error:
            silent = isinstance(error, TimeoutError)
            why = "it does not answer" if silent else reason_of(error)
            raise CheckpointError(
                f"the database of the journal cannot be used: {why}. Check that it runs, and the "
                "URL of the journal."
            ) from error

    async def take_over(self, dead: Holder) -> None:
        """See `Lease`; the server lets go of it with the connection."""

    async def release(self) -> None:
        """See `Lease`."""
        await self._drop()

    async def _locked(self) -> Holder | None:
        conn: AsyncConnection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            for setting in _ALIVE:
                await conn.execute(f"SET {setting}".encode())
            name = None
            while name is None:  # its holder may let go of it between the two statements
                cursor = await conn.execute("SELECT pg_try_advisory_lock(%s)", (self._key,))
                if await cursor.fetchone() == (True,):
                    self._conn = conn
                    return None
                name = await _found(conn, self._key)
        finally:
            if self._conn is not conn:
                with anyio.CancelScope(shield=True):
                    await conn.close()
        if name == self._name:
            # The database has not noticed yet that our last connection broke.
            raise CheckpointError(
                "our former connection still holds the lease on the journal. Nothing has to be "
                "done: the database ends it within half a minute."
            )
        return _holder(name)

    async def _works(self, conn: AsyncConnection) -> bool:
        try:
            await conn.execute("SELECT 1")
        except Error:
            return False
        return True

    async def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with anyio.CancelScope(shield=True), suppress(Error):
                await conn.close()


class SharedLease:
    """A lease that several processes hold together, and that keeps out who wants it alone.

    Args:
        conninfo: The database.
        schema: The schema of the journal's tables.
        holder: Who we are.
    """

    def __init__(self, conninfo: str, holder: Holder, *, schema: str) -> None:
        self._conninfo = _named(conninfo, holder)
        self._key = _key(schema)
        self._was_held = False

    @asynccontextmanager
    async def held(self, seconds: float) -> AsyncGenerator[AsyncConnection]:
        """Yield a connection that holds the lease; it is closed at the end.

        Args:
            seconds: How long a process may take that is just ending.

        Raises:
            CheckpointError: Another process has the lease for itself.
            LeaseLost: The same, and we had it before.
            Error, TimeoutError: The database cannot be used.
        """
        with anyio.fail_after(_SECONDS):
            conn: AsyncConnection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            with anyio.fail_after(_SECONDS + seconds):
                await self._take(conn, time.monotonic() + seconds)
            yield conn
        finally:
            with suppress(Error):
                await conn.close()

    async def _take(self, conn: AsyncConnection, deadline: float) -> None:
        while True:
            cursor = await conn.execute("SELECT pg_try_advisory_lock_shared(%s)", (self._key,))
            if await cursor.fetchone() == (True,):
                self._was_held = True
                return
            if time.monotonic() > deadline:
                break
            await anyio.sleep(_LOOK_SECONDS)
        other = _holder(await _found(conn, self._key) or "")
        where = f" on {other.host}" if other.host else ""
        if self._was_held:
            raise LeaseLost(
                f"a server{where} that was started without --replicas has taken the journal while "
                "its database was away. This replica stops."
            )
        raise CheckpointError(
            f"the journal is in use by a server or command{where} that was started without "
            "--replicas, so it has it for itself. Stop it, or start all of them with --replicas."
        )
