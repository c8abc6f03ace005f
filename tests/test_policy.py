"""Rules: the first match decides, the strictest judge holds."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy import ALL_DECISIONS, Policy, Rule, Verdict, strictest


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
    expected = "deny" if "deny" in actions else "ask" if "ask" in actions else "allow"
    assert held.action == expected
    if expected == "ask":
        asked = [set(one.decisions) for one in given_verdicts if one.action == "ask"]
        assert set(held.decisions) == set.intersection(*asked)
