"""A connection to the Postgres journal at work: statements sent together, and locks.

Whoever changes a thread holds its lock until its transaction ends, and takes numbers only while it
does. Whoever stores a large value shares the lock of the blobs until its transaction ends; whoever
deletes those that nothing holds has it alone. The lock of rewrites comes first, then those of
threads in the order of their keys, then that of the blobs, so nobody waits for somebody who waits
for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any, TypeAlias

from ..._internal.records import record
from ...databases.postgres import AsyncConnection, Pipeline, Tables

__all__ = ["Row", "Session", "Statement", "columns"]

Row: TypeAlias = tuple[Any, ...]

Statement: TypeAlias = tuple[str, Mapping[str, Any] | Sequence[Any]]
"""SQL with names of tables in braces, and its parameters."""

_LOCK_MILLISECONDS = 200
"""Several times what a commit takes."""


@record
class Session:
    """A connection, and the tables it works on.

    Attributes:
        conn: The connection.
        tables: The tables.
    """

    conn: AsyncConnection
    tables: Tables

    async def ask(self, text: str, **parameters: Any) -> list[Row]:
        """Send one statement and return its rows."""
        (rows,) = await self.send((text, parameters))
        return rows

    async def send(self, *statements: Statement) -> list[list[Row]]:
        """Send statements in one round trip, and return the rows of each.

        Raises:
            Error: One failed; those after it were not carried out.
        """
        if not statements:
            return []
        together = len(statements) > 1 and Pipeline.is_supported()
        async with self.conn.pipeline() if together else nullcontext():
            cursors = [
                await self.conn.execute(self.tables.statement(text), parameters, binary=True)
                for text, parameters in statements
            ]
        return [await one.fetchall() if one.description else [] for one in cursors]

    async def allow_seconds(self, seconds: float) -> None:
        """Let statements of this transaction take longer than those of others."""
        milliseconds = str(round(seconds * 1000))
        await self.ask("SELECT set_config('statement_timeout', %(ms)s, true)", ms=milliseconds)

    async def lock_threads(self, *thread_ids: str) -> None:
        """Wait until nobody else changes these threads, and keep others from it."""
        await self.send(self.locking_threads(*thread_ids))

    def locking_threads(self, *thread_ids: str) -> Statement:
        """Return a statement that does what `lock_threads` does."""
        return (
            "SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s::int8[]) AS key",
            {"keys": sorted(self.keys(thread_ids))},
        )

    async def share_blobs(self) -> None:
        """Keep others from deleting blobs."""
        await self.send(self.sharing_blobs())

    def sharing_blobs(self) -> Statement:
        """Return a statement that keeps others from deleting blobs."""
        return "SELECT pg_advisory_xact_lock_shared(%(key)s)", {"key": self._key(b"blobs", "")}

    async def lock_blobs(self) -> None:
        """Wait until nobody stores large values, and keep others from it; not for long.

        While one waits, others that want to share the lock wait too.

        Raises:
            LockNotAvailable: It took too long.
        """
        await self.send(
            (f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}", {}),
            ("SELECT pg_advisory_xact_lock(%(key)s)", {"key": self._key(b"blobs", "")}),
        )

    async def lock_rewrites(self) -> None:
        """Wait until nobody rewrites a thread, and keep others from it.

        Two that store the same values, each in an order of its own, could wait for each other.
        """
        await self.ask("SELECT pg_advisory_xact_lock(%(key)s)", key=self._key(b"rewrites", ""))

    def keys(self, thread_ids: Iterable[str]) -> list[int]:
        """Return the keys of the locks of threads; they are the same in every process."""
        return [self._key(b"thread", thread_id) for thread_id in thread_ids]

    def _key(self, what: bytes, name: str) -> int:
        text = f"{self.tables.schema}\0{name}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, person=what).digest(), signed=True)


def columns(text: str, rows: Sequence[Row]) -> list[Statement]:
    """Return a statement with an array for each column; none for no rows."""
    return [(text, [list(column) for column in zip(*rows, strict=True)])] if rows else []
