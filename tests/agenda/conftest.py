"""Empty agenda tables in SQLite and Postgres, for tests that run on both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from deep_agent_mcp.server.agenda.postgres_tables import PostgresTables
from deep_agent_mcp.server.agenda.tables import AgendaTables, SqliteTables
from tests.databases import Database, made_database
from tests.replicas.servers import journal_url

Open: TypeAlias = Callable[[], AgendaTables]
"""Opens the tables, as each of several servers would."""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(params=["sqlite", "postgres"])
async def open_(
    request: pytest.FixtureRequest, tmp_path: Path, database: Database
) -> AsyncGenerator[Open]:
    url, file = journal_url(database), tmp_path / f"agenda-{uuid4().hex[:6]}.db"
    made: list[AgendaTables] = []

    def open_tables() -> AgendaTables:
        made.append(PostgresTables(url) if request.param == "postgres" else SqliteTables(file))
        return made[-1]

    yield open_tables
    for one in made:
        await one.close()
