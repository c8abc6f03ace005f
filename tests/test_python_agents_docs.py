"""The page about agents made in Python: its snippets run, and what they make is served."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.server import ServeContext
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.settings.sources import load_settings
from tests.doc_pages import DocPage

pytestmark = pytest.mark.anyio

PAGE = DocPage("python-agents.md")


@pytest.mark.parametrize(
    ("title", "name"),
    [("Serve a module", "agent"), ("Build it from the server's settings", "deep")],
)
async def test_what_they_make_is_served(title: str, name: str, tmp_path: Path) -> None:
    made: dict[str, Any] = PAGE.run(title)
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    with anyio.fail_after(60):
        async with (
            create_app(settings, source=AgentSource(made[name])) as app,
            Client(app.server) as client,
        ):
            done = await client.call_tool("task", {"goal": "How many apples?"})
            assert (done.structured_content or {})["answer"] == "There are 12."


def test_every_attribute_of_the_context_is_listed() -> None:
    told = PAGE.text("Build it from the server's settings")
    assert [one.name for one in fields(ServeContext) if f"`{one.name}`" not in told] == []
