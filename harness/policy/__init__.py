"""The policy that checks every tool call: rules, and the combination of their verdicts.

A *judge* checks a call and returns allow, deny or ask, or has no opinion. The agent's policy is one
judge; middleware can add others (`AgentMiddleware.judge`). The strictest verdict applies.
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
