"""The one gate in front of every tool call: rules, and how their verdicts combine.

A *judge* looks at a call and says allow, deny or ask, or has no opinion. The policy of the agent
is one judge; middleware may add others (`AgentMiddleware.judge`). The strictest verdict holds.
"""

from .call_authorization import CallAuthorization, authorization_of
from .composite import CallPolicy, NarrowedPolicy
from .errors import PolicyError
from .policy import Decision, Policy
from .policy_files import PolicyFiles
from .rules import Rule
from .verdicts import (
    ALL_DECISIONS,
    ALLOW,
    Action,
    ApprovalDecision,
    ToolClass,
    Verdict,
    strictest,
)

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
