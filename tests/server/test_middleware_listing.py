"""`deep-agent-mcp middleware`: what the agent of a server is made of."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.hooks.middleware import HOOKS, AgentMiddleware
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import (
    HumanInTheLoopMiddleware,
    PatchToolCallsMiddleware,
)
from deep_agent_mcp.harness.middleware.tools.tool_results import ToolRetryMiddleware
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.cli.middleware import list_middleware


def run(*args: str, **env: str) -> str:
    done = CliRunner().invoke(cli, ["middleware", *args], env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_middleware_is_listed_in_order_with_hooks_tools_and_settings(tmp_path: Path) -> None:
    rows = json.loads(run("--json", "--root", str(tmp_path)))["middleware"]
    names = [row["name"] for row in rows]
    assert names.index("SummarizationMiddleware") < names.index("TodoListMiddleware")
    assert names[-1] == "PromptCachingMiddleware"
    files = rows[names.index("FilesystemMiddleware")]
    assert files["tools"][:2] == ["ls", "read_file"]
    assert "wrap_model_call" in files["hooks"]
    guard = rows[names.index("RepeatGuardMiddleware")]
    assert guard["settings"] == {"nudge_after": 3, "stop_after": 5, "ignore": []}


def test_every_hook_that_the_loop_calls_is_listed_one_of_an_instance_too() -> None:
    class Everything(AgentMiddleware):
        pass

    for hook in HOOKS:
        if hook != "wrap_tool_call":
            setattr(Everything, hook, _hook(hook))
    every = Everything()
    every.wrap_tool_call = _wrap  # type: ignore[method-assign]
    answer = list_middleware(create_agent(ScriptedModel([]), middleware=[every]))
    (row,) = cast("list[dict[str, list[str]]]", answer.data["middleware"])
    assert row["hooks"] == [*HOOKS]


async def _wrap(request: Any, handler: Any) -> Any:
    return await handler(request)


def _hook(name: str) -> Any:
    if name == "judge":
        return lambda self, request: None
    if name in ("redact", "evict"):

        async def kept(self: Any, request: Any, outcome: Any) -> Any:
            return outcome

        return kept
    if name.startswith("wrap"):

        async def wrap(self: Any, request: Any, handler: Any) -> Any:
            return await handler(request)

        return wrap
    return lambda self, state, runtime: None


def test_settings_are_told_also_where_a_middleware_keeps_them_in_another_form() -> None:
    def beside(tool_call: object, state: object, runtime: object) -> str:
        return "Look twice."

    middleware = [
        PIIMiddleware("email", strategy="hash", salt="pepper", apply_to_output=True),
        ToolRetryMiddleware(max_retries=7, tools=["fetch"]),
        ModelFallbackMiddleware(ScriptedModel([]), cool_down=5),
        HumanInTheLoopMiddleware({"pay": InterruptOnConfig(["approve"], beside), "look": False}),
    ]
    answer = list_middleware(create_agent(ScriptedModel([]), middleware=middleware))
    rows = cast("list[dict[str, Any]]", answer.data["middleware"])
    pii, retry, fallback, people = (row["settings"] for row in rows)
    assert (pii["pii_type"], pii["strategy"], pii["salt"]) == ("email", "hash", "…")
    assert (pii["apply_to_input"], pii["apply_to_output"]) == (True, True)
    assert "pepper" not in json.dumps(answer.data) + answer.text
    assert (retry["max_retries"], retry["jitter"]) == (7, True)
    assert (fallback["first_model"], fallback["cool_down"]) == (ScriptedModel([]).name, 5)
    assert "clock" not in fallback
    assert people["interrupt_on"]["look"] is False
    assert people["interrupt_on"]["pay"]["allowed_decisions"] == ["approve"]
    assert people["interrupt_on"]["pay"]["description"] == "beside"


def test_a_middleware_without_options_takes_none() -> None:
    with pytest.raises(TypeError, match=r"PatchToolCallsMiddleware\(\) takes no arguments"):
        PatchToolCallsMiddleware(7)  # type: ignore[call-arg]
    answer = list_middleware(
        create_agent(ScriptedModel([]), middleware=[PatchToolCallsMiddleware()])
    )
    (row,) = cast("list[dict[str, Any]]", answer.data["middleware"])
    assert row["settings"] == {}


def test_numbers_are_told_whatever_their_names() -> None:
    assert "max_summary_tokens=4000" in run()


def test_the_text_says_the_same_in_short() -> None:
    text = run()
    assert "HumanInTheLoopMiddleware" not in text
    assert "tools: ls, read_file, write_file" in text
    assert "nudge_after=3, stop_after=5" in text
    assert max(map(len, text.splitlines())) < 1_000


def test_settings_decide_what_is_active(tmp_path: Path) -> None:
    asking = run("--approve", "write_*")
    assert "interrupt_on={'write_*': True}" in asking
    config = tmp_path / "config.toml"
    config.write_text('approve = ["edit_file"]\n')
    assert "HumanInTheLoopMiddleware" in run("--config", str(config))


def test_a_wrong_setting_is_named() -> None:
    done = CliRunner().invoke(cli, ["middleware", "--root", "/no/such/place"])
    assert done.exit_code == 2
    assert "/no/such/place" in done.output


def test_nothing_is_made_on_disk(tmp_path: Path) -> None:
    run(HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "data"))
    assert list(tmp_path.iterdir()) == []
