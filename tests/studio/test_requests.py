"""What a model saw in a step is made anew, without asking it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

LS = {"name": "ls", "args": {}}
RUNS = script(
    look=[{"text": "I look.", "tool_calls": [LS]}, {"text": "Nothing there."}],
)


async def test_the_request_of_each_step_has_what_the_model_saw_then(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        thread_id = (await server.call("task", goal="look"))["thread_id"]
        calls = (await server.read(f"thread://{thread_id}/requests"))["calls"]
        second, first = calls
        assert second["summary"] == "Nothing there."
        uri = f"thread://{thread_id}/requests/"
        seen = await server.read(uri + first["checkpoint_id"])
        assert [(one["role"], one["text"]) for one in seen["messages"]] == [("user", "look")]
        assert {"ls", "write_file", "task"} <= {one["name"] for one in seen["tools"]}
        assert "filesystem" in {one["name"] for one in seen["sections"]}
        assert all(one["text"] for one in seen["sections"])
        later = await server.read(uri + second["checkpoint_id"])
        assert [one["role"] for one in later["messages"]] == ["user", "assistant", "tool"]
        assert later["messages"][1]["calls"][0]["name"] == "ls"
        # Nothing was asked or stored.
        assert (await server.read(f"thread://{thread_id}/requests"))["calls"] == calls


async def test_a_step_in_which_no_model_was_asked_says_so(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        driven = await server.call("ls")
        history = await server.read(f"thread://{driven['thread_id']}/history")
        made = history["checkpoints"][0]["checkpoint_id"]
        with pytest.raises(MCPError, match="no model was asked"):
            await server.read(f"thread://{driven['thread_id']}/requests/{made}")
