"""However many runs look for saved skills and subagents, the files are looked at but rarely."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.definitions import registry as definition_files
from deep_agent_mcp.harness.middleware.skills import SkillsMiddleware
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.skills.folders import write_skill

pytestmark = pytest.mark.anyio


@tool
def nothing() -> str:
    """Do nothing."""
    return "done"


class Counting(SkillRegistry):
    """Counts its scans."""

    scans = 0

    def _sources(self) -> Any:
        self.scans += 1
        return super()._sources()


async def test_the_calls_of_many_runs_share_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 600.0)
    monkeypatch.setattr(definition_files, "_SHARE", 1e9)
    write_skill(tmp_path, "a")
    registry = Counting([tmp_path])
    turns = [says("", call(f"c{number}", "nothing")) for number in range(5)]
    agent = create_agent(
        Turns(*turns, says("hi")), [nothing], middleware=[SkillsMiddleware(registry)]
    )
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(agent.ainvoke, "go")
    assert registry.scans == 2  # when it was made, and for all runs


async def test_what_is_saved_later_counts_once_the_last_look_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = SkillRegistry([tmp_path])
    registry.refresh()
    write_skill(tmp_path, "a")
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 600.0)
    monkeypatch.setattr(definition_files, "_SHARE", 1e9)
    registry.refresh()
    assert not registry.skills
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 0.0)
    registry.refresh()
    assert [*registry.skills] == ["a"]


async def test_a_registry_that_is_watched_is_looked_at_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 0.0)
    registry = Counting([tmp_path])
    registry.reload()
    with registry.watched():
        registry.refresh()
        assert registry.scans == 2
    registry.refresh()
    assert registry.scans == 3


def test_those_that_wait_for_a_look_under_way_take_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 600.0)
    monkeypatch.setattr(definition_files, "_SHARE", 1e9)
    began, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def _sources(self) -> Any:
            found = super()._sources()
            if self.scans > 1:
                began.set()
                assert go_on.wait(60)
            return found

    registry = Slow([tmp_path])
    threads = [threading.Thread(target=registry.refresh) for _ in range(5)]
    threads[0].start()
    assert began.wait(60)
    for one in threads[1:]:
        one.start()
    go_on.set()
    for one in threads:
        one.join(10)
    assert registry.scans == 2


async def test_subagents_saved_while_a_library_runs_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deep_agent_mcp.harness.middleware.subagents import SubAgentMiddleware

    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 0.0)
    registry = SubAgentRegistry(tmp_path)

    def build(definition: Any) -> Any:
        raise AssertionError("nobody calls it")

    @tool
    def save() -> str:
        """Save a subagent."""
        text = "---\nname: scout\ndescription: Looks around.\n---\nLook.\n"
        (tmp_path / "scout.md").write_text(text)
        return "saved"

    model = Turns(says("", call("1", "save")), says("hi"))
    agent = create_agent(model, [save], middleware=[SubAgentMiddleware(registry, build)])
    result = await agent.ainvoke("go")
    told = [one.text for one in result.state["messages"] if one.type == "human"]
    assert "scout" in told[-1]


async def test_a_skill_saved_a_moment_ago_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "_FRESH_SECONDS", 600.0)
    monkeypatch.setattr(definition_files, "_SHARE", 1e9)

    @tool
    def save() -> str:
        """Save a skill."""
        write_skill(tmp_path, "late", body="The text.")
        return "saved"

    model = Turns(says("", call("1", "save")), says("", call("2", "skill", name="late")), says(""))
    middleware = SkillsMiddleware(SkillRegistry([tmp_path]))
    result = await create_agent(model, [save], middleware=[middleware]).ainvoke("go")
    results = [one.text for one in result.state["messages"] if one.type == "tool"]
    assert "The text." in results[1]
