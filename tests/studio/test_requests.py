"""What a model saw in a step is made anew, without asking it again."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from mcp.shared.exceptions import MCPError

from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

LS = {"name": "ls", "args": {}}
GIVE = [
    {"name": "task", "args": {"description": "look below", "subagent_type": name}}
    for name in ("general-purpose", "twin")
]
DELEGATES = script(
    look={
        "main": [{"text": "", "tool_calls": GIVE}, {"text": "Done."}],
        "general-purpose": [{"text": "", "tool_calls": [LS]}, {"text": "Nothing here."}],
        "twin": [{"text": "", "tool_calls": [LS]}, {"text": "Nothing there."}],
    }
)
TWIN = "---\nname: twin\ndescription: Looks too\nmode: fork\n---\n\nLook.\n"
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


async def test_what_subagents_saw_is_made_anew_too(tmp_path: Path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "twin.md").write_text(TWIN)
    async with looking(tmp_path, DELEGATES, agents=str(tmp_path / "agents")) as server:
        thread_id = (await server.call("task", goal="look"))["thread_id"]
        steps = (await server.read(f"thread://{thread_id}/steps"))["steps"]
        for said, first in (("Nothing here.", "look below"), ("Nothing there.", "look")):
            step = next(one for one in steps if one.get("text") == said and one["kind"] == "text")
            uri = f"thread://{thread_id}/requests/{step['checkpoint_id']}?ns={quote(step['ns'])}"
            seen = await server.read(uri)
            told = [one["text"] for one in seen["messages"] if one["role"] == "user"]
            assert told[0] == first and "look below" in "".join(told)
            assert [one["role"] for one in seen["messages"]][-2:] == ["assistant", "tool"]
            assert ("task" in {one["name"] for one in seen["tools"]}) == (first == "look")


async def test_a_step_in_which_no_model_was_asked_says_so(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        driven = await server.call("ls")
        history = await server.read(f"thread://{driven['thread_id']}/history")
        made = history["checkpoints"][0]["checkpoint_id"]
        with pytest.raises(MCPError, match="no model was asked"):
            await server.read(f"thread://{driven['thread_id']}/requests/{made}")
