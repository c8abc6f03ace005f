"""A subagent that cannot work is refused before work is handed to it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from pydantic import BaseModel

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from deep_agent_mcp.harness.middleware.todo_list import TodoListMiddleware
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry, UnknownSubAgent
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.doctor.environment import examine_files
from deep_agent_mcp.server.settings.sources import load_settings
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import raw_server
from tests.skills.folders import write_skill
from tests.subagents.family import Cast, task, told

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]

HELPER = {"name": "helper", "description": "Helps.", "system_prompt": "You help."}


@tool
async def ours(what: str) -> str:
    """Be everybody's."""
    return f"ours {what}"


@tool(name="ls")
async def listing(what: str) -> str:
    """Have the name of another tool."""
    return what


class Shaky(BaseModel):
    answer: str


@tool(name="Shaky")
async def shaky(what: str) -> str:
    """Have the name of an answer."""
    return what


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"tools": ["nope"]}, r"there is no tool 'nope'\. Available: edit_file"),
    "near": ({"tools": ["ls", "reed_file"]}, "no tool 'reed_file'. Did you mean 'read_file'"),
    "two": ({"tools": ["one", "two"]}, "no tool 'one'.*no tool 'two'"),
    "of nobody": ({"tools": ["ours"]}, "no tool 'ours'"),
    "task": ({"tools": ["task"]}, "no tool 'task'"),
    "commands": ({"tools": ["execute"]}, "no tool 'execute'"),
    "nearly of a server": (
        {"tools": ["oen_echo"]},
        "no tool 'oen_echo'. Did you mean 'one_echo'.*one_[*]",
    ),
    "not used": ({"tools": ["two_ping"]}, "no tool 'two_ping': of MCP server 'two' only .* ech[*]"),
    "of another server": (
        {"tools": ["two_echo"], "mcp_servers": ["one"]},
        "'two_echo' belongs to none of its MCP servers .one.. Add its server to mcp_servers",
    ),
    "clash": ({"tools": [listing]}, "two tools are named 'ls'"),
    "answer": ({"tools": [shaky], "response_format": Shaky}, "Shaky"),
    "twice": ({"middleware": [TodoListMiddleware()]}, "named twice: TodoListMiddleware"),
    "skill": ({"skills": ["plam"]}, "no skill 'plam'. Did you mean 'plan'"),
    "server": ({"mcp_servers": ["tow"]}, "no MCP server 'tow'.*mean 'two'"),
    "model": ({"model": "haiku"}, "unknown model 'haiku'"),
    "provider": ({"model": "other:x"}, "unknown model 'other:x'"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_work_is_refused_when_the_agent_is_built(
    tmp_path: Path, case: tuple[dict[str, Any], str]
) -> None:
    given, expected = case
    write_skill(tmp_path, "plan")
    servers = {"one": raw_server(), "two": raw_server(tools=["ech*"])}
    options: Any = {"skills": SkillRegistry([tmp_path]), "mcp_servers": servers}
    helper = SubAgent(**HELPER, **given)
    for subagents in ([helper], SubAgentRegistry(None, [helper])):
        with pytest.raises(AgentBuildError, match=f"subagent 'helper': .*{expected}"):
            create_deep_agent(Turns(), subagents=subagents, **options)


async def test_servers_that_nobody_mounted_are_unknown() -> None:
    with pytest.raises(AgentBuildError, match="there are no MCP servers at all"):
        create_deep_agent(Turns(), subagents=[SubAgent(**HELPER, mcp_servers=["one"])])


async def test_what_a_caller_or_its_middleware_brings_can_be_named(tmp_path: Path) -> None:
    write_skill(tmp_path, "plan")
    helper = SubAgent(**HELPER, tools=["ours", "write_todos", "grep", "skill"], skills=["plan"])
    model = Cast(
        main=[says("", task("1", "go", "helper")), says("ok")],
        helper=[says("", call("2", "ours", what="x")), says("done")],
    )
    skills = SkillRegistry([tmp_path])
    agent = create_deep_agent(model, [ours], subagents=[helper], skills=skills)
    assert told(await agent.ainvoke("go"))[0].text.startswith("done")


FILE = "---\nname: {name}\ndescription: Does it.\n{more}\n---\n\nYou do it.\n"


def write(directory: Path, name: str, more: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.md"
    path.write_text(FILE.format(name=name, more=more))
    return path


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("tools: [reed_file]", "no tool 'reed_file'. Did you mean 'read_file'"),
        ("model: haiku", "unknown model 'haiku'"),
        ("mcp_servers: [one]", "no MCP server 'one'"),
    ],
)
async def test_a_file_that_cannot_work_is_an_error_of_that_file(
    tmp_path: Path, more: str, expected: str
) -> None:
    path = write(tmp_path / "agents", "bad", more)
    write(tmp_path / "agents", "good", "tools: [ls]\nskills: [not-yet]")
    registry = SubAgentRegistry(path.parent)
    model = Cast(
        main=[
            says("", task("1", "go", "bad")),
            lambda _: (write(path.parent, "bad"), says("", call("2", "ls", path="/")))[1],
            says("", task("3", "go", "bad")),
            says("ok"),
        ],
        bad=[says("mended")],
    )
    agent = create_deep_agent(model, subagents=registry)
    assert list(registry.subagents) == ["general-purpose", "good"]
    assert registry.errors[str(path)].startswith(f"{path}: ")
    assert expected in registry.errors[str(path)]
    with pytest.raises(UnknownSubAgent, match=expected):
        registry.get("bad")
    refused, _, mended = told(await agent.ainvoke("go"))
    assert expected in refused.text
    assert mended.text.startswith("mended")
    assert not registry.errors


