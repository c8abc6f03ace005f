"""A deep agent that writes agent files hands work to what it wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from tests.loop.models import Turns, call, says
from tests.subagents.family import Cast, task, told

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]

CRITIC = "---\nname: critic\ndescription: {what}\n---\n{how}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    path = tmp_path / "agents" / "critic.md"
    path.write_text(CRITIC.format(what="Finds faults.", how="You find faults."))
    # Files that were saved long ago are not read at every look.
    for one in (path, path.parent):
        os.utime(one, (1_000_000_000, 1_000_000_000))
    return tmp_path


def deep(root: Path, model: Turns) -> Agent:
    agents = SubAgentRegistry(root / "agents")
    return create_deep_agent(model, backend=DirectoryBackend(root), subagents=agents)


def notices(request: ChatRequest) -> list[str]:
    found = [one for one in request.messages if isinstance(one, HumanMessage)]
    return [one.text for one in found if one.source == "subagents"]


async def test_an_agent_hands_work_to_the_subagent_it_has_just_written(root: Path) -> None:
    text = CRITIC.format(what="Rhymes.", how="You rhyme.").replace("critic", "poet")
    model = Cast(
        main=[
            says("", call("1", "write_file", path="/agents/poet.md", content=text)),
            says("", task("2", "on tea", "poet")),
            says("done"),
        ],
        poet=[says("Tea, for me.")],
    )
    result = await deep(root, model).ainvoke("go")
    assert told(result)[1].text.startswith("Tea, for me.")
    assert notices(model.asked_by("main")[1])[0].endswith("New:\n- poet: Rhymes.")
    assert model.asked_by("poet")[0].system[0].text.endswith("You rhyme.")


async def test_an_agent_works_with_the_subagent_it_has_just_mended(root: Path) -> None:
    path = "/agents/critic.md"
    model = Cast(
        main=[
            says("", call("1", "read_file", path=path), task("2", "look", "critic")),
            says(
                "",
                call("3", "edit_file", path=path, old_string="find faults", new_string="praise"),
            ),
            says("", task("4", "look", "critic")),
            says("done"),
        ],
        critic=[says("looked")],
    )
    await deep(root, model).ainvoke("go")
    before, after = ("\n".join(p.text for p in one.system) for one in model.asked_by("critic"))
    assert "You find faults." in before
    assert "You praise." in after


async def test_a_file_that_a_person_saves_between_two_runs_is_told_in_the_second(
    root: Path,
) -> None:
    model = Turns(says("one"), says("two"))
    agent = deep(root, model)
    await agent.ainvoke("first", thread_id="t")
    (root / "agents" / "critic.md").write_text(CRITIC.format(what="Praises.", how="You praise."))
    await agent.ainvoke("second", thread_id="t")
    assert notices(model.requests[0]) == []
    assert notices(model.requests[1])[0].endswith("Descriptions changed:\n- critic: Praises.")
