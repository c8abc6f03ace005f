"""One list of rules for every kind of call; each verdict names the rule it comes from."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import with_workspace
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.run_executor import RunOptions, RunResult
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware import ShellToolMiddleware
from deep_agent_mcp.harness.policy import PolicyFiles
from deep_agent_mcp.harness.shell import BubblewrapExecutionPolicy
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import raw_server
from tests.shell.support import need_bubblewrap

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]

CALLS = {
    "a file tool": call("1", "write_file", path="/workspace/kept/a", content="x"),
    "execute": call("2", "execute", command="echo; echo pushed"),
    "the shell": call("3", "shell", command="echo; echo pushed"),
    "task": call("4", "task", description="go", subagent_type="general-purpose"),
    "a tool of an MCP server": call("5", "raw_echo", text="x"),
}
CONDITIONS = (
    'tool = "write_file"\npath = "/workspace/kept/**"',
    'tool = "execute"\ncommand = "echo pushed"',
    'tool = "shell"\ncommand = "echo pushed"',
    'tool = "task"\nargs = { subagent_type = "general-*" }',
    'server = "raw"\ntool = "*_echo"',
)


async def done(place: Path, action: str, principal: str) -> RunResult:
    """Return a run of all calls under one rule for each, which are about the guest alone."""
    need_bubblewrap()
    (place / "policy.toml").write_text(
        "\n".join(
            f'[[rule]]\naction = "{action}"\nprincipal = "guest"\n{one}\n' for one in CONDITIONS
        )
    )
    (place / "root").mkdir()
    backend = with_workspace(DirectoryBackend(place / "root"), confined=True)
    model = Turns(
        lambda asked: says("", *CALLS.values()) if asked.agent == "main" else says("done"),
        says("done"),
    )
    agent = create_deep_agent(
        model,
        backend=backend,
        policy=PolicyFiles([place / "policy.toml"]),
        execution_policy=BubblewrapExecutionPolicy(),
        middleware=[ShellToolMiddleware(backend=backend)],
        mcp_servers={"raw": raw_server()},
    )
    try:
        return await agent.ainvoke("go", options=RunOptions(principal=principal))
    finally:
        await agent.aclose()


def results(run: RunResult) -> Mapping[str, ToolMessage]:
    found = {one.tool_call_id: one for one in run.state["messages"] if isinstance(one, ToolMessage)}
    return {kind: found[made.id] for kind, made in CALLS.items()}


async def test_every_kind_of_call_is_refused_by_its_rule_and_says_by_which(tmp_path: Path) -> None:
    made = results(await done(tmp_path, "deny", "guest"))
    for number, (kind, result) in enumerate(made.items(), start=1):
        assert result.status == "error", kind
        assert f"rule {number} of policy.toml" in result.text, kind
    assert not [*(tmp_path / "root").iterdir()]


async def test_a_person_is_asked_about_every_kind_and_told_which_rule_asks(tmp_path: Path) -> None:
    asked = await done(tmp_path, "ask", "guest")
    told = [str(one) for one in asked.interrupts]
    assert len(told) == len(CALLS)
    for number, text in enumerate(told, start=1):
        assert f"rule {number} of policy.toml" in text


async def test_rules_about_a_principal_leave_others_alone(tmp_path: Path) -> None:
    made = results(await done(tmp_path, "deny", "owner"))
    assert {kind: one.status for kind, one in made.items()} == dict.fromkeys(CALLS, "success")
