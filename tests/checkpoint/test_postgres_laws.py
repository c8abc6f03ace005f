"""The journal in Postgres keeps every law of the kit, and so does a sealed one in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import nullcontext

import pytest

from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.conformance import LAWS, Law
from deep_agent_mcp.harness.checkpoint.encryption import EncryptedCheckpointer
from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from tests.checkpoint.postgres_journals import opened
from tests.databases import Database

pytestmark = pytest.mark.anyio

SEALED = [law for law in LAWS if law.group in ("events", "records of runs", "rewriting", "commits")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def kept_open(database: Database) -> AsyncGenerator[Checkpointer]:
    """Connecting anew for each law would take longer than the law."""
    async with opened(database, database.empty_schema(), connections=4) as journal:
        yield journal


@pytest.fixture
async def journal(
    law: Law, kept_open: Checkpointer, database: Database
) -> AsyncGenerator[Checkpointer]:
    schema = database.empty_schema()
    if law.name == "a closed journal says so":
        async with opened(database, schema, connections=4) as closed:
            yield closed
    else:
        yield kept_open


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.group}: {law.name}")
async def test_law(law: Law, journal: Checkpointer) -> None:
    await law.verify(lambda: nullcontext(journal))


@pytest.mark.exhaustive(cases=12)
@pytest.mark.parametrize("law", SEALED, ids=lambda law: f"{law.group}: {law.name}")
async def test_law_of_a_sealed_journal(law: Law, journal: Checkpointer) -> None:
    sealed = EncryptedCheckpointer(journal, Keyring.parse(Keyring.generate()))
    await law.verify(lambda: nullcontext(sealed))
