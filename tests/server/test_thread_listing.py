"""What `threads` says at the ends of its pages, and of what is too long for one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextContent

from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            yield client


async def call(client: Client, tool: str, **args: Any) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of an answer."""
    result = await client.call_tool(tool, args)
    assert not result.is_error and isinstance(result.structured_content, dict)
    texts = [one.text for one in result.content if isinstance(one, TextContent)]
    return "\n".join(texts), result.structured_content


async def test_after_the_last_page_there_are_no_more_threads(client: Client) -> None:
    assert (await call(client, "threads"))[0] == "There are no threads yet."
    await call(client, "ls")
    assert (await call(client, "threads", before="1"))[0] == "There are no more threads."


async def test_a_todo_of_any_length_leaves_room_for_the_rest(client: Client) -> None:
    long = "x" * 150_000
    todos = [{"content": long}, {"content": "short"}]
    written = (await call(client, "write_todos", todos=todos))[1]
    thread = {"thread_id": written["thread_id"]}
    text, shown = await call(client, "threads", **thread)
    assert shown["thread_id"] == thread["thread_id"]
    assert shown["todos"][0]["content"] == "x" * 1_000 + "… (149000 more characters)"
    assert shown["todos"][1]["content"] == "short"
    assert len(json.dumps(shown)) < 10_000 and len(text) < 10_000
    assert "149000 more characters" in text and shown["checkpoints"][0]["checkpoint_id"] in text
    text, shown = await call(client, "threads", **thread, todos_after=2)
    assert shown["todos"] == [] and "empty" not in text
