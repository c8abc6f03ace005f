"""A survey of all runs in a Postgres journal, for servers that share it.

A `Checkpointer` answers questions about one run or thread. Whoever looks after the runs of many
servers asks about all of them, and gets ids only: nothing here is content, so a sealed journal is
surveyed without its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._internal.records import record
from ...databases.postgres import AsyncConnection, PostgresDatabase
from ...databases.postgres_tables import Tables
from ..records import OPEN
from .database import JOURNAL
from .records import as_bytes, as_text

__all__ = ["JournalSurvey", "RunMark", "connection_name"]

_OWNERS = """
SELECT owner, count(*) FROM {runs} WHERE status = 'running' GROUP BY owner
"""
_RUNNING = """
SELECT id FROM {runs}
WHERE status = 'running' AND owner IS NOT DISTINCT FROM %(owner)s AND id > %(after)s
ORDER BY id LIMIT %(limit)s
"""
_ANSWERED = """
SELECT r.id FROM {runs} AS r
WHERE r.status = 'needs_approval' AND r.id > %(after)s
    AND NOT EXISTS (SELECT 1 FROM {interrupts} AS i
                    WHERE i.run_id = r.id AND NOT i.answered AND i.kind <> 'message')
    AND EXISTS (SELECT 1 FROM {interrupts} AS i WHERE i.run_id = r.id AND i.kind <> 'message')
ORDER BY r.id LIMIT %(limit)s
"""
_QUEUED_OWNERS = """
SELECT owner, count(*) FROM {runs} WHERE status = 'queued' GROUP BY owner
"""
_QUEUED = """
SELECT q.id FROM {runs} AS q
WHERE q.status = 'queued' AND q.owner IS NOT DISTINCT FROM %(owner)s AND q.id > %(after)s
ORDER BY q.id LIMIT %(limit)s
"""
_READY = f"""
SELECT q.id FROM {{runs}} AS q
WHERE q.status = 'queued' AND q.owner IS NOT DISTINCT FROM %(owner)s AND q.id > %(after)s
    AND NOT EXISTS (SELECT 1 FROM {{runs}} AS o WHERE o.thread = q.thread AND o.status IN {OPEN!r})
    AND NOT EXISTS (
        SELECT 1 FROM {{runs}} AS e
        WHERE e.thread = q.thread AND e.status = 'queued' AND e.run < q.run
    )
ORDER BY q.id LIMIT %(limit)s
"""
_MARKS = """
SELECT r.id, r.status, r.attempt, coalesce(l.newest, 0)
FROM {runs} AS r LEFT JOIN {logs} AS l ON l.run_id = r.id
WHERE r.id = ANY(%(ids)s)
"""
_CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %(name)s AND datname = current_database() AND usename = current_user
"""


def connection_name(owner: str) -> str:
    """Return the `application_name` of a server's connections to its journal."""
    return f"deep-agent-mcp journal of {owner}"[:63]


@record
class RunMark:
    """Status of a run, as far as it tells whether there is news.

    Attributes:
        status: Its status.
        attempt: Its attempt.
        newest: The number of its newest event; 0 without any.
    """

    status: str
    attempt: int
    newest: int


class JournalSurvey:
    """Asks about the runs of all servers.

    Args:
        database: Whose connections are used; any in the journal's database. The journal's tables
            must be there already.
        schema: The schema of the journal's tables.
    """

    def __init__(self, database: PostgresDatabase, schema: str) -> None:
        self._database = database
        self._tables = Tables(schema, JOURNAL.tables)

    async def owners(self) -> Mapping[str | None, int]:
        """Return how many runs are recorded as `running`, by the id of who works on them.

        Raises:
            CheckpointError: The database cannot be read.
        """
        rows = await self._ask(_OWNERS)
        return {None if owner is None else as_text(owner): count for owner, count in rows}

    async def running(self, owner: str | None, *, after: str = "", limit: int = 200) -> list[str]:
        """Return ids of runs that somebody works on, in order; `after` is the page before's last.

        Args:
            owner: Who; None for those that were handed over to nobody.
            after: An id to page from.
            limit: How many at most.
        """
        given = None if owner is None else as_bytes(owner)
        return await self._ids(_RUNNING, owner=given, after=as_bytes(after), limit=limit)

    async def queued_owners(self) -> Mapping[str | None, int]:
        """Return how many runs are recorded as `queued`, by the id of who looks after them."""
        rows = await self._ask(_QUEUED_OWNERS)
        return {None if owner is None else as_text(owner): count for owner, count in rows}

    async def queued(
        self, owner: str | None, *, ready: bool = False, after: str = "", limit: int = 200
    ) -> list[str]:
        """Return ids of queued runs that somebody looks after, in order.

        Args:
            owner: Who; None for nobody.
            ready: Only those that are first in line on a thread without an open run.
            after: An id to page from.
            limit: How many at most.
        """
        given = None if owner is None else as_bytes(owner)
        text = _READY if ready else _QUEUED
        return await self._ids(text, owner=given, after=as_bytes(after), limit=limit)

    async def cut_off(self, owner: str) -> None:
        """End the connections of a server that is taken for dead.

        One that stands still between two statements of a pipeline keeps the locks of its threads,
        and no timeout of the database ends that.

        Raises:
            CheckpointError: The database cannot be read.
        """
        await self._ask(_CUT_OFF, name=connection_name(owner))

    async def answered(self, *, after: str = "", limit: int = 200) -> list[str]:
        """Return ids of runs that wait for answers and have them all, in order."""
        return await self._ids(_ANSWERED, after=as_bytes(after), limit=limit)

    async def marks(self, run_ids: Sequence[str]) -> Mapping[str, RunMark]:
        """Return the marks of runs by id; unknown ones are left out."""
        rows = await self._ask(_MARKS, ids=[as_bytes(one) for one in run_ids])
        return {
            as_text(run_id): RunMark(as_text(status), attempt, newest)
            for run_id, status, attempt, newest in rows
        }

    async def _ids(self, text: str, **parameters: Any) -> list[str]:
        return [as_text(one) for (one,) in await self._ask(text, **parameters)]

    async def _ask(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        async def work(conn: AsyncConnection) -> list[tuple[Any, ...]]:
            statement = self._tables.statement(text)
            cursor = await conn.execute(statement, parameters, binary=True)
            return await cursor.fetchall()

        return await self._database.read(work)
