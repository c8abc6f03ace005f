"""The deep stack: what an agent and its subagents get by default, and the thread they share."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]

READER = """---
name: reader
description: Reads.
tools: read_file
---
You read files.
"""


@tool
async def weather(city: str) -> str:
    """Say the weather."""
    return f"fine in {city}"


def told(result) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def test_the_model_sees_its_tools_and_the_sections_of_its_prompt():
    model = Turns(says("hi"))
    agent = create_deep_agent(model, [weather], system_prompt="Be brief.")
    await agent.ainvoke("hello")
    (request,) = model.requests
    assert [spec.name for spec in request.tools] == [
        "ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill", "task",
        "write_todos", "weather",
    ]  # fmt: skip
    names = [section.name for section in request.system]
    assert names[:2] == ["base", "agent"]
    assert {"filesystem", "subagents", "todos"} <= set(names)
    assert request.system[1].text == "Be brief."
    assert any(section.cache for section in request.system)
    assert request.cache_messages
    assert request.agent == "main"


async def test_a_subagent_gets_its_own_prompt_and_only_its_tools(tmp_path: Path):
    (tmp_path / "reader.md").write_text(READER, encoding="utf-8")
    model = Turns(
        lambda request: (
            says("", call("1", "task", description="x", subagent_type="reader"))
            if request.agent == "main"
            else says("", call("c1", "write_file", path="/a", content="b"))
        ),
        says("done"),
    )
    agent = create_deep_agent(model, subagents=SubAgentRegistry(tmp_path))
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    inner = [request for request in model.requests if request.agent == "reader"]
    assert [spec.name for spec in inner[0].tools] == ["read_file"]
    assert inner[0].system[0].text.strip() == "You read files."
    refused = inner[1].messages[-1]
    assert isinstance(refused, ToolMessage)
    assert refused.status == "error"
    assert "there is no tool 'write_file'" in refused.text


async def test_parallel_subagents_and_their_parent_share_the_threads_files():
    def turn(request):
        if request.agent == "main":
            return says(
                "",
                call("1", "task", description="/a"),
                call("2", "task", description="/b"),
            )
        path = request.messages[0].text
        return says("", call("w", "write_file", path=path, content=f"by {path}"))

    agent = create_deep_agent(Turns(turn, says("done")))
    result = await agent.ainvoke("go")
    assert {path: file.content for path, file in result.state["files"].items()} == {
        "/a": "by /a",
        "/b": "by /b",
    }
    read = await agent.adrive([call("r", "read_file", path="/b")], thread_id=result.run.thread_id)
    assert "by /b" in read.results[0].text


async def test_the_policy_and_approvals_hold_for_subagents_too(tmp_path: Path):
    turns = [
        lambda request: (
            says("", call("1", "task", description="x"))
            if request.agent == "main"
            else says(
                "",
                call("d", "write_file", path="/secret/a", content="x"),
                call("e", "write_file", path="/open", content="x"),
            )
        ),
        says("done"),
    ]
    agent = create_deep_agent(
        Turns(*turns),
        backend=DirectoryBackend(tmp_path),
        policy=Policy((Rule("deny", "*", "/secret/**"),)),
        interrupt_on={"write_file": True},
    )
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    assert question.path == ("main", "1", "general-purpose", "e")
    assert question.payload["args"] == {"path": "/open", "content": "x"}
    result = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert result.run.status == "done"
    assert [path.name for path in tmp_path.iterdir()] == ["open"]


async def test_an_unknown_subagent_is_answered_with_those_there_are():
    model = Turns(says("", call("1", "task", description="x", subagent_type="nobody")), says("ok"))
    result = await create_deep_agent(model).ainvoke("go")
    (refused,) = told(result)
    assert refused.status == "error"
    assert "general-purpose" in refused.text


async def test_the_general_purpose_subagent_has_its_callers_own_tools():
    model = Turns(
        lambda request: says(
            "",
            call("1", "task", description="x")
            if request.agent == "main"
            else call("2", "weather", city="Rome"),
        ),
        lambda request: says(f"{request.agent} is done"),
    )
    result = await create_deep_agent(model, [weather]).ainvoke("go")
    assert [one.agent for one in model.requests] == [
        "main", "general-purpose", "general-purpose", "main",
    ]  # fmt: skip
    assert model.requests[2].messages[-1].text == "fine in Rome"
    assert "general-purpose is done" in told(result)[0].text


async def test_memory_is_for_the_main_agent_and_skills_for_all(tmp_path: Path):
    notes = tmp_path / "AGENTS.md"
    notes.write_text("Always say please.", encoding="utf-8")
    skill = tmp_path / "skills" / "politeness"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: politeness\ndescription: Being polite.\n---\nSay please.\n", encoding="utf-8"
    )
    model = Turns(
        lambda request: (
            says("", call("1", "task", description="x"))
            if request.agent == "main"
            else says("report")
        ),
        says("done"),
    )
    agent = create_deep_agent(
        model, memory=MemoryFiles([notes]), skills=SkillRegistry([tmp_path / "skills"])
    )
    await agent.ainvoke("go")
    prompts = {
        request.agent: "\n".join(section.text for section in request.system)
        for request in model.requests
    }
    assert "Always say please." in prompts["main"]
    assert "Always say please." not in prompts["general-purpose"]
    assert all("politeness" in prompt for prompt in prompts.values())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_todos_and_files_come_back_from_the_journal(kind: str, tmp_path: Path):
    journal = MemoryCheckpointer() if kind == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    async with journal:
        first = create_deep_agent(Turns(), checkpointer=journal)
        driven = await first.adrive(
            [
                call("1", "write_todos", todos=[{"content": "one", "status": "completed"}]),
                call("2", "write_file", path="/a.txt", content="héllo\n"),
            ]
        )
        assert [one.status for one in driven.results] == ["success", "success"]
        second = create_deep_agent(Turns(), checkpointer=journal)
        state = await second.get_state(driven.run.thread_id)
        assert [(one.id, one.content, one.status) for one in state.values["todos"]] == [
            ("t1", "one", "completed")
        ]
        assert state.values["files"]["/a.txt"].content == "héllo\n"
        edited = await second.adrive(
            [call("3", "edit_file", path="/a.txt", old_string="héllo", new_string="bye")],
            thread_id=driven.run.thread_id,
        )
        assert edited.results[0].status == "success", edited.results[0].text
