"""What only applies to the main agent does not apply to its background tasks."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunResult
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.rubric import RubricMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from tests.loop.models import call, says
from tests.middleware.test_rubric import GOOD, RUBRIC, Grader
from tests.skills.folders import write_skill
from tests.subagents.background.support import Cast, check, family, results, start, view

pytestmark = pytest.mark.anyio

LEADING = [says("", start("c1")), lambda request: check(request, "c1"), says("Done.")]


async def led(cast: Cast, journal: MemoryCheckpointer, given: object = "go", **more: object):
    """Return the result of a main agent with a background task."""
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, **more)
            return await agent.ainvoke(given, thread_id="t")


def prompt(request: ChatRequest) -> str:
    return "\n".join(one.text for one in request.system)


@pytest.mark.parametrize("skills", [None, []])
async def test_skills_that_a_thread_pins_are_not_pinned_in_its_tasks(
    journal: MemoryCheckpointer, tmp_path: Path, skills: list[str] | None
) -> None:
    write_skill(tmp_path, "surveying", body="Measure twice.")
    digger = SubAgent("digger", "Digs.", "You dig.", skills=skills)
    cast = Cast(main=LEADING, digger=[says("Dug.")])
    given = {"messages": [HumanMessage("go")], "pinned_skills": ["surveying"]}
    registry = SkillRegistry([tmp_path])
    result = await led(cast, journal, given, subagents=[digger], skills=registry)
    assert results(result)["check"].text.endswith("Dug.")
    assert "Measure twice." in prompt(cast.asked_by("main")[0])
    assert "Measure twice." not in prompt(cast.asked_by("digger")[0])


async def test_tasks_of_a_thread_with_a_rubric_are_not_graded(journal: MemoryCheckpointer) -> None:
    grader = Grader(GOOD)
    cast = Cast(main=LEADING, digger=[says("Dug.")])
    given = {"messages": [HumanMessage("go")], "rubric": RUBRIC}
    result = await led(cast, journal, given, middleware=[RubricMiddleware(grader)])
    assert [one.verdict for one in result.state["rubric_evaluations"]] == ["satisfied"]
    assert len(grader.requests) == 1


async def test_a_task_need_not_have_the_tools_of_a_grader(journal: MemoryCheckpointer) -> None:
    digger = SubAgent("digger", "Digs.", "You dig.", tools=["ls", "read_file"])
    cast = Cast(main=LEADING, digger=[says("Dug.")])
    graded = RubricMiddleware(Grader(), tools=["grep"])
    result = await led(cast, journal, subagents=[digger], middleware=[graded])
    assert results(result)["check"].text.endswith("Dug.")


def lists(request: ChatRequest) -> list[str]:
    """Return the todo lists of others that an agent was shown."""
    return [one.text for one in request.messages if getattr(one, "source", "") == "todos"]


async def test_a_task_sees_the_main_list_once_and_never_its_own_as_somebody_elses(
    journal: MemoryCheckpointer,
) -> None:
    def todos(call_id: str, content: str):
        return says("", call(call_id, "write_todos", todos=[{"content": content}]))

    main = [todos("l", "lead"), says("", start("c1")), says("Begun.")]
    cast = Cast(main=main, digger=[todos("o", "own"), says("Dug."), says("Dug on.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            first: RunResult = await family(background, cast).ainvoke("go", thread_id="t")
            task = await view(background, first, "c1")
            await background.send(task.run.thread_id, "go on", "k1")
            await view(background, first, "c1")
    shown = [lists(one) for one in cast.asked_by("digger")]
    assert ["[ ] lead (t1)" in text for (text,) in shown] == [True] * 3
    assert len({text for (text,) in shown}) == 1
