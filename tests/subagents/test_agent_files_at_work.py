"""What a Markdown file says of a subagent is what the subagent can do, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, says
from tests.mcp_servers.support import raw_server
from tests.skills.folders import write_skill
from tests.subagents.family import task, told

pytestmark = pytest.mark.anyio

FILE = """\
---
name: critic
description: Finds faults.
tools: [read_file, write_file, ls, skill]
model: anthropic:claude-haiku-4-5
skills: [reading]
mcp_servers: [one]
permissions:
  - {action: deny, tool: write_file, path: /notes/**}
limits:
  tool_calls: 2
---

You find faults.
"""


async def test_every_field_of_a_file_holds_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "critic.md").write_text(FILE)
    (tmp_path / "root").mkdir()
    for name in ("reading", "writing"):
        write_skill(tmp_path / "skills", name, description=f"About {name}.")
    write = {"name": "write_file", "input": {"path": "/notes/a.md", "content": "x"}}
    list_all = {"name": "ls", "input": {"path": "/"}}
    answers = [Answer(tool_calls=[write]), *[Answer(tool_calls=[list_all])] * 2]
    async with FakeAnthropic([*answers, Answer(text="One fault.")]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        agent = create_deep_agent(
            Turns(says("", task("1", "look", "critic")), says("done")),
            backend=DirectoryBackend(tmp_path / "root"),
            skills=SkillRegistry([tmp_path / "skills"]),
            subagents=SubAgentRegistry(tmp_path / "agents"),
            mcp_servers={"one": raw_server(), "two": raw_server()},
        )
        (result,) = told(await agent.ainvoke("go"))
        await agent.aclose()
        first, second, *_ = api.requests
    prompt = "\n".join(one["text"] for one in first["system"])
    assert first["model"] == "claude-haiku-4-5"
    assert "You find faults." in prompt
    assert "About reading." in prompt
    assert "About writing." not in prompt
    names = {one["name"] for one in first["tools"]}
    assert names >= {"ls", "read_file", "skill", "write_file", "one_echo"}
    assert not {one for one in names if one.startswith(("two_", "edit_", "write_todos"))}
    assert "critic.md: permissions" in str(second["messages"][-1])
    assert not (tmp_path / "root" / "notes").exists()
    assert result.text.startswith("One fault.")
    assert "asked to finish early: All 2 tool calls" in result.text
