"""Replicas of two versions side by side: the newer adds to the tables, the older works on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from deep_agent_mcp.harness.databases.postgres import PostgresDatabase
from deep_agent_mcp.harness.databases.postgres_tables import DatabaseKind
from deep_agent_mcp.harness.errors import NewerDatabase
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller
from deep_agent_mcp.server.auth.shared_database import (
    DatabasePrincipals,
    DatabaseTokens,
    request_state_key,
)
from deep_agent_mcp.server.auth.tokens import new_token
from deep_agent_mcp.server.replicas.census import census_of
from deep_agent_mcp.server.replicas.database import REPLICAS
from deep_agent_mcp.server.replicas.sealed_values import ValueSealer
from tests.databases import Database, made_database

pytestmark = pytest.mark.anyio

ADDED = (
    "ALTER TABLE {tokens} ADD COLUMN note text",
    "CREATE TABLE {favours} (id text PRIMARY KEY)",
)
FEWEST = len(REPLICAS.migrations)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


def newer(readable_from: int) -> DatabaseKind:
    """Return what the next version would have, which adds to the tables."""
    return replace(
        REPLICAS,
        tables=(*REPLICAS.tables, "favours"),
        migrations=(*REPLICAS.migrations, ADDED),
        readable_from=readable_from,
    )


@asynccontextmanager
async def opened(
    database: Database, schema: str, kind: DatabaseKind = REPLICAS
) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(kind, database.conninfo, schema, connections=2, timeout=30)
    try:
        await made.open()
        yield made
    finally:
        await made.close()


async def test_an_older_replica_works_on_beside_a_newer_one_and_may_start_again(
    database: Database,
) -> None:
    schema, sealer, ann = f"up{uuid4().hex[:8]}", ValueSealer(None), Caller("ann", ALL_SCOPES)
    first, _ = new_token("ann", ("drive",))
    second, _ = new_token("ben", ("drive",))
    async with opened(database, schema) as old:
        key = await request_state_key(old, sealer)
        async with opened(database, schema, newer(FEWEST)) as new:
            await DatabaseTokens(new, sealer).add(first)
            await DatabasePrincipals(old, sealer).note(ann)
            assert await DatabasePrincipals(new, sealer).find(ann.new_id("run")) == "ann"
            async with opened(database, schema) as again:
                assert await request_state_key(again, sealer) == key
                tokens = DatabaseTokens(again, sealer)
                await tokens.add(second)
                assert {one.id for one in await tokens.all()} == {first.id, second.id}
                assert not (await census_of(again)).living
            assert await DatabaseTokens(new, sealer).find(second.id) is not None


async def test_an_older_replica_does_not_start_where_it_could_not_read(database: Database) -> None:
    schema = f"up{uuid4().hex[:8]}"
    async with opened(database, schema, newer(FEWEST + 1)):
        with pytest.raises(NewerDatabase, match="Upgrade the program"):
            async with opened(database, schema):
                pass
