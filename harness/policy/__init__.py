"""The policy that checks every tool call: rules, and how their verdicts combine.

A *judge* looks at a call and says allow, deny or ask, or has no opinion. The policy of the agent
is one judge; middleware may add others (`AgentMiddleware.judge`). The strictest verdict holds.
"""

from .access_request import (
    ALL_DECISIONS,
    ALLOW,
    Action,
    ApprovalDecision,
    ToolClass,
    Verdict,
    strictest,
)
from .composite import CallPolicy, NarrowedPolicy
from .patterns import PolicyError
from .policy import Decision, Policy
from .policy_files import CallAuthorization, PolicyFiles, authorization_of
from .rules import Rule

__all__ = [
    "ALLOW",
    "ALL_DECISIONS",
    "Action",
    "ApprovalDecision",
    "CallAuthorization",
    "CallPolicy",
    "Decision",
    "NarrowedPolicy",
    "Policy",
    "PolicyError",
    "PolicyFiles",
    "Rule",
    "ToolClass",
    "Verdict",
    "authorization_of",
    "strictest",
]
