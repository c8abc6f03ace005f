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

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.threads.listing import LAST_RUNS, show_thread
from tests.loop.models import Turns, says
from tests.loop.models import call as calls

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            yield client


@tool
def ask(runtime: ToolRuntime) -> str:
    """Ask."""
    return str(runtime.interrupt("Sure?"))


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


async def test_a_question_is_shown_however_many_runs_wait_behind_it(tmp_path: Path) -> None:
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    source = AgentSource(lambda: create_deep_agent(Turns(says("", calls("1", "ask"))), [ask]))
    with anyio.fail_after(60):
        async with create_app(settings, source=source) as app:
            asking = await app.runs.wait(await app.runs.start("first"), 30)
            thread = asking.run.thread_id
            for _ in range(LAST_RUNS):
                newest = await app.runs.start("next", thread_id=thread, on_busy="queue")
            async with Client(app.server) as client:
                _, shown = await call(client, "threads", thread_id=thread)
            printed = await show_thread(app.agent, app.journal, thread, 10, None)
            for view in (shown, printed.data if printed else {}):
                assert [one["question"] for one in view["pending"]] == ["Sure?"]
                assert view["runs"][0]["run_id"] == newest
                assert view["runs"][-1]["run_id"] == asking.run.id
