"""Path verdicts: what the rules say of a path when nobody can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from .access_request import AccessRequest
from .command_path_access import policies_in
from .composite import Caller, CallPolicy
from .policy import Policy
from .verdicts import Verdict, strictest

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = ["path_verdict"]


def path_verdict(
    policy: CallPolicy,
    tool: str,
    path: str,
    definition: Tool | None = None,
    **caller: Unpack[Caller],
) -> Verdict:
    """Return the verdict on a path: a refusal, or a question that a rule about paths asks.

    What a person is asked for whatever the path is, such as each call of a tool, counts as
    allowed.

    Args:
        policy: The policy.
        tool: The name of a tool that takes a path.
        path: A canonical path.
        definition: The tool itself.
        caller: Who makes the call.
    """
    return strictest(_verdicts(policy, tool, path, definition, caller))


def _verdicts(
    policy: CallPolicy, tool: str, path: str, definition: Tool | None, caller: Caller
) -> Iterator[Verdict]:
    call = AccessRequest(tool, {"path": path}, definition, **caller)
    for one in policies_in(policy):
        if not isinstance(one, Policy):
            verdict = one.judge(tool, call.args, definition, **caller)
            if verdict.action == "deny":
                yield verdict
            continue
        for decided in one.decide(call):
            verdict = decided.verdict
            about_path = decided.rule is not None and decided.rule.path is not None
            if verdict.action == "deny" or (verdict.action == "ask" and about_path):
                yield verdict
