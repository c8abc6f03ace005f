"""Bounds of one subagent beneath those of the run tree."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.limits.carried_limits import ChildMeter, bounds
from deep_agent_mcp.harness.limits.limits import LimitReached, Limits, Meter, Used
from deep_agent_mcp.harness.limits.prices import Price
from deep_agent_mcp.harness.messages.message import HumanMessage, Usage
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.ports_and_waits import growing
from tests.subagents.family import Cast, family, handle_in, task, told

pytestmark = pytest.mark.anyio


@tool
async def step() -> str:
    """Do a step."""
    return "did"


def working(number: int):
    message = says("", call(f"s{number}", "step"))
    return type(message)(message.content, usage=Usage(input_tokens=90, output_tokens=10))


WORK = [working(n) for n in range(30)]


def obeying(number: int):
    return lambda request: says("early") if request.tool_choice == "none" else working(number)


def helper(**limits) -> SubAgent:
    return SubAgent("helper", "Helps.", "You help.", limits=bounds(**limits))


BOUNDS = [
    ({"model_calls": 3}, "model_calls", 3),
    ({"tool_calls": 2}, "tool_calls", 3),
    ({"tokens": 330}, "tokens", 4),
    ({"cost": 3.3, "prices": {"turns:test": Price(input=0, output=100_000)}}, "cost", 4),
]


@pytest.mark.parametrize(("limits", "name", "calls"), BOUNDS, ids=[one[1] for one in BOUNDS])
async def test_a_subagent_that_goes_on_past_its_bound_ends_with_a_result_that_names_it(
    limits, name, calls
):
    model = Cast(main=[says("", task("1", "work", "helper")), says("made do")], helper=WORK)
    result = await family(model, [step], subagents=[helper(**limits)]).ainvoke("go")
    (answer,) = told(result)
    assert answer.status == "error"
    words = name.replace("_", " ") if name != "cost" else "US dollars"
    assert "did not finish: limit: " in answer.text
    assert f"{words} allowed" in answer.text
    assert "for one task of this subagent" in answer.text
    assert answer.artifact["failed"]["kind"] == name
    assert len(model.asked_by("helper")) == calls
    assert (result.run.status, result.run.answer) == ("done", "made do")
    assert result.used.children == {}


@pytest.mark.parametrize(("limits", "name", "calls"), BOUNDS, ids=[one[1] for one in BOUNDS])
async def test_near_its_bound_a_subagent_sums_up_and_its_result_says_why(limits, name, calls):
    turns = [obeying(n) for n in range(30)]
    model = Cast(main=[says("", task("1", "work", "helper")), says("ok")], helper=turns)
    result = await family(model, [step], subagents=[helper(**limits)]).ainvoke("go")
    (answer,) = told(result)
    assert answer.status == "success"
    assert answer.text.startswith("early\n\n[It was asked to finish early: ")
    assert "task" in answer.artifact["wrapped_up"]
    assert len(model.asked_by("helper")) <= calls
    (told_so,) = [
        one.text for one in model.asked_by("helper")[-1].messages
        if isinstance(one, HumanMessage) and one.source == "limits"
    ]  # fmt: skip
    assert "of this task" in told_so or "the task's" in told_so or "this task's" in told_so


async def test_a_subagent_is_stopped_in_the_middle_of_a_call_when_its_time_is_over():
    started = False

    @tool
    async def hang() -> str:
        """Hang."""
        nonlocal started
        started = True
        await anyio.sleep_forever()
        return "never"

    model = Cast(
        main=[says("", task("1", "work", "helper"), task("2", "work", "general-purpose")),
              says("ok")],
        helper=[says("", call("h", "hang"))],
        general_purpose=[says("fine")],
    )  # fmt: skip
    for seconds in growing(0.2):
        with anyio.fail_after(60 + seconds):
            hasty = helper(seconds=seconds)
            result = await family(model, [hang], subagents=[hasty]).ainvoke("go")
        if started:
            break
    assert started
    first, second = told(result)
    assert f"{seconds} seconds allowed" in first.text
    assert second.text.startswith("fine")
    assert result.run.status == "done"


async def test_parallel_tasks_of_one_subagent_have_a_budget_each():
    turns = [*WORK[:2], says("report")]
    calls = [task(str(n), "work", "helper") for n in range(3)]
    model = Cast(main=[says("", *calls), says("ok")], helper=turns)
    result = await family(model, [step], subagents=[helper(model_calls=4)]).ainvoke("go")
    assert [one.text.split("\n")[0] for one in told(result)] == ["report"] * 3


async def test_the_bounds_of_the_tree_hold_for_a_subagent_with_wider_ones():
    model = Cast(main=[says("", task("1", "work", "helper")), says("made do")], helper=WORK)
    agent = family(model, [step], subagents=[helper(model_calls=100)])
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=5)))
    assert result.used.model_calls == 5
    assert result.run.answer == "made do"


async def test_a_task_that_goes_on_has_a_budget_of_its_own():
    model = Cast(
        main=[
            says("", task("1", "work", "helper")),
            lambda request: says("", task("2", "more", task_id=handle_in(request))),
            says("ok"),
        ],
        helper=WORK,
    )
    result = await family(model, [step], subagents=[helper(model_calls=2)]).ainvoke("go")
    first, second = told(result)
    assert "2 model calls allowed, 2 used" in first.text
    assert "2 model calls allowed, 2 used" in second.text
    assert len(model.asked_by("helper")) == 4


async def test_what_was_used_before_a_pause_counts_in_another_process(tmp_path):
    @tool
    async def ask_first(question: str) -> str:
        """Ask."""
        return question

    def build(journal):
        model = Cast(
            main=[says("", task("1", "work", "helper")), says("ok")],
            helper=[WORK[0], WORK[1], says("", call("q", "ask_first", question="?")), *WORK[3:]],
        )
        agent = family(
            model, [step, ask_first], subagents=[helper(model_calls=5)], checkpointer=journal,
            interrupt_on={"ask_first": True},
        )  # fmt: skip
        return model, agent

    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        _, agent = build(journal)
        waiting = await agent.ainvoke("go")
        ((ns, used),) = waiting.used.children.items()
        assert ns.startswith("task:1@")
        assert (used.model_calls, used.tool_calls) == (3, 2)
    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        model, agent = build(journal)
        answers = {one.id: {"decision": "approve"} for one in waiting.interrupts}
        result = await agent.aresume(waiting.run.id, answers)
        assert len(model.asked_by("helper")) == 2
        assert "5 model calls allowed, 5 used" in told(result)[0].text
        assert result.used.children == {}


# --- the meter itself -----------------------------------------------------------------------


def test_a_call_that_the_tree_refuses_counts_for_nobody():
    tree = Meter(Limits(tool_calls=1))
    child = ChildMeter(bounds(tool_calls=5), tree, "a", 1)
    child.before_tool_call()
    with pytest.raises(LimitReached) as raised:
        child.before_tool_call()
    assert raised.value.ns is None
    assert (tree.tool_calls, child.tool_calls) == (1, 1)


def test_own_bounds_name_the_subagent_and_use_nothing_of_the_tree():
    tree = Meter(Limits())
    child = ChildMeter(bounds(model_calls=1, depth=0), tree, "a", 1)
    child.before_model_call("m", 1)
    with pytest.raises(LimitReached) as raised:
        child.before_model_call("m", 1)
    assert (raised.value.limit, raised.value.ns) == ("model_calls", "a")
    assert tree.model_calls == 1
    with pytest.raises(LimitReached, match="nested 0 deep"):
        child.before_subagents(1, 2)


def test_a_child_below_a_child_counts_for_all_above_it_and_keeps_a_turn_for_them():
    tree = Meter(Limits())
    outer = ChildMeter(bounds(model_calls=3), tree, "a", 1)
    inner = ChildMeter(bounds(tokens=1_000), outer, "a/b", 2)
    inner.before_model_call("m", 2)
    inner.add(Usage(input_tokens=10), "m")
    assert (tree.tokens, outer.tokens, inner.tokens) == (10, 10, 10)
    inner.before_model_call("m", 2)
    reached = inner.reached(2)
    assert reached is not None
    assert reached.ns == "a"
    assert inner.remaining().model_calls == 1
    used = Used.from_json(tree.used().to_json())
    assert used.children["a"].children["a/b"].tokens == 10
    again = ChildMeter(bounds(model_calls=3), Meter(Limits(), used), "a", 1)
    assert again.model_calls == 2
    assert again.left_by("a/b") is not None


async def test_that_it_was_told_to_finish_is_known_in_another_process_too(tmp_path):
    @tool
    async def risk() -> str:
        """Risk."""
        return "did"

    def build(journal):
        model = Cast(
            main=[says("", task("1", "work", "helper")), says("ok")],
            helper=[WORK[0], says("wait", call("r", "risk")), says("early")],
        )
        return family(
            model, [step, risk], subagents=[helper(model_calls=4, tool_calls=1)],
            checkpointer=journal, interrupt_on={"risk": True},
        )  # fmt: skip

    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        waiting = await build(journal).ainvoke("go")
        assert waiting.run.status == "needs_approval"
    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        answers = {one.id: {"decision": "reject"} for one in waiting.interrupts}
        result = await build(journal).aresume(waiting.run.id, answers)
    assert told(result)[0].text.startswith(
        "early\n\n[It was asked to finish early: All 1 tool call"
    )


async def test_functions_count_as_subagents_that_one_answer_starts():
    ran = []
    counter = CompiledSubAgent("counter", "Counts.", lambda text: ran.append(text) or "counted")
    calls = [task(str(at), f"text {at}", "counter") for at in range(2)]
    model = Cast(main=[says("", *calls, task("2", "more", "helper")), says("ok")], helper=WORK)
    agent = family(model, subagents=[counter, helper()], limits=Limits(fan_out=1))
    answers = told(await agent.ainvoke("go"))
    assert [one.status for one in answers] == ["success", "error", "error"]
    assert ran == ["text 0"]
    assert all("may start 1 subagents" in one.text for one in answers[1:])


async def test_a_function_is_not_run_where_no_subagents_may_be():
    counter = CompiledSubAgent("counter", "Counts.", lambda text: "counted")
    model = Cast(main=[says("", task("1", "text", "counter")), says("ok")])
    result = await family(model, subagents=[counter], limits=Limits(depth=0)).ainvoke("go")
    assert "nested 0 deep" in told(result)[0].text
