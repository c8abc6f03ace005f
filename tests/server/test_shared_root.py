"""With one root for all, nobody's files become what the agents of others are told."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import PolicyFiles
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.agents.workplaces import Parts
from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from tests.loop.models import Turns, call, says
from tests.shell.support import need_bubblewrap

TOOLS = ("write_file", "edit_file", "delete_file", "unknown_tool")
WRITERS = {
    "client": ("main",),
    "agent": ("main",),
    "subagent": ("main", "general-purpose"),
    "its subagent": ("main", "general-purpose", "reader"),
}
FILES = {
    "memory": "/AGENTS.md",
    "memory that is not there yet": "/notes/MEMORY.md",
    "another spelling": "/agents.MD",
    "a skill": "/skills/mine/SKILL.md",
    "a new skill": "/skills/planning-with-todos/SKILL.md",
    "a skill's file": "/skills/mine/references/more.md",
    "a skill through a link": "/lent/SKILL.md",
    "a subagent": "/agents/reader.md",
    "a new subagent": "/agents/general-purpose.md",
    "a profile": "/profiles/all.toml",
    "a policy": "/rules.toml",
}


def settings(place: Path, **flags: object) -> Settings:
    root = place / "root"
    for name in ("skills/mine", "agents", "profiles", "lent"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "AGENTS.md").write_text("Be kind.")
    (root / "rules.toml").write_text("# none\n")
    if not (root / "skills" / "lent").exists():
        (root / "skills" / "lent").symlink_to(root / "lent")
    given = {
        "root": str(root),
        "state_dir": str(place / "state"),
        "memory": (str(root / "AGENTS.md"), str(root / "notes" / "MEMORY.md")),
        "skills": (str(root / "skills"),),
        "agents": str(root / "agents"),
        "profiles": (str(root / "profiles"),),
        "policy": (str(root / "rules.toml"),),
        "auth": ("token",),
        "transport": "http",
        **flags,
    }
    return load_settings(given, {})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    place = tmp_path_factory.mktemp("shared")
    yield {protect: built_agent(settings(place, protect=protect)) for protect in ("ask", "off")}


@pytest.mark.parametrize("protect", ["ask", "off"])
@pytest.mark.parametrize("writer", WRITERS)
def test_nobody_writes_what_all_agents_are_told(shared: Any, writer: str, protect: str) -> None:
    agent = shared[protect]
    for file, named, principal in product(FILES, TOOLS, ("ann", "ben", "")):
        verdict = agent.definition.pipeline.policy.judge(
            named,
            {"path": FILES[file]},
            agent.tools.get(named),
            agent=WRITERS[writer],
            principal=principal,
        )
        assert verdict.action == "deny", (file, named, principal)
        assert "only whoever runs the server can edit it" in verdict.reason


def test_other_files_are_everybodys_and_all_is_there_to_read(shared: Any) -> None:
    agent = shared["ask"]
    policy = agent.definition.pipeline.policy
    for path in ("/notes/plan.md", "/skill/SKILL.md", "/README.md"):
        assert (
            policy.judge("write_file", {"path": path}, agent.tools["write_file"]).action == "allow"
        )
    for path in FILES.values():
        assert policy.judge("read_file", {"path": path}, agent.tools["read_file"]).action == "allow"


def test_the_one_user_of_a_server_without_tokens_edits_them(tmp_path: Path) -> None:
    agent = built_agent(settings(tmp_path, auth=(), policy=(), profiles=()))
    policy = agent.definition.pipeline.policy
    for name in ("memory", "a skill", "a new subagent"):
        call = ("write_file", {"path": FILES[name]}, agent.tools["write_file"])
        assert policy.judge(*call, agent=["main"]).action == "allow"


@pytest.mark.parametrize("kind", ["skills", "agents"])
@pytest.mark.parametrize("inside", [".", "mine"])
def test_a_root_among_the_instructions_stops_the_start(
    tmp_path: Path, kind: str, inside: str
) -> None:
    (tmp_path / "all" / "mine").mkdir(parents=True)
    told = str(tmp_path / "all")
    flags = {"root": str(tmp_path / "all" / inside), "memory": (), "policy": (), "profiles": ()}
    flags |= {"skills": (), "agents": None, kind: (told,) if kind == "skills" else told}
    with pytest.raises(AgentBuildError, match="instruct other users' agents"):
        built_agent(settings(tmp_path, **flags))


def test_a_memory_file_that_commands_could_make_stops_the_start(tmp_path: Path) -> None:
    need_bubblewrap()
    flags: dict[str, Any] = {"execute": "bubblewrap", "policy": ()}
    with pytest.raises(
        AgentBuildError, match=r"MEMORY\.md is inside the root .* does not exist yet"
    ):
        built_agent(settings(tmp_path, **flags))
    (tmp_path / "root" / "notes").mkdir()
    (tmp_path / "root" / "notes" / "MEMORY.md").touch()
    built_agent(settings(tmp_path, **flags))


@pytest.mark.anyio
async def test_long_results_of_a_thread_are_not_among_the_files_that_users_share(
    tmp_path: Path,
) -> None:
    given = settings(tmp_path)
    backend = Parts.of(given, PolicyFiles(given.policy)).backend
    turns = [says("", call("a", "report")), says("Done.")]
    agent = create_deep_agent(Turns(*turns), [report], backend=backend)
    done = await agent.ainvoke("Report")
    (result,) = [one for one in done.state["messages"] if isinstance(one, ToolMessage)]
    assert "/thread/large_tool_results/" in result.text
    assert [one for one in (tmp_path / "root").rglob("*") if "large" in one.name] == []


@tool
def report() -> str:
    """Write a long report."""
    return "words " * 60_000
