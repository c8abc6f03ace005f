"""What a model reads about background tasks is true where its files live and whom it can start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.middleware.background_subagents import BackgroundSubAgentMiddleware
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from tests.loop.models import says
from tests.subagents.background.support import DIGGER, Cast, check, family, results, start, view

pytestmark = pytest.mark.anyio

TWIN = SubAgent("twin", "Forks.", mode="fork")
COUNTER = CompiledSubAgent("counter", "Counts.", lambda text: str(len(text)))


def backend(kind: str, root: Path) -> Any:
    disk = DirectoryBackend(root)
    made = {"state": StateBackend(), "disk": disk}
    return made.get(kind) or CompositeBackend(StateBackend(), {"/disk": disk})


@pytest.mark.parametrize(
    ("kind", "copies"), [("state", True), ("disk", False), ("both", True)], ids=str
)
async def test_files_are_said_to_be_copied_only_where_they_are(
    kind: str, copies: bool, journal: MemoryCheckpointer, tmp_path: Path
) -> None:
    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Sad.")]
    cast = Cast(main=main, digger=[ModelError("the mine is closed", kind="other")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, backend=backend(kind, tmp_path))
            result = await agent.ainvoke("go")
    assert ("copy of the files" in agent.tools["start_task"].description) is copies
    assert ("joins yours" in agent.tools["check_tasks"].description) is copies
    told = results(result)["check"].text
    assert "the mine is closed" in told
    assert told.endswith("in files of this thread is not here.") is copies


async def test_who_cannot_be_started_in_the_background_is_named(
    journal: MemoryCheckpointer,
) -> None:
    cast = Cast(main=[says("Hello.")])
    async with BackgroundSubAgents(journal) as background:
        await family(background, cast, subagents=[DIGGER, TWIN, COUNTER]).ainvoke("go")
    prompt = {one.name: one.text for one in cast.requests[0].system}
    assert prompt["background_subagents"] == "`start_task` cannot start: counter, twin."


async def test_nothing_is_said_of_that_where_all_can_be_started(
    journal: MemoryCheckpointer,
) -> None:
    cast = Cast(main=[says("Hello.")])
    async with BackgroundSubAgents(journal) as background:
        await family(background, cast).ainvoke("go")
    assert "background_subagents" not in [one.name for one in cast.requests[0].system]


async def test_without_task_only_those_that_can_be_started_are_listed(
    journal: MemoryCheckpointer,
) -> None:
    from deep_agent_mcp.harness.agent import create_agent

    def build(definition: SubAgent) -> Agent:
        raise AssertionError(definition)

    cast = Cast(main=[says("Hello.")])
    registry = SubAgentRegistry(None, builtin=(), given=[DIGGER, TWIN, COUNTER])
    tasks = BackgroundSubAgentMiddleware(registry, build, BackgroundSubAgents(journal))
    await create_agent(cast, middleware=[tasks], name="main").ainvoke("go")
    (listed,) = [one.text for one in cast.requests[0].system if one.name == "subagents"]
    assert listed == "Subagents for `start_task`:\n- digger: Digs."


async def test_a_task_that_was_another_kind_of_subagent_is_not_gone_on_with(
    journal: MemoryCheckpointer,
) -> None:
    from tests.loop.models import call
    from tests.subagents.background.support import task_id

    own = family_agent()
    main = [
        says("", start("c1")),
        says("Begun."),
        lambda r: says("", call("u", "update_task", task_id=task_id(r, "c1"), message="more")),
        says("Sorry."),
    ]
    with anyio.fail_after(60):
        for subagent in (DIGGER, CompiledSubAgent("digger", "Digs.", own)):
            async with BackgroundSubAgents(journal) as background:
                turns = {"main": main, "digger": [says("dug")]}
                agent = family(background, turns, subagents=[subagent])
                result = await agent.ainvoke("go", thread_id="t")
                seen = await view(background, result, "c1")
    told = results(result)["u"]
    assert told.status == "error"
    assert "was an agent that starts afresh, and digger is an agent that was built apart now" in (
        told.text
    )
    assert seen.run.attempt == 2  # nobody went on with it


def family_agent() -> Agent:
    from deep_agent_mcp.harness.agent import create_agent

    return create_agent(Cast(digger=[says("dug"), says("more")]), name="digger")
