"""What people choose from: prompts for skills, subagents and threads, and subagents to read."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.subscriptions import PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import ERAS, Era, HttpServer, Setup, call, connected

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_a_subagent_can_be_read_about_and_asked_from_a_menu(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), mode) as client:
            prompts = {one.name: one for one in (await client.list_prompts()).prompts}
            asked = await client.get_prompt("agent-general-purpose", {"goal": "Look around."})
            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            (shown,) = (await client.read_resource("agent://general-purpose")).contents
            with pytest.raises(MCPError, match="goal"):
                await client.get_prompt("agent-general-purpose")
            with pytest.raises(MCPError, match="names the subagents"):
                await client.read_resource("agent://nobody")
    arguments = prompts["agent-general-purpose"].arguments or []
    assert [(one.name, one.required) for one in arguments] == [("goal", True)]
    text = getattr(asked.messages[0].content, "text", "")
    assert 'agent="general-purpose"' in text and text.endswith("Look around.")
    assert "agent://general-purpose" in uris
    assert "## Instructions" in getattr(shown, "text", "")


async def test_a_thread_is_resumed_from_a_menu_with_its_todos(
    shared: tuple[Setup, HttpServer],
) -> None:
    todos = [{"content": "Water the plants", "status": "pending"}]
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), "auto") as client:
            made = await call(client, "write_todos", todos=todos)
            given = {"thread_id": made["thread_id"], "goal": "Be quick."}
            prompt = await client.get_prompt("resume-thread", given)
            with pytest.raises(MCPError, match="no thread 'thr_x'"):
                await client.get_prompt("resume-thread", {"thread_id": "thr_x"})
    text = getattr(prompt.messages[0].content, "text", "")
    assert made["thread_id"] in text and "Water the plants" in text and "Be quick." in text


async def about_agents(client: Client) -> str:
    """Return what `task` says of whom it can be given to."""
    (tool,) = [one for one in (await client.list_tools()).tools if one.name == "task"]
    return tool.input_schema["properties"]["agent"]["description"]


async def test_a_saved_subagent_is_announced_and_can_be_asked(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    setup = Setup(tmp_path, flags=["--agents", str(agents)], script=SCRIPT)
    text = "---\nname: gardener\ndescription: Knows plants.\n---\n\nYou know plants.\n"
    with anyio.fail_after(60), setup.serving() as server:
        async with (
            connected(server.target("http"), "auto") as client,
            client.listen(prompts_list_changed=True, tools_list_changed=True) as changes,
        ):
            assert "gardener" not in await about_agents(client)
            (agents / "gardener.md").write_text(text)
            told: set[type] = set()
            async for event in changes:
                told.add(type(event))
                if {PromptsListChanged, ToolsListChanged} <= told:
                    break
            assert (await about_agents(client)).endswith("There are:\n- gardener: Knows plants.")
            names = [one.name for one in (await client.list_prompts()).prompts]
            (shown,) = (await client.read_resource("agent://gardener")).contents
    assert "agent-gardener" in names
    assert "You know plants." in getattr(shown, "text", "")
