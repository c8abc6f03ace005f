"""Subagent files and their registry."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.definitions.confined_files import ConfinedFiles
from deep_agent_mcp.harness.limits.carried_limits import bounds
from deep_agent_mcp.harness.policy import Policy
from deep_agent_mcp.harness.subagents.definitions import GENERAL_PURPOSE, SubAgent
from deep_agent_mcp.harness.subagents.registry import (
    SubAgentRegistry,
    UnknownSubAgent,
    load_subagent,
)

GOOD = "---\nname: critic\ndescription: Finds faults.\n---\n\nYou find faults.\n"


def write(directory: Path, file: str, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / file
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_describes_a_subagent(tmp_path: Path):
    text = GOOD.replace(
        "faults.\n---", "faults.\ntools: [read_file, grep]\nmodel: m:x\nskills: a, b\n---"
    )
    assert load_subagent(write(tmp_path, "critic.md", text), ConfinedFiles()) == SubAgent(
        name="critic",
        description="Finds faults.",
        system_prompt="You find faults.",
        tools=("read_file", "grep"),
        model="m:x",
        skills=("a", "b"),
    )


def test_what_is_left_out_is_inherited(tmp_path: Path):
    agent = load_subagent(write(tmp_path, "critic.md", GOOD), ConfinedFiles())
    assert (agent.tools, agent.model, agent.skills) == (None, None, None)
    none = GOOD.replace("faults.\n---", "faults.\ntools: []\nmodel: inherit\n---")
    agent = load_subagent(write(tmp_path, "critic.md", none), ConfinedFiles())
    assert (agent.tools, agent.model) == ((), None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("name:", "color: red\nname:").replace("\n---", "\nx: 1\n---", 2), "'color'"),
        (GOOD.replace("critic", "Critic"), "a-z, 0-9"),
        (GOOD.replace("You find faults.", ""), "no system prompt"),
        (GOOD.replace("description: Finds faults.\n", ""), "'description' is missing"),
        (GOOD.replace("faults.\n---", "faults.\ntools: {a: b}\n---"), "list of names"),
        (GOOD.replace("faults.\n---", "faults.\nmodel: 3\n---"), "must be text"),
    ],
)
def test_a_broken_rule_is_an_error_that_names_file_and_rule(tmp_path: Path, text: str, words: str):
    path = write(tmp_path, "critic.md", text)
    registry = SubAgentRegistry(tmp_path)
    assert list(registry.subagents) == ["general-purpose"]
    assert words in registry.errors[str(path)]
    assert registry.errors[str(path)].startswith(str(path))


def test_an_unknown_key_is_refused_with_those_that_are_allowed(tmp_path: Path):
    path = write(tmp_path, "critic.md", GOOD.replace("name:", "color: red\nname:"))
    error = SubAgentRegistry(tmp_path).errors[str(path)]
    assert "critic.md:2: unknown key 'color'; allowed are name, description, tools" in error


def test_general_purpose_is_there_without_files_and_can_be_replaced(tmp_path: Path):
    assert SubAgentRegistry(None).get("general-purpose") is GENERAL_PURPOSE
    assert not SubAgentRegistry(None, builtin=()).subagents
    registry = SubAgentRegistry(tmp_path / "later")
    assert not registry.errors
    write(tmp_path / "later", "own.md", GOOD.replace("critic", "general-purpose"))
    assert registry.reload()
    assert registry.get("general-purpose").description == "Finds faults."


def test_a_broken_file_keeps_its_last_good_version(tmp_path: Path):
    path = write(tmp_path, "critic.md", GOOD)
    registry = SubAgentRegistry(tmp_path)
    path.write_text("oops")
    assert registry.reload()
    assert registry.get("critic").system_prompt == "You find faults."
    assert registry.errors
    path.unlink()
    assert registry.reload()
    assert list(registry.subagents) == ["general-purpose"]
    assert not registry.errors
    assert registry.version == 3


def test_two_files_of_one_name_are_an_error_not_a_lottery(tmp_path: Path):
    write(tmp_path, "a.md", GOOD)
    second = write(tmp_path, "b.md", GOOD.replace("You find", "I find"))
    registry = SubAgentRegistry(tmp_path)
    assert registry.get("critic").system_prompt == "You find faults."
    assert "already taken" in registry.errors[str(second)]


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path):
    with pytest.raises(UnknownSubAgent, match="Did you mean 'general-purpose'"):
        SubAgentRegistry(None).get("general")


def with_fields(*lines: str) -> str:
    return GOOD.replace("faults.\n---", "\n".join(["faults.", *lines, "---"]))


def test_a_file_states_limits_permissions_and_mode(tmp_path: Path):
    text = with_fields(
        "limits:",
        "  tokens: 5000",
        "  seconds: 1.5",
        "  depth: 0",
        "permissions:",
        "  - action: deny",
        "    tool: write_file",
        "    path: /docs/**",
        "  - {action: ask, tool: execute}",
        "mode: fork",
    )
    critic = load_subagent(write(tmp_path, "critic.md", text), ConfinedFiles())
    assert critic.limits == bounds(tokens=5_000, seconds=1.5, depth=0)
    assert critic.limits is not None
    assert critic.limits.model_calls > 10**9
    assert critic.mode == "fork"
    assert isinstance(critic.policy, Policy)
    assert [(one.action, one.tool) for one in critic.policy.rules] == [
        ("deny", "write_file"), ("ask", "execute"),
    ]  # fmt: skip
    assert load_subagent(tmp_path / "critic.md", ConfinedFiles()).digest == critic.digest


def test_the_body_of_a_fork_may_be_empty(tmp_path: Path):
    text = with_fields("mode: fork").replace("You find faults.", "")
    assert load_subagent(write(tmp_path, "critic.md", text), ConfinedFiles()).system_prompt == ""


@pytest.mark.parametrize(
    ("lines", "at", "words"),
    [
        (["limits:", "  tokens: 5", "  token: 5"], 6, "unknown limit 'token'; allowed are model_"),
        (["limits:", "  tokens: 0"], 5, "'tokens' must be a whole number, 1 or more; got 0"),
        (["limits:", "  tokens: true"], 5, "must be a whole number"),
        (["limits:", "  model_calls: 2.5"], 5, "must be a whole number"),
        (["limits:", "  seconds: soon"], 5, "must be a number above 0; got 'soon'"),
        (["limits:", "  depth: -1"], 5, "a whole number, 0 or more; got -1"),
        (["limits: 5"], 4, "must map names to numbers; allowed are"),
        (["limits: {}"], 4, "must map names to numbers"),
        (["permissions: deny"], 4, "must be a list of rules"),
        (["permissions:", "  - {action: never, tool: x}"], 5, "rule 1"),
        (["permissions:", "  - action: deny", "    tool: x", "  - tool: y"], 7, "rule 2"),
        (["model: scripted:/dev/zero"], 4, "would open a file that the definition names"),
        (["model: ' scripted:a.yaml'"], 4, "Use a model's id or 'inherit'"),
        (["mode: forked"], 4, "'mode' must be fresh or fork, not 'forked'"),
        (["mode: fork", "tools: [ls]"], 4, "shares tools with its caller"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_file_line_and_what_is_accepted(
    tmp_path: Path, lines: list[str], at: int, words: str
):
    path = write(tmp_path, "critic.md", with_fields(*lines))
    error = SubAgentRegistry(tmp_path).errors[str(path)]
    assert error.startswith(f"{path}:{at}: ")
    assert words in error
