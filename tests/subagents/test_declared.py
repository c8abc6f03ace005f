"""What a `SubAgent` says of itself, and what it has from its caller."""

import json

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.limits.carried_limits import bounds
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.skills.folders import write_skill
from tests.subagents.family import Cast, family, heard, task, told

pytestmark = pytest.mark.anyio

HELPER = {"name": "helper", "description": "Helps.", "system_prompt": "You help."}


def delegating(*child):
    return {"main": [says("", task("1", "work", "helper")), says("ok")], "helper": [*child]}


@tool
async def ours(what: str) -> str:
    """Be everybody's."""
    return f"ours {what}"


@tool
async def theirs(what: str) -> str:
    """Be the subagent's."""
    return f"theirs {what}"


async def test_a_subagent_has_all_tools_of_its_caller_but_task_unless_it_names_some():
    for tools, expected in (
        (None, {"ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill",
                "write_todos", "ours"}),
        (["ls", theirs], {"ls", "theirs"}),
        ([], set()),
    ):  # fmt: skip
        model = Cast(**delegating(says("done")))
        helper = SubAgent(**HELPER, tools=tools)
        await family(model, [ours], subagents=[helper]).ainvoke("go")
        (asked,) = model.asked_by("helper")
        assert {one.name for one in asked.tools} == expected
        assert asked.system[0].text == "You help."
        assert heard(asked) == ["work"]


async def test_a_tool_of_its_own_takes_the_place_of_its_callers():
    @tool(name="ours")
    async def better(what: str) -> str:
        """Be better."""
        return f"better {what}"

    turns = delegating(says("", call("c", "ours", what="x")), lambda r: says(r.messages[-1].text))
    agent = family(turns, [ours], subagents=[SubAgent(**HELPER, tools=["ls", better])])
    assert told(await agent.ainvoke("go"))[0].text.startswith("better x")


async def test_a_model_of_its_own_answers_for_it():
    own = Turns(says("from another model"))
    model = Cast(**delegating())
    agent = family(model, subagents=[SubAgent(**HELPER, model=own)])
    assert told(await agent.ainvoke("go"))[0].text.startswith("from another model")
    assert len(own.requests) == 1


class Marks(AgentMiddleware):
    def __init__(self, text: str) -> None:
        self.text = text

    async def wrap_model_call(self, request, handler):
        return await handler(request.with_section("marks", self.text))


async def test_its_middleware_is_added_to_its_callers_and_replaces_one_of_the_same_name():
    model = Cast(**delegating(says("done")))
    helper = SubAgent(**HELPER, middleware=[Marks("inner"), ToolCallLimitMiddleware(run_limit=1)])
    await family(model, subagents=[helper], middleware=[Marks("outer")]).ainvoke("go")
    marks = {
        one.agent: [section.text for section in one.system if section.name == "marks"]
        for one in model.requests
    }
    assert marks == {"main": ["outer"], "helper": ["inner"]}


class Verdict(BaseModel):
    good: bool
    why: str = ""


async def test_a_structured_answer_comes_back_as_json_and_as_data():
    turns = delegating(says("", call("v", "Verdict", good=True, why="ça va")))
    agent = family(turns, subagents=[SubAgent(**HELPER, response_format=Verdict)])
    (answer,) = told(await agent.ainvoke("go"))
    assert json.loads(answer.content[0].text) == {"good": True, "why": "ça va"}
    assert "ça va" in answer.content[0].text
    assert answer.artifact["answer"] == {"good": True, "why": "ça va"}
    assert answer.artifact["task_id"] in answer.content[1].text


async def test_a_subagent_that_falls_silent_is_asked_for_its_report():
    class Silent(AgentMiddleware):
        def after_model(self, state, runtime):
            return None

    for last, text in ("the report", "the report\n\n["), ("", "Subagent helper did not finish: "):
        turns = delegating(says("I look", call("c", "ours", what="x")), says(""), says(last))
        agent = family(turns, [ours], subagents=[SubAgent(**HELPER, middleware=[Silent()])])
        (report,) = told(await agent.ainvoke("go"))
        assert report.text.startswith(text)
        assert ("What it said until then:\nI look" in report.text) == (not last)


