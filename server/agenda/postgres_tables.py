"""The agenda beside a journal in Postgres, in a schema of its own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ...harness.agent_file.places import split_database_url
from ...harness.databases.postgres import AsyncConnection, PostgresDatabase
from ...harness.databases.postgres_tables import DatabaseKind
from ...harness.errors import CheckpointError, JournalAway, NewerDatabase
from .tables import CREATE, TABLES, Row, Statement

__all__ = ["PostgresTables"]

_NOW = "extract(epoch FROM clock_timestamp())::float8"
_VALUE = re.compile(r":([a-z_]+)")

_AGENDA = DatabaseKind(
    name="agenda",
    lock=0x44414D41,  # `DAMA`
    tables=TABLES,
    migrations=(
        [one.replace("{real}", "double precision").replace("{blob}", "bytea") for one in CREATE],
    ),
    error=CheckpointError,
    newer=NewerDatabase,
    away=JournalAway,
)


@lru_cache
def _sql(text: str) -> str:
    return _VALUE.sub(r"%(\1)s", text).replace("{now}", _NOW)


class PostgresTables:
    """`AgendaTables` in Postgres.

    Args:
        url: Where the journal is: `postgresql:` with or without `?schema=`.
    """

    def __init__(self, url: str) -> None:
        conninfo, schema = split_database_url(url)
        name = "deep_agent_agenda" if schema is None else f"{schema}_agenda"
        self._database = PostgresDatabase(_AGENDA, conninfo, name, connections=2, timeout=10.0)

    async def run(self, *statements: Statement) -> list[Row]:
        """See `AgendaTables`."""

        async def work(conn: AsyncConnection) -> list[Row]:
            rows: list[Any] = []
            for text, values in statements:
                found = await conn.execute(self._database.tables.statement(_sql(text)), values)
                rows = await found.fetchall() if found.description is not None else []
            return rows

        return await self._database.transact(work)

    async def vacuum(self) -> None:
        """See `AgendaTables`; Postgres does it on its own."""

    async def close(self) -> None:
        """See `AgendaTables`."""
        await self._database.close()
