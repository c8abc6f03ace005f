"""What a call did is not lost when two calls of one answer write one plain key."""

import re
from typing import Annotated, NotRequired, TypedDict

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import ImageBlock, TextBlock
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.state.channels import Reducer
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import Turns, call, says
from tests.subagents.family import Cast, family, heard, task, told

pytestmark = pytest.mark.anyio


def _added(old: list[str] | None, new: list[str]) -> list[str]:
    return [*(old or []), *new]


class Shared(TypedDict):
    verdict: NotRequired[str]
    other: NotRequired[str]
    log: Annotated[NotRequired[list[str]], Reducer(_added)]


class Verdicts(AgentMiddleware):
    state_schema = Shared

    @property
    def tools(self):
        @tool
        async def judge(verdict: str) -> ToolResult:
            """Judge."""
            return ToolResult("judged", update={"verdict": verdict, "log": [verdict]})

        return [judge]


def judging(request):
    name = heard(request)[0]
    return says(
        "",
        call("j", "judge", verdict=name),
        call("w", "write_file", path=f"/{name}.txt", content=f"all about {name}"),
    )


def reporting(size: int):
    def report(request):
        name = heard(request)[0]
        return says(f"REPORT {name} begins. " + name * size + f" REPORT {name} ends.")

    return report


def two_judges(*, size: int = 10):
    model = Cast(
        main=[says("", task("1", "a", "helper"), task("2", "b", "helper")), says("ok")],
        helper=[judging, reporting(size), says("and more")],
    )
    helper = SubAgent("helper", "Helps.", "You help.", middleware=[Verdicts()])
    return family(model, subagents=[helper], middleware=[Verdicts()])


async def read_by(agent, path: str) -> str:
    driven = await agent.adrive([call("r", "read_file", path=path)], thread_id="t")
    return driven.results[0].text


async def test_the_report_of_a_subagent_whose_state_is_refused_is_read_by_its_caller():
    result = await two_judges().ainvoke("go", thread_id="t")
    first, refused = sorted(told(result), key=lambda one: one.status, reverse=True)
    assert (first.status, refused.status) == ("success", "error")
    name = "b" if "REPORT a begins" in first.text else "a"
    assert "wrote 'verdict' too" in refused.text
    assert f"REPORT {name} begins" in refused.text
    assert f"REPORT {name} ends" in refused.text


async def test_what_joins_is_kept_of_a_refused_result_and_the_subagent_can_go_on():
    agent = two_judges()
    result = await agent.ainvoke("go", thread_id="t")
    assert set(result.state["log"]) == {"a", "b"}
    assert result.state["verdict"] in ("a", "b")
    for name in "ab":
        assert f"all about {name}" in await read_by(agent, f"/{name}.txt")
    (refused,) = [one for one in told(result) if one.status == "error"]
    again = call("again", "task", description="c", task_id=refused.artifact["task_id"])
    driven = await agent.adrive([again], thread_id="t")
    assert "and more" in driven.results[0].text


async def test_a_long_report_of_a_refused_result_is_in_a_file_that_is_there():
    agent = two_judges(size=70_000)
    result = await agent.ainvoke("go", thread_id="t")
    (refused,) = [one for one in told(result) if one.status == "error"]
    assert len(refused.text) < 10_000
    (path,) = set(re.findall(r"/large_tool_results/\w+\.txt", refused.text))
    assert "REPORT" in await read_by(agent, path)
    assert "such as files, stays" in refused.text


# --- plain tools -----------------------------------------------------------------------------


@tool
async def both(verdict: str) -> ToolResult:
    """Write two plain keys."""
    return ToolResult(f"wrote {verdict}", update={"other": verdict, "verdict": verdict})


@tool
async def one(verdict: str) -> ToolResult:
    """Write a plain key."""
    return ToolResult((TextBlock(f"see {verdict}"), ImageBlock("aGk=", "image/png")),
                      update={"verdict": verdict})  # fmt: skip


@tool
async def other(verdict: str) -> ToolResult:
    """Write another plain key."""
    return ToolResult("other", update={"other": verdict})


@tool
async def wrong(verdict: str) -> ToolResult:
    """Write what does not fit."""
    return ToolResult(f"found {verdict}", update={"log": 7})


async def ran(*calls, **options):
    model = Turns(says("", *calls), says("end"))
    agent = create_agent(model, [both, one, other, wrong], state_schema=Shared, **options)
    return await agent.ainvoke("go", thread_id="t")


async def test_a_refused_result_takes_no_plain_key_from_the_calls_after_it():
    result = await ran(
        call("1", "one", verdict="x"),
        call("2", "both", verdict="y"),
        call("3", "other", verdict="z"),
    )
    assert [one.status for one in told(result)] == ["success", "error", "success"]
    assert (result.state["verdict"], result.state["other"]) == ("x", "z")


async def test_images_of_a_refused_result_stay():
    result = await ran(call("1", "both", verdict="x"), call("2", "one", verdict="y"))
    refused = told(result)[1]
    assert refused.status == "error"
    assert [type(one) for one in refused.content] == [TextBlock, TextBlock, ImageBlock]
    assert "see y" in refused.text
    assert "stays" not in refused.text


async def test_what_a_tool_says_beside_an_update_that_does_not_fit_is_read():
    refused = told(await ran(call("1", "wrong", verdict="gold")))[0]
    assert refused.status == "error"
    assert "found gold" in refused.text
    assert "log" in refused.text


async def test_a_call_whose_result_was_refused_counts_all_the_same():
    limit = ToolCallLimitMiddleware("wrong", run_limit=1)
    turns = Turns(*(says("", call(str(n), "wrong", verdict="x")) for n in range(2)), says("end"))
    agent = create_agent(turns, [wrong], state_schema=Shared, middleware=[limit])
    result = await agent.ainvoke("go")
    assert "was not run" in told(result)[1].text


async def test_a_refused_result_is_redacted_like_any_other():
    result = await ran(
        call("1", "one", verdict="x"),
        call("2", "both", verdict="ann@example.com"),
        middleware=[PIIMiddleware("email", apply_to_tool_results=True)],
    )
    refused = told(result)[1]
    assert "wrote 'verdict' too" in refused.text
    assert "ann@example.com" not in refused.text
