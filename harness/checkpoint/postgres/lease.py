"""A lease on the journal in a Postgres database: an advisory lock of a connection of its own."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any

import anyio
from psycopg.conninfo import make_conninfo

from ...databases.postgres import AsyncConnection, Error
from ...errors import CheckpointError
from ..lease import Holder

__all__ = ["PostgresLease"]

_SECONDS = 10
_NAME = "deep-agent-mcp "

_FIND = (
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (l.classid::bigint << 32 | l.objid::bigint) = %s"
)
_ALIVE = ("tcp_keepalives_idle = 15", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
"""So that the server notices within half a minute that a machine has vanished."""


class PostgresLease:
    """See `Lease`.

    Args:
        conninfo: The database.
        schema: The schema of the journal's tables.
        holder: Who we are.
    """

    def __init__(
        self, conninfo: str, holder: Holder, *, schema: str = "deep_agent_journal"
    ) -> None:
        self._conninfo = make_conninfo(
            conninfo, application_name=_NAME + holder.text()[: 63 - len(_NAME)]
        )
        digest = blake2b(schema.encode(), digest_size=8, person=b"journal lease").digest()
        self._key = int.from_bytes(digest, signed=True)
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
            why = "it does not answer" if silent else str(error).strip()
            raise CheckpointError(f"the database of the journal cannot be used: {why}.") from error

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
            cursor = await conn.execute("SELECT pg_try_advisory_lock(%s)", (self._key,))
            if await cursor.fetchone() == (True,):
                self._conn = conn
                return None
            found: Any = await (await conn.execute(_FIND, (self._key,))).fetchone()
        finally:
            if self._conn is not conn:
                with anyio.CancelScope(shield=True):
                    await conn.close()
        name = str(found[0] or "") if found else ""
        return Holder.parse(name.removeprefix(_NAME)) if name.startswith(_NAME) else Holder()

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
