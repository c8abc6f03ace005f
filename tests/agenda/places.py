"""Both places of the agenda, empty, for tests that hold for each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from deep_agent_mcp.server.agenda.postgres_tables import PostgresTables
from deep_agent_mcp.server.agenda.sqlite_tables import SqliteTables
from deep_agent_mcp.server.agenda.tables import AgendaTables
from tests.databases import Database
from tests.replicas.servers import journal_url

Open = Callable[[], AgendaTables]


@asynccontextmanager
async def opened(place: str, path: Path, database: Database) -> AsyncGenerator[Open]:
    """Yield what opens the tables, as each of several servers does."""
    url, file = journal_url(database), path / f"agenda-{uuid4().hex[:6]}.db"
    made: list[AgendaTables] = []

    def open_() -> AgendaTables:
        made.append(PostgresTables(url) if place == "postgres" else SqliteTables(file))
        return made[-1]

    try:
        yield open_
    finally:
        for one in made:
            await one.close()
