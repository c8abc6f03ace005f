"""Agents that hosts discover: which of them a host can run itself, and with what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.types import Request
from pydantic import TypeAdapter

from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/agents"
ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
DELEGATING = ["task", "wait", "reply", "cancel"]

AGENT_FILE = """
[agent]
instructions = "You keep the house in order."
description = "Keeps a house."
capabilities = ["cleaning", "repairs"]
model_role = "medium"

[agents.reader]
description = "Reads."
instructions = "You read."
tools = ["ls", "read_file"]
vision = true

[agents.planner]
description = "Plans."
instructions = "You plan."
tools = ["write_todos"]

[agents.shadow]
description = "Goes on from here."
mode = "fork"
"""


@asynccontextmanager
async def client_of(
    place: Path, mode: Any = "auto", declares: bool = True, **flags: object
) -> AsyncIterator[Client]:
    file = place / "deep-agent.toml"
    file.write_text(AGENT_FILE)
    given = {"state_dir": str(place / "state"), "agent_file": str(file), **flags}
    extensions = [advertise(EXTENSION)] if declares else []
    with anyio.fail_after(60):
        async with (
            create_app(load_settings({"experimental": ("agents",), **given}, {})) as app,
            Client(app.server, mode=mode, extensions=extensions) as client,
        ):
            yield client


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = Request[dict[str, Any], str](method=method, params=params)
    return await client.session.send_request(request, ANYTHING)


async def got(client: Client, name: str) -> tuple[dict[str, Any], list[str]]:
    found = await ask(client, "agents/get", name=name)
    return found, [one["name"] for one in found["tools"]]


async def refusal(client: Client, method: str, **params: Any) -> MCPError:
    with pytest.raises(MCPError) as caught:
        await ask(client, method, **params)
    return caught.value


async def test_a_host_gets_what_it_needs_to_run_an_agent(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        cards = {one["name"]: one for one in (await ask(client, "agents/list"))["agents"]}
        assert cards["main"]["description"] == "Keeps a house."
        assert cards["main"]["capabilities"] == ["cleaning", "repairs"]
        main, tools = await got(client, "main")
        assert main["instructions"].startswith("You keep the house in order.\n\n")
        assert main["modelRequirements"] == {"role": "medium"}
        assert {"write_todos", "read_file", "skill", "task", "wait"} <= {*tools}
        reader, tools = await got(client, "reader")
        assert reader["instructions"].startswith("You read.") and tools == ["ls", "read_file"]
        assert "thread_id" in reader["instructions"]
        assert reader["modelRequirements"] == {"vision": True}
        general, tools = await got(client, "general-purpose")
        assert "write_file" in tools and "task" not in tools
        assert "modelRequirements" not in general


async def test_an_agent_that_only_the_server_can_run_comes_with_a_way_to_delegate(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path) as client:
        shadow, tools = await got(client, "shadow")
        assert tools == DELEGATING
        assert 'task with agent="shadow"' in shadow["instructions"]
    async with client_of(tmp_path, toolsets="delegation") as client:
        reader, tools = await got(client, "reader")
        assert tools == DELEGATING and 'agent="reader"' in reader["instructions"]


async def test_an_agent_whose_tools_nobody_is_offered_is_a_broken_definition(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path, toolsets="files") as client:
        roster = [one["name"] for one in (await ask(client, "agents/list"))["agents"]]
        assert "reader" in roster and "planner" not in roster
        error = (await refusal(client, "agents/get", name="planner")).error
        assert (error.code, error.data["reason"]) == (-32603, "invalid_agent_definition")
        assert "delegation" in error.message


async def test_small_definitions_are_handed_out_as_they_are_listed(tmp_path: Path) -> None:
    async with client_of(tmp_path, toolsets="compact") as client:
        listed = {one["name"]: one for one in (await ask(client, "tools/list"))["tools"]}
        found, tools = await got(client, "reader")
        assert tools == ["task", "wait", "reply"]
        assert found["tools"] == [listed[name] for name in tools]


async def test_the_draft_is_offered_to_nobody_unless_the_operator_says_so(tmp_path: Path) -> None:
    async with client_of(tmp_path, experimental=()) as client:
        assert EXTENSION not in (client.server_capabilities.extensions or {})
        assert (await refusal(client, "agents/list")).error.code == -32601
    async with client_of(tmp_path, "legacy") as client:
        assert EXTENSION not in (client.server_capabilities.extensions or {})
        assert (await refusal(client, "agents/list")).error.code == -32601
    async with client_of(tmp_path, declares=False) as client:
        assert (client.server_capabilities.extensions or {})[EXTENSION] == {"listChanged": True}
        assert (await refusal(client, "agents/list")).error.code == -32021
