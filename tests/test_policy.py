"""Rules: the first match decides, the strictest judge holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from deep_agent_mcp.harness.mcp_servers import MCPTool
from deep_agent_mcp.harness.policy import ALL_DECISIONS, Policy, Rule, Verdict, strictest
from deep_agent_mcp.harness.tools.tool import Tool


class NoArguments(BaseModel):
    """Nothing."""


def test_the_first_matching_rule_decides():
    policy = Policy(
        (Rule("allow", "read_*", "/docs/**"), Rule("ask", "*_file"), Rule("deny", "*")),
        default="allow",
    )
    assert policy.judge("read_file", {"path": "/docs/a/b.md"}).action == "allow"
    assert policy.judge("read_file", {"path": "/other"}).action == "ask"
    assert policy.judge("read_file", {}).action == "ask"
    assert policy.judge("ls", {}).action == "deny"
    assert policy.judge("ls", {}).reason == "rule 3 of the policy"
    assert Policy().judge("ls", {}).action == "allow"


verdicts = st.builds(
    Verdict,
    action=st.sampled_from(["allow", "ask", "deny"]),
    decisions=st.sets(st.sampled_from(ALL_DECISIONS), min_size=1).map(tuple),
)


@given(st.lists(verdicts, max_size=6))
def test_the_strictest_verdict_holds_and_only_common_decisions_remain(given_verdicts):
    held = strictest(given_verdicts)
    actions = [one.action for one in given_verdicts]
    asked = [set(one.decisions) for one in given_verdicts if one.action == "ask"]
    common = set.intersection(*asked) if asked else set()
    expected = "allow"
    if "deny" in actions or (asked and not common):
        expected = "deny"
    elif asked:
        expected = "ask"
    assert held.action == expected
    if expected == "ask":
        assert set(held.decisions) == common


def test_nobody_is_asked_where_no_decision_is_left():
    first = Verdict("ask", "rule 1 of a.toml", ("approve", "edit"))
    second = Verdict("ask", "people answer here", ("respond",))
    held = strictest([first, second])
    assert held.action == "deny"
    assert "approve, edit (rule 1 of a.toml) and respond (people answer here)" in held.reason


def tool_of(server: str = "", **hints: bool) -> Tool:
    async def nothing(_args, _runtime):
        return ""

    if server:
        return MCPTool("t", "", {}, nothing, server=server, **hints)
    return Tool("t", "", {}, nothing, NoArguments, **hints)


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        (Rule("ask", destructive=True), tool_of(destructive=True), tool_of()),
        (Rule("ask", destructive=False), tool_of(), tool_of(destructive=True)),
        (Rule("deny", read_only=False), tool_of(), tool_of(read_only=True)),
        (Rule("allow", open_world=False), tool_of(open_world=False), tool_of(open_world=True)),
        (Rule("ask", server="git*"), tool_of("github"), tool_of("lab")),
        (Rule("ask", server="*"), tool_of("github"), tool_of()),
        (
            Rule("deny", server="a", destructive=True),
            tool_of("a", destructive=True),
            tool_of("a", destructive=False),
        ),
    ],
)
def test_rules_match_hints_and_servers(rule: Rule, matching: Tool, other: Tool):
    assert rule.matches("t", {}, matching)
    assert not rule.matches("t", {}, other)


@given(
    st.sampled_from(["allow", "ask", "deny"]),
    st.sampled_from([{"read_only": True}, {"destructive": False}, {"server": "x"}]),
)
def test_a_rule_about_what_is_unknown_errs_on_the_safe_side(action, about):
    assert Rule(action, **about).matches("t", {}) == (action != "allow")
    assert Rule(action).matches("t", {})


def test_the_policy_hands_the_tool_to_its_rules():
    policy = Policy((Rule("deny", "t", server="github", destructive=True),))
    assert policy.judge("t", {}, tool_of("github", destructive=True)).action == "deny"
    assert policy.judge("t", {}, tool_of("github")).action == "allow"