@pytest.mark.parametrize("child", [{"ours": False}, {"*": False}, {}, None])
async def test_a_subagent_cannot_ask_less_than_its_caller(child):
    turns = delegating(says("", call("c", "ours", what="x")), says("done"))
    helper = SubAgent(**HELPER, interrupt_on=child)
    agent = family(turns, [ours], subagents=[helper], interrupt_on={"ours": True})
    waiting = await agent.ainvoke("go")
    assert [one.path for one in waiting.interrupts] == [("main", "1", "helper", "c")]


async def test_a_subagent_can_ask_more_than_its_caller_and_the_stricter_choice_holds():
    calls = call("c", "ours", what="x"), call("d", "theirs", what="y")
    turns = delegating(says("", *calls), says("done"))
    turns["main"].insert(0, says("", call("m", "theirs", what="mine")))
    helper = SubAgent(
        **HELPER,
        interrupt_on={"theirs": True, "ours": InterruptOnConfig(["approve", "reject", "respond"])},
    )
    agent = family(
        turns,
        [ours, theirs],
        subagents=[helper],
        interrupt_on={"ours": InterruptOnConfig(["approve", "edit"])},
    )
    waiting = await agent.ainvoke("go")
    decisions = [one.answer_schema["properties"]["decision"]["enum"] for one in waiting.interrupts]
    assert [one.payload["tool"] for one in waiting.interrupts] == ["ours", "theirs"]
    assert decisions[0] == ["approve"]
    assert told(waiting)[0].text == "theirs mine"
    answers = {one.id: {"decision": "approve"} for one in waiting.interrupts}
    assert (await agent.aresume(waiting.run.id, answers)).run.status == "done"


async def test_the_policy_of_a_subagent_narrows_its_callers_and_never_widens_it():
    calls = call("c", "ours", what="x"), call("d", "theirs", what="y")
    turns = delegating(says("", *calls), lambda r: says("; ".join(m.text for m in r.messages[-2:])))
    helper = SubAgent(**HELPER, policy=Policy([Rule("allow", "ours"), Rule("deny", "theirs")]))
    agent = family(turns, [ours, theirs], subagents=[helper], policy=Policy([Rule("deny", "ours")]))
    text = told(await agent.ainvoke("go"))[0].text
    assert "ours was refused" in text
    assert "theirs was refused" in text


async def test_a_wrong_definition_is_an_error_when_it_is_made():
    with pytest.raises(AgentBuildError, match="mode is one of fresh, fork; got 'forked'"):
        SubAgent(**HELPER, mode="forked")  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match="tools is a sequence of names; got 'ls'"):
        SubAgent(**HELPER, tools="ls")
    with pytest.raises(AgentBuildError, match=r"limits= takes Limits\(…\) or bounds"):
        SubAgent(**HELPER, limits={"tokens": 5})  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match="shares tools, model with its caller"):
        SubAgent(**HELPER, mode="fork", tools=["ls"], model="m:x")


def test_bounds_of_the_thread_are_not_a_subagents():
    with pytest.raises(AgentBuildError, match="go into the limits of the run"):
        SubAgent(**HELPER, limits=Limits(thread_tokens=5))


async def test_skills_of_a_subagent_are_those_it_names_and_what_it_loads_stays_with_it(tmp_path):
    for name in ("drawing", "surveying"):
        write_skill(tmp_path / "skills", name, description=f"About {name}.")
    model = Cast(**delegating(says("", call("s", "skill", name="drawing")), says("done")))
    agent = family(
        model,
        subagents=[SubAgent(**HELPER, skills=["drawing"])],
        skills=SkillRegistry([tmp_path / "skills"]),
    )
    await agent.ainvoke("go")
    shown = {
        one.agent: next(part.text for part in one.system if part.name == "skills")
        for one in model.requests
    }
    assert "surveying" in shown["main"]
    assert "surveying" not in shown["helper"]
    assert "drawing" in shown["helper"]
    assert not [one for one in model.asked_by("main")[-1].messages if "About" in one.text]


async def test_a_structured_answer_that_does_not_come_is_a_failure_of_a_kind():
    helper = SubAgent(**HELPER, response_format=Verdict, limits=bounds(model_calls=3))
    turns = delegating(says("", call("v", "Verdict", good="perhaps", why=[])))
    result = await family(turns, subagents=[helper]).ainvoke("go")
    (answer,) = told(result)
    assert answer.status == "error"
    assert answer.artifact["failed"]["kind"] == "model_calls"
    assert answer.artifact["task_id"].startswith("sub-")
    assert result.run.status == "done"
