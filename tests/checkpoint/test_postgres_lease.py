"""The lease on a journal in Postgres, when connections break."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.checkpoint.lease import Holder
from deep_agent_mcp.harness.checkpoint.postgres.lease import PostgresLease
from deep_agent_mcp.harness.errors import CheckpointError
from tests.databases import Database

pytestmark = pytest.mark.anyio

US = Holder("a1" * 8, "a.machine.with.a.long.name.example.com", "b2" * 4)


async def test_a_process_does_not_take_its_own_broken_connection_for_another_server(
    database: Database,
) -> None:
    schema = database.new_schema()
    former = PostgresLease(database.conninfo, US, schema=schema)
    lease = PostgresLease(database.conninfo, US, schema=schema)
    other = PostgresLease(database.conninfo, Holder("c3" * 8), schema=schema)
    assert await former.acquire() is None  # the database believes that this connection lives
    with pytest.raises(CheckpointError, match="our former connection still holds the lease"):
        await lease.acquire()
    found = await other.acquire()
    assert found is not None and found.owner == US.owner
    await former.release()
    assert await lease.acquire() is None
    await lease.release()