async def test_agents_that_share_files_use_those_they_can(tmp_path: Path) -> None:
    path = write(tmp_path / "agents", "own", "tools: [ours]")
    registry = SubAgentRegistry(path.parent)
    poor = create_deep_agent(
        Cast(main=[says("", task("1", "go", "own")), says("ok")]), subagents=registry
    )
    assert str(path) in registry.errors
    turns = {"main": [says("", task("1", "go", "own")), says("ok")], "own": [says("did it")]}
    rich = create_deep_agent(Cast(**turns), [ours], subagents=registry)
    assert not registry.errors
    assert told(await rich.ainvoke("go"))[0].text.startswith("did it")
    assert "no tool 'ours'" in told(await poor.ainvoke("go"))[0].text


async def test_an_agent_that_is_gone_speaks_for_no_file(tmp_path: Path) -> None:
    path = write(tmp_path / "agents", "own", "tools: [ours]")
    registry = SubAgentRegistry(path.parent)
    create_deep_agent(Turns(), [ours], subagents=registry)
    assert not registry.errors
    gc.collect()
    here = create_deep_agent(Turns(), subagents=registry)
    assert str(path) in registry.errors
    assert here.tools


async def test_a_server_goes_on_without_a_file_that_cannot_work(tmp_path: Path) -> None:
    write(tmp_path / "agents", "bad", "tools: [reed_file]")
    write(tmp_path / "agents", "good", "skills: [nope]")
    settings = load_settings(
        {"state_dir": str(tmp_path / "state"), "agents": str(tmp_path / "agents")}, {}
    )
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            tools = (await client.list_tools()).tools
            (delegate,) = (one for one in tools if one.name == "task")
            said = delegate.input_schema["properties"]["agent"]["description"]
            assert "- good: Does it." in said
            assert "- bad:" not in said
            assert "bad.md: there is no tool 'reed_file'. Did you mean 'read_file'" in said
            assert app.status()["broken_agents"] == ["bad.md"]
            answer = await client.call_tool("task", {"goal": "x", "agent": "bad"})
            assert answer.is_error
            assert not (await client.call_tool("ls", {"path": "/"})).is_error
    found = [one.text for one in examine_files(settings) if one.status == "broken"]
    assert any("bad.md: there is no tool 'reed_file'" in one for one in found)
    assert any("subagent 'good': there is no skill 'nope'" in one for one in found)


def test_an_error_of_a_subagent_can_be_told_to_a_model() -> None:
    assert issubclass(UnknownSubAgent, ToolError)
