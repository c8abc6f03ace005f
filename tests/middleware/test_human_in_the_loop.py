from typing import Any, cast

import pytest

from harness.errors import AgentBuildError
from harness.loop.requests import ToolCallRequest
from harness.messages import ToolCall
from harness.middleware.human_in_the_loop import HumanInTheLoopMiddleware, InterruptOnConfig
from harness.policy import ALL_DECISIONS, Verdict
from harness.tools import ToolRuntime


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
    middleware = HumanInTheLoopMiddleware({"rm": True}, description="Please look")
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
