"""The example of a policy does what its comments say."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.policy import Policy

EXAMPLE = Policy.from_toml(Path(__file__).parents[1] / "examples" / "policy.toml")
TOOLS = create_deep_agent(ScriptedModel([])).definition.tools


@pytest.mark.parametrize(
    ("tool", "args", "action"),
    [
        ("read_file", {"path": "/docs/a"}, "allow"),
        ("read_file", {"path": "/app/.env"}, "deny"),
        ("write_file", {"path": "/docs/a"}, "allow"),
        ("write_file", {"path": "/a"}, "ask"),
        ("execute", {"command": "git status && ls"}, "allow"),
        ("execute", {"command": "git status && git push"}, "deny"),
        ("execute", {"command": "make"}, "ask"),
        ("task", {"subagent_type": "deployer"}, "deny"),
    ],
)
def test_the_example_policy(tool: str, args: dict, action: str) -> None:
    verdict = EXAMPLE.judge(tool, args, TOOLS.get(tool), agent=("main",))
    assert verdict.action == action
