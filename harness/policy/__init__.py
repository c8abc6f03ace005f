"""The one gate in front of every tool call: rules, and how their verdicts combine.

A *judge* looks at a call and says allow, deny or ask, or has no opinion. The policy of the agent
is one judge; middleware may add others (`AgentMiddleware.judge`). The strictest verdict holds.
"""

from harness.policy.bound import BoundPolicy
from harness.policy.errors import PolicyError
from harness.policy.joint import CallPolicy, NarrowedPolicy
from harness.policy.live import PolicyFiles
from harness.policy.policy import Decision, Policy, ToolClass
from harness.policy.rules import Rule
from harness.policy.verdicts import (
    ALL_DECISIONS,
    ALLOW,
    Action,
    ApprovalDecision,
    Verdict,
    strictest,
)

__all__ = [
    "ALLOW",
    "ALL_DECISIONS",
    "Action",
    "ApprovalDecision",
    "BoundPolicy",
    "CallPolicy",
    "Decision",
    "NarrowedPolicy",
    "Policy",
    "PolicyError",
    "PolicyFiles",
    "Rule",
    "ToolClass",
    "Verdict",
    "strictest",
]
