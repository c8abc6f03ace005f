"""Policies from plain data: the same rules as in TOML, errors name the source and the rule."""

import tomllib

import pytest

from deep_agent_mcp.harness.policy import Policy, PolicyError

SOURCE = "agents/reader.md"
TEXT = """
[[rule]]
action = "deny"
path = ["/secret/**", "**/*.key"]
reason = "keep out"

[[rule]]
action = "ask"
tool = "deploy"
args = { "target.name" = "prod*", note = { regex = "(?i)now" }, count = 3 }
destructive = true
"""


def test_plain_data_means_what_the_same_tables_mean_in_a_file():
    data = tomllib.loads(TEXT)["rule"]
    assert Policy.from_rules(data, SOURCE) == Policy.parse(TEXT, SOURCE)


def test_reasons_name_the_source():
    policy = Policy.from_rules([{"action": "deny", "tool": "rm"}], SOURCE, default="ask")
    assert policy.judge("rm", {}).reason == f"rule 1 of {SOURCE}"
    assert policy.judge("ls", {}).reason == f"{SOURCE}'s default"
    assert Policy.from_rules([], SOURCE).judge("ls", {}).action == "allow"


RECURSIVE: dict = {}
RECURSIVE["x"] = RECURSIVE


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("deny", f"{SOURCE}: rules must be a list of tables; got 'deny'."),
        (None, f"{SOURCE}: rules must be a list of tables; got None."),
        ({"action": "deny"}, "list of tables"),
        (["deny"], "list of tables"),
        ([{"action": "deny"}, {"acton": "deny"}], f"{SOURCE}: rule 2: unknown key 'acton'; did"),
        ([{1: 2}], "rule 1: unknown key 1"),
        ([{"tool": "x"}], "rule 1: the rule has no action"),
        ([{"action": ["deny"]}], "rule 1: action = ['deny'] is not one of"),
        ([{"action": "deny", "path": "x"}], "rule 1: path 'x' must start with /"),
        ([{"action": "deny", "tool": {}}], "rule 1: tool must be a text"),
        ([{"action": "deny", "reason": 1}], "rule 1: reason must be a text"),
        ([{"action": "deny", "source": "x"}], "rule 1: unknown key 'source'"),
        ([{"action": "deny", "args": {1: None}}], "rule 1: args.1 must be a glob"),
        ([{"action": "deny", "args": RECURSIVE}], "rule 1: args is nested too deeply"),
        ([{"action": "allow", "command": "bash"}], "rule 1: command 'bash' would allow everything"),
        ([{"action": "x" * 9_999}], "x…"),
    ],
)
def test_what_is_wrong_is_said_with_its_rule(data, words: str):
    with pytest.raises(PolicyError) as caught:
        Policy.from_rules(data, SOURCE)
    message = str(caught.value)
    assert message.startswith(f"{SOURCE}: ")
    assert words in message
    assert len(message) < 1_000


def test_a_wrong_default_is_said_with_the_source():
    with pytest.raises(PolicyError, match=f"{SOURCE}: default = 'no' is not one of"):
        Policy.from_rules([], SOURCE, default="no")  # type: ignore[arg-type]
