"""Claude Code itself, whose model is a script, on a tour of a real server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.cells import Era, cells_of
from tests.clients.tours import Place
from tests.fake_anthropic import FakeAnthropic

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SERVER = "deep-agent"
URI = "threads://recent"


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": f"mcp__{SERVER}__{tool}", "input": args}]}


def turns(here: dict[str, str]) -> list[dict[str, Any]]:
    todos = [{"content": "look at it", "status": "in_progress"}]
    reading = {"name": "ReadMcpResourceTool", "input": {"server": SERVER, "uri": URI}}
    return [
        call("write_todos", todos=todos, **here),
        call("write_file", path="/claude.txt", content="a line of the tour\n", **here),
        call("read_file", path="/claude.txt", **here),
        call("task", goal="write a note", **here),
        call("read_file", path="/nowhere"),
        {"tool_calls": [reading]},
        {"text": "All seen."},
    ]


def results(request: dict[str, Any]) -> list[str]:
    """Return what a model was shown of all calls so far, as text."""
    blocks = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return [json.dumps(one["content"]) for one in blocks if one["type"] == "tool_result"]


@pytest.mark.parametrize(("transport", "era"), cells_of("Claude Code"))
async def test_claude_code_drives_delegates_and_reads(
    transport: str, era: Era, place: Place, claude: Path, tmp_path: Path
) -> None:
    # Over HTTP, nothing in its calls tells conversations of the newer era apart.
    here = {"thread_id": "claude"} if (transport, era) == ("http", "2026-07-28") else {}
    config = tmp_path / "mcp.json"
    entry = {"type": transport, **place.target(transport)}
    config.write_text(json.dumps({"mcpServers": {SERVER: entry}}))
    home = tmp_path / "home"
    home.mkdir()
    # It asks for more than the turns: titles, and whatever it thinks of next.
    async with FakeAnthropic(
        [*turns(here), {"text": "Yes.", "repeat": True}], check=lambda _: None
    ) as api:
        env = {
            **{key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ},
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        command = [claude, "-p", "Go on the tour.", "--mcp-config", config, "--strict-mcp-config"]
        command += ["--output-format", "json", "--model", "claude-sonnet-4-5"]
        command += ["--allowedTools", f"mcp__{SERVER}", "ReadMcpResourceTool"]
        with anyio.fail_after(120):
            done = await anyio.run_process(
                [*map(str, command)], env=env, cwd=home, check=False, stdin=subprocess.DEVNULL
            )
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0 and "All seen." in said, said[-4_000:]
    offered = {one["name"] for one in api.requests[0]["tools"]}
    assert f"mcp__{SERVER}__task" in offered  # without a search for it
    todos, wrote, read, delegated, wrong, resource = results(api.requests[-1])
    thread_id = todos.partition("thr_")[2][:16]
    assert "look at it" in todos and "claude.txt" in wrote and "a line of the tour" in read
    assert "The note is written." in delegated and "note.txt" in delegated
    assert "no such file" in wrong and thread_id in resource
    for one in (wrote, read, delegated):
        assert thread_id in one
