"""Subagents that start with all that their caller knows."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import RunOptions
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.carried_limits import bounds
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, pending_tool_calls
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.profiles import Profile
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.structured_output import ToolStrategy
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.fake_anthropic import Answer
from tests.fake_anthropic.prompt_cache import CachingAnthropic, blocks_of
from tests.loop.models import call, says
from tests.models.calls import claude
from tests.skills.folders import write_skill
from tests.subagents.family import Cast, family, handle_in, heard, task, told

pytestmark = pytest.mark.anyio

TWIN = SubAgent("twin", "Knows all that you know.", "Be quick.", mode="fork")
ECHO = [lambda request: says(" + ".join(one[-20:] for one in heard(request)))]


def texts(body) -> list[str]:
    return [text for text, _ in blocks_of(body)]


async def test_a_fork_shares_its_callers_prefix_byte_for_byte_and_finds_it_cached(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "AGENTS.md").write_text("Indent with spaces.\n" * 30)
    write_skill(tmp_path / "skills", "surveying", body="Measure twice.\n" * 30)
    todos = [{"content": "Survey", "status": "in_progress"}]
    calls = [
        {"name": "task", "input": {"description": f"part {n}", "subagent_type": "twin"}}
        for n in range(2)
    ]
    answers = [
        Answer(match="part 0", text="report 0"),
        Answer(match="part 1", text="report 1"),
        Answer(tool_calls=[{"name": "write_todos", "input": {"todos": todos}}]),
        Answer(tool_calls=[{"name": "read_file", "input": {"path": "/AGENTS.md"}}]),
        Answer(text="Both.", tool_calls=[*calls, {"name": "ls", "input": {}}]),
        Answer(text="Done."),
    ]
    async with CachingAnthropic(answers) as api, claude(api.url) as model:
        agent = create_deep_agent(
            model,
            subagents=[TWIN],
            backend=DirectoryBackend(root),
            memory=MemoryFiles([root / "AGENTS.md"]),
            skills=SkillRegistry([tmp_path / "skills"]),
        )
        given = {"messages": [HumanMessage("Survey.")], "pinned_skills": ["surveying"]}
        result = await agent.ainvoke(given)
        assert {one.refused for one in api.recorded} == {None}
    assert result.run.answer == "Done."
    assert [one.text.split("\n")[0] for one in told(result)[2:4]] == ["report 0", "report 1"]
    _, _, before, first, second, after = [texts(body) for body in api.requests]
    lookups = api.lookups

    # All that the caller had sent, and its answer, with nothing changed in it.
    assert before == first[: len(before)] == second[: len(before)] == after[: len(before)]
    answered = len(before) + 4  # a text, and three calls
    assert first[:answered] == second[:answered] == after[:answered]
    # The forks share the closed calls too, and differ in the task only.
    assert first[:-1] == second[:-1]
    assert "part 0" in first[-1] or "part 1" in first[-1]
    for found in lookups[3:5]:
        assert found.read >= sum(map(len, before))


async def test_it_has_its_callers_messages_with_open_calls_closed_and_reports_alone():
    model = Cast(
        main=[
            says("", call("0", "write_file", path="/f", content="x")),
            says("Now.", call("1", "ls"), task("2", "look", "twin"), call("3", "ls", path="/")),
            says("ok"),
        ],
        twin=[says("", call("e", "edit_file", path="/f", old_string="x", new_string="y")),
              says("seen")],
    )  # fmt: skip
    result = await family(model, subagents=[TWIN]).ainvoke("the goal")
    asked = model.asked_by("twin")[0]
    assert not pending_tool_calls(asked.messages)
    assert [one.text for one in asked.messages if isinstance(one, AIMessage)] == ["", "Now."]
    assert heard(asked)[0] == "the goal"
    assert heard(asked)[-1].endswith("Be quick.\n\nYour task:\nlook")
    # What its caller had read it need not read again, and what it changed comes back.
    assert result.state["files"]["/f"].content == "y"
    assert told(result)[2].text.startswith("seen\n\n[task_id: ")
    shown = [one.text for one in result.state["messages"]]
    assert not any("made for one task" in one for one in shown)
    assert len(shown) == 1 + 2 + 1 + 3 + 1


async def test_a_fork_does_not_fork_but_may_hand_work_to_others_within_the_depth():
    model = Cast(
        main=[says("", task("1", "look", "twin")), says("ok")],
        twin=[
            says("", task("a", "deeper", "twin"), task("b", "deeper", "helper")),
            lambda request: says(" | ".join(one.text for one in request.messages[-2:])),
        ],
        helper=[says("helped")],
    )
    helper = SubAgent("helper", "Helps.", "You help.")
    agent = family(model, subagents=[TWIN, helper])
    text = told(await agent.ainvoke("go"))[0].text
    assert "a fork does not fork again" in text
    assert "helped" in text
    shallow = await agent.ainvoke("go", options=RunOptions(limits=Limits(depth=1)))
    assert "subagents may be nested 1 deep" in told(shallow)[0].text


async def test_a_fork_goes_on_with_its_own_transcript_also_after_a_restart(tmp_path: Path):
    def build(journal):
        model = Cast(
            main=[
                says("", task("1", "look", "twin")),
                says("one"),
                lambda request: says("", task("2", "again", task_id=handle_in(request))),
                says("two"),
            ],
            twin=ECHO,
        )
        return model, family(model, subagents=[TWIN], checkpointer=journal)

    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        _, agent = build(journal)
        await agent.ainvoke("go", thread_id="t")
    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        model, agent = build(journal)
        result = await agent.ainvoke("more", thread_id="t")
        assert told(result)[1].text.startswith("go + ")
        # What its caller was told meanwhile is not part of it.
        assert heard(model.asked_by("twin")[0])[-1] == "again"
        assert "more" not in heard(model.asked_by("twin")[0])


async def test_a_fork_knows_none_of_its_callers_subagents_by_id():
    model = Cast(
        main=[
            says("", task("1", "first", "helper")),
            says("", task("2", "look", "twin")),
            says("ok"),
        ],
        helper=ECHO,
        twin=[
            lambda request: says("", task("a", "second", task_id=handle_in_history(request))),
            lambda request: says(request.messages[-1].text),
        ],
    )

    def handle_in_history(request):
        return next(
            one.artifact["task_id"]
            for one in request.messages
            if isinstance(getattr(one, "artifact", None), dict)
        )

    helper = SubAgent("helper", "Helps.", "You help.")
    result = await family(model, subagents=[TWIN, helper]).ainvoke("go")
    assert "Known: none." in told(result)[1].text


async def test_the_policy_and_limits_of_a_fork_hold():
    ran = []

    @tool
    async def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return "did"

    model = Cast(
        main=[
            says("", call("0", "act", what="mine")),
            says("", task("1", "x", "twin")),
            says("ok"),
        ],
        twin=[says("", call(f"a{n}", "act", what="its")) for n in range(9)],
    )
    twin = SubAgent(
        "twin", "Twin.", mode="fork", policy=Policy([Rule("deny", "act")]),
        limits=bounds(model_calls=3),
    )  # fmt: skip
    result = await family(model, [act], subagents=[twin]).ainvoke("go")
    assert ran == ["mine"]
    assert "3 model calls allowed" in told(result)[1].text
    assert len(model.asked_by("twin")) == 3


async def test_questions_of_a_fork_carry_its_path_and_resume_in_it(tmp_path: Path):
    starts = []

    def build(journal):
        @tool
        async def act(what: str, runtime: ToolRuntime) -> str:
            """Act."""
            starts.append(runtime.agent_path)
            return what

        model = Cast(
            main=[says("", task("1", "x", "twin"), task("2", "y", "twin")), says("ok")],
            twin=[lambda r: says("", call("a", "act", what=heard(r)[-1][-1])), *ECHO],
        )
        return family(
            model, [act], subagents=[TWIN], checkpointer=journal, interrupt_on={"act": True}
        )

    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        waiting = await build(journal).ainvoke("go")
    assert [one.path for one in waiting.interrupts] == [
        ("main", "1", "twin", "a"), ("main", "2", "twin", "a"),
    ]  # fmt: skip
    for place in (1, 0):
        async with SqliteCheckpointer(tmp_path / "j.db") as journal:
            answers = {waiting.interrupts[place].id: {"decision": "approve"}}
            waiting = await build(journal).aresume(waiting.run.id, answers)
    assert waiting.run.status == "done"
    assert starts == [("main", "2", "twin", "a"), ("main", "1", "twin", "a")]


async def test_what_its_caller_counts_of_its_own_calls_is_not_changed_by_a_fork():
    model = Cast(
        main=[
            says("", task("1", "x", "twin")),
            says("", call("2", "ls")),
            says("ok"),
        ],
        twin=[says("", call("a", "ls")), says("", call("b", "ls")), says("done")],
    )
    limit = ToolCallLimitMiddleware(run_limit=3)
    result = await family(model, subagents=[TWIN], middleware=[limit]).ainvoke("go")
    assert [one.status for one in told(result)] == ["success", "success"]


async def test_a_fork_of_an_agent_that_owes_a_structured_answer_reports_in_words():
    class Verdict(BaseModel):
        good: bool

    model = Cast(
        main=[says("", task("1", "x", "twin")), says("", call("v", "Verdict", good=True))],
        twin=[says("tried it")],
    )
    agent = family(
        model, subagents=[TWIN], response_format=ToolStrategy(Verdict), interrupt_before=["tools"]
    )
    stopped = await agent.ainvoke("go")
    result = await agent.aresume(stopped.run.id)
    assert told(result)[0].text.startswith("tried it")
    assert result.structured_response == Verdict(good=True)


@pytest.mark.parametrize("mode", ["fork", "fresh"])
async def test_a_turn_without_words_is_not_reported_with_those_of_others(mode):
    helper = SubAgent("helper", "Helps.", "You help.", mode=mode)
    model = Cast(
        main=[
            says("The caller's own words.", task("1", "x", "helper")),
            lambda request: says("", task("2", "more", task_id=handle_in(request))),
            says("ok"),
        ],
        helper=[says("first"), says(""), says("")],
    )
    first, second = told(await family(model, subagents=[helper]).ainvoke("go"))
    assert first.text.startswith("first\n")
    assert "did not finish: The model's answer was empty, also when it was asked" in second.text
    assert "What it said until then" not in second.text


async def test_a_fork_sees_the_view_its_caller_sees_after_a_summary():
    turns = iter(
        [
            *(says("", call(f"w{n}", "write_file", path=f"/{n}", content="x")) for n in range(6)),
            says("", task("1", "x", "twin")),
            says("ok"),
        ]
    )
    model = Cast(
        main=[lambda request: next(turns)],
        twin=[says("done")],
        summarization=[says("It wrote files.")],
    )
    sizes = {"trigger": ("messages", 8), "keep": ("messages", 2)}
    profile = Profile(extra_middleware={"SummarizationMiddleware": sizes})
    result = await family(model, subagents=[TWIN], profile=profile).ainvoke("go")
    assert result.run.status == "done"
    before, after = model.asked_by("main")[-2:]
    (fork,) = model.asked_by("twin")
    assert model.asked_by("summarization")
    assert fork.system == before.system
    assert fork.tools == before.tools
    shown = [one.text for one in fork.messages]
    assert shown[: len(before.messages)] == [one.text for one in before.messages]
    assert len(fork.messages) < len(result.state["messages"])
    assert after.system == before.system


async def test_a_driving_client_can_start_a_fork_of_its_thread():
    model = Cast(main=[], twin=ECHO)
    agent = family(model, subagents=[TWIN])
    first = await agent.adrive([call("1", "write_file", path="/f", content="x")])
    second = await agent.adrive([task("2", "look", "twin")], thread_id=first.run.thread_id)
    assert second.results[0].status == "success"
    (asked,) = model.asked_by("twin")
    assert not pending_tool_calls(asked.messages)
