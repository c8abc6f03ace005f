"""The long-term memory of agents in Python is the same on all replicas, also if none is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp import Agent, create_deep_agent
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.python_agents.loading import ServeContext
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.settings.sources import load_settings
from tests.databases import Database, made_database
from tests.replicas.servers import journal_url

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


async def test_what_one_replica_remembers_the_other_one_knows(
    database: Database, tmp_path: Path
) -> None:
    given: list[ServeContext] = []

    def make(context: ServeContext) -> Agent:
        given.append(context)
        return create_deep_agent(ScriptedModel([]), store=context.store)

    url = journal_url(database)
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            for machine in "ab":
                chosen = {"replicas": "true", "journal": url, "state_dir": str(tmp_path / machine)}
                app = create_app(load_settings(chosen, {}), source=AgentSource(make))
                await stack.enter_async_context(app)
            a, b = (one.store for one in given)
            await a.put(("facts",), "sky", {"colour": "blue"})
            found = await b.get(("facts",), "sky")
    assert found is not None and found.value == {"colour": "blue"}
    assert not list(tmp_path.rglob("store.sqlite3"))
