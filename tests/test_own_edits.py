"""A deep agent that edits its own skills and memory works with what it wrote."""

import os
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.definitions.sources import Found
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.skills import Skill, SkillRegistry
from tests.loop.models import Turns, call, says
from tests.skills.folders import skill_text, write_skill

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]

SKILL = skill_text("greeting", description="How to greet.", body="Say {word}.")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path / "skills", "greeting", SKILL.format(word="hello"))
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    # Files that were saved long ago are not read at every look.
    for path in tmp_path.rglob("*.md"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return tmp_path


def deep(root: Path, *turns: Any, **options: Any) -> tuple[Agent, Turns]:
    model = Turns(*turns)
    agent = create_deep_agent(
        model,
        backend=DirectoryBackend(root),
        skills=SkillRegistry([root / "skills"]),
        memory=MemoryFiles([root / "AGENTS.md"]),
        **options,
    )
    return agent, model


def notices(request: ChatRequest) -> list[tuple[str, str]]:
    return [
        (one.source, one.text)
        for one in request.messages
        if isinstance(one, HumanMessage) and one.source in ("skills", "memory")
    ]


def told(request: ChatRequest) -> list[str]:
    return [one.text for one in request.messages if isinstance(one, ToolMessage)]


async def test_an_agent_uses_the_skill_it_has_just_mended(root: Path) -> None:
    path = "/skills/greeting/SKILL.md"
    agent, model = deep(
        root,
        says("", call("1", "skill", name="greeting"), call("2", "read_file", path=path)),
        says("", call("3", "edit_file", path=path, old_string="hello", new_string="good day")),
        says("", call("4", "skill", name="greeting")),
        says("good day"),
    )
    await agent.ainvoke("Mend your greeting.")
    before, _, edited, after = told(model.requests[-1])
    assert before.endswith("Say hello.")
    assert edited.startswith("Edited")
    assert after.endswith("Say good day.")
    ((source, text),) = notices(model.requests[-1])
    assert source == "skills"
    assert "- greeting: How to greet." in text
    assert len({request.system for request in model.requests}) == 1, "the prompt stays cached"


async def test_a_skill_that_an_agent_writes_is_there_at_its_next_call(root: Path) -> None:
    text = skill_text("parting", description="How to part.", body="Say goodbye.")
    agent, model = deep(
        root,
        says("", call("1", "write_file", path="/skills/parting/SKILL.md", content=text)),
        says("", call("2", "skill", name="parting")),
        says("", call("3", "write_file", path="/skills/parting/SKILL.md", content="broken")),
        says("done"),
    )
    await agent.ainvoke("Learn to part.")
    new, broken = notices(model.requests[-1])
    assert "New skills:\n- parting: How to part." in new[1]
    assert told(model.requests[-1])[1].endswith("Say goodbye.")
    assert "A skill file has a problem" in broken[1]


async def test_a_skill_that_a_person_saves_between_two_runs_is_told_in_the_second(
    root: Path,
) -> None:
    agent, model = deep(root, says("one"), says("two"), says("three"))
    await agent.ainvoke("first", thread_id="t")
    write_skill(root / "skills", "greeting", SKILL.format(word="good morning"))
    await agent.ainvoke("second", thread_id="t")
    await agent.ainvoke("other thread", thread_id="u")
    assert notices(model.requests[0]) == []
    assert len(notices(model.requests[1])) == 1
    assert notices(model.requests[2]) == [], "a new thread begins with what there is"


async def test_files_that_did_not_change_are_not_read_at_every_call(root: Path) -> None:
    read: list[Path] = []

    class Counting(SkillRegistry):
        def _load(self, found: Found) -> Skill:
            read.append(found.path)
            return super()._load(found)

    skills = Counting([root / "skills"])
    agent = create_deep_agent(
        Turns(*[says("", call(f"{n}", "ls", path=f"/{n}")) for n in range(5)], says("done")),
        backend=DirectoryBackend(root),
        skills=skills,
    )
    await agent.ainvoke("go")
    assert [one.parent.name for one in read] == ["greeting"]


async def test_an_agent_sees_its_own_edit_of_memory_and_keeps_it_over_a_restart(
    root: Path,
) -> None:
    journal = MemoryCheckpointer()
    agent, model = deep(
        root,
        says("", call("1", "read_file", path="/AGENTS.md")),
        says("", call("2", "edit_file", path="/AGENTS.md", old_string="tabs", new_string="spaces")),
        says("done"),
        checkpointer=journal,
    )
    await agent.ainvoke("Use spaces from now on.", thread_id="t")
    ((source, text),) = notices(model.requests[-1])
    assert (source, "Use spaces." in text) == ("memory", True)
    later, model = deep(root, *[says("again")] * 6, checkpointer=journal)
    await later.ainvoke("Go on.", thread_id="t")
    await later.ainvoke("Hello.", thread_id="new")
    old, new = model.requests
    assert len(notices(old)) == 1
    assert "Use tabs." not in "".join(one.text for one in new.system)
    assert "Use spaces." in "".join(one.text for one in new.system)
