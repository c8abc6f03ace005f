from typing import Any, cast

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, InvalidAnswer
from deep_agent_mcp.harness.loop.hooks.requests import ToolCallRequest
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.loop.run_executor import RunResult
from deep_agent_mcp.harness.messages.message import ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.policy import ALL_DECISIONS, Verdict
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says


def request(name: str, **args: Any) -> ToolCallRequest:
    # A judge sees the call alone: nothing of the run may sway it.
    return ToolCallRequest(ToolCall("c", name, args), None, cast(ToolRuntime, None))


def judge(interrupt_on: dict[str, bool | InterruptOnConfig], name: str, **args: Any) -> Any:
    return HumanInTheLoopMiddleware(interrupt_on).judge(request(name, **args))


def test_true_asks_with_every_decision() -> None:
    verdict = judge({"write_file": True}, "write_file")
    assert verdict == Verdict("ask", verdict.reason, ALL_DECISIONS)
    assert "write_file" in verdict.reason


def test_false_and_unnamed_tools_pass() -> None:
    assert judge({"ls": False}, "ls") is None
    assert judge({"write_file": True}, "read_file") is None


def test_globs_match_and_exact_names_go_first() -> None:
    rules: dict[str, bool | InterruptOnConfig] = {"*": True, "write_*": False, "ls": False}
    assert judge(rules, "ls") is None
    assert judge(rules, "execute").action == "ask"
    assert judge({"write_*": False, "*": True}, "write_file") is None
    assert judge(rules, "write_file").action == "ask"


def test_an_edited_call_is_judged_by_its_own_rule() -> None:
    middleware = HumanInTheLoopMiddleware(
        {"read_file": True, "delete": InterruptOnConfig(("reject",))}
    )
    original = request("read_file")
    edited = original.override(call=ToolCall("c", "delete"))
    verdict = middleware.judge(edited)
    assert verdict is not None
    assert verdict.decisions == ("reject",)


def test_a_predicate_decides_by_arguments() -> None:
    config = InterruptOnConfig(when=lambda one: one.call.args.get("path") == "/etc/passwd")
    assert judge({"write_file": config}, "write_file", path="/tmp/x") is None
    assert judge({"write_file": config}, "write_file", path="/etc/passwd").action == "ask"


def test_descriptions_are_texts_or_functions_of_the_call() -> None:
    fixed = InterruptOnConfig(description="Careful")
    assert judge({"rm": fixed}, "rm").reason == "Careful"
    made = InterruptOnConfig(description=lambda one: f"Delete {one.call.args['path']}?")
    assert judge({"rm": made}, "rm", path="/a").reason == "Delete /a?"
    middleware = HumanInTheLoopMiddleware({"rm": True}, description_prefix="Please look")
    verdict = middleware.judge(request("rm"))
    assert verdict is not None
    assert verdict.reason == "Please look: rm"


async def _later(_: ToolCallRequest) -> bool:
    return True


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (InterruptOnConfig(()), "allows no decision"),
        (InterruptOnConfig(cast(Any, ("aprove",))), "aprove"),
        (InterruptOnConfig(cast(Any, "approve")), r"write \['approve'\]"),
        (InterruptOnConfig(when=cast(Any, _later)), "not async"),
        ({"allowed_decisions": ["approve"]}, "dict"),
        (1, "int"),
    ],
)
def test_a_wrong_config_is_refused_when_the_agent_is_built(value: Any, message: str) -> None:
    with pytest.raises(AgentBuildError, match=message) as raised:
        HumanInTheLoopMiddleware({"rm": value})
    assert "rm" in str(raised.value)


def test_an_empty_tool_name_is_refused() -> None:
    with pytest.raises(AgentBuildError, match="tool name"):
        HumanInTheLoopMiddleware({"": True})


@tool
def send(place: str, count: int = 1) -> str:
    """Send."""
    return f"sent {count} to {place}"


@tool
def post(text: str) -> str:
    """Post."""
    return f"posted {text}"


async def asked(*calls: ToolCall, **options: Any) -> tuple[Agent, Turns, RunResult]:
    model = Turns(says("", *calls), says("done"))
    middleware = HumanInTheLoopMiddleware({"*": True}, **options)
    agent = create_agent(model, [send, post], middleware=[middleware])
    return agent, model, await agent.ainvoke("go")


def answered(model: Turns) -> list[str]:
    return [one.text for one in model.requests[-1].messages if isinstance(one, ToolMessage)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("notice", "text"),
    [
        (None, "Note: a person edited this call before it ran. It ran as send("),
        ("Changed to {call}!", 'Changed to send({"place": "b"})!\nsent 1 to b'),
        ("", "sent 1 to b"),
    ],
)
async def test_the_notice_of_an_edit_can_be_worded_or_left_out(
    notice: str | None, text: str
) -> None:
    agent, model, result = await asked(call("1", "send", place="a"), edit_notice=notice)
    (question,) = result.interrupts
    edit = {"decision": "edit", "args": {"place": "b"}}
    await agent.aresume(result.run.id, {question.id: edit})
    assert answered(model)[0].startswith(text)


@pytest.mark.anyio
async def test_an_edit_that_the_tool_could_not_take_is_refused_before_it_is_stored() -> None:
    agent, model, result = await asked(call("1", "send", place="a"))
    (question,) = result.interrupts
    for args in ({}, {"place": "b", "count": "many"}, {"place": "b", "why": "x"}):
        with pytest.raises(InvalidAnswer, match="Nothing was stored"):
            await agent.aresume(result.run.id, {question.id: {"decision": "edit", "args": args}})
    assert len(model.requests) == 1
    edit = {"decision": "edit", "args": {"place": "b", "count": 2}}
    await agent.aresume(result.run.id, {question.id: edit})
    assert answered(model)[0].endswith("sent 2 to b")


@pytest.mark.anyio
async def test_an_edit_into_another_tool_is_not_held_to_the_first_ones_arguments() -> None:
    agent, model, result = await asked(call("1", "send", place="a"))
    (question,) = result.interrupts
    edit = {"decision": "edit", "tool": "post", "args": {"text": "hi"}}
    result = await agent.aresume(result.run.id, {question.id: edit})
    (again,) = result.interrupts
    await agent.aresume(result.run.id, {again.id: {"decision": "approve"}})
    assert answered(model)[0].endswith("posted hi")


@pytest.mark.anyio
async def test_calls_of_one_answer_are_asked_at_once_and_answered_in_any_order() -> None:
    calls = [call(str(n), "send", place=place) for n, place in enumerate("abcd")]
    agent, model, result = await asked(*calls)
    assert [one.payload["args"] for one in result.interrupts] == [one.args for one in calls]
    a, b, c, d = (one.id for one in result.interrupts)
    result = await agent.aresume(result.run.id, {c: {"decision": "respond", "message": "no need"}})
    assert [one.id for one in result.interrupts] == [a, b, d]
    await agent.aresume(
        result.run.id,
        {
            d: {"decision": "reject", "message": "too far"},
            b: {"decision": "edit", "args": {"place": "B"}},
            a: {"decision": "approve"},
        },
    )
    first, second, third, fourth = answered(model)
    assert (first, third) == ("sent 1 to a", "no need")
    assert second.endswith("\nsent 1 to B") and "too far" in fourth
