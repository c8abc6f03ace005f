"""Verdicts on a call, and how those of several judges combine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from .._internal.records import record

__all__ = [
    "ALLOW",
    "ALL_DECISIONS",
    "STRICTNESS",
    "Action",
    "ApprovalDecision",
    "ToolClass",
    "Verdict",
    "strictest",
]

Action: TypeAlias = Literal["allow", "deny", "ask"]
ApprovalDecision: TypeAlias = Literal["approve", "edit", "reject", "respond"]
ToolClass: TypeAlias = Literal["read_only", "destructive", "open_world"]
"""What a tool says of itself; it may be in several classes, or in none."""

ALL_DECISIONS: tuple[ApprovalDecision, ...] = ("approve", "edit", "reject", "respond")
STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


@record
class Verdict:
    """What a judge says about a call.

    Attributes:
        action: `allow`, `deny`, or `ask` a person.
        reason: Why, in words for the model and the person, such as `rule 2: no writes to /etc`.
        decisions: For `ask`: what the person may decide.
        edit_notice: For `ask`: what precedes the result of a call that the person edited, with
            `{call}` for the call as it ran. None for our own text, empty for nothing.
    """

    action: Action
    reason: str = ""
    decisions: tuple[ApprovalDecision, ...] = ALL_DECISIONS
    edit_notice: str | None = None


ALLOW = Verdict("allow")


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest verdict, the first of equals; `allow` when there is none.

    Among several `ask` only decisions that all of them accept remain; where none does, nobody can
    be asked, and the call is denied.
    """
    rest = iter(verdicts)
    held = next(rest, ALLOW)
    for verdict in rest:
        if STRICTNESS[verdict.action] > STRICTNESS[held.action]:
            held = verdict
        elif verdict.action == held.action == "ask":
            held = _both_asked(held, verdict)
    return held


def _both_asked(first: Verdict, second: Verdict) -> Verdict:
    common: tuple[ApprovalDecision, ...] = tuple(
        choice for choice in first.decisions if choice in second.decisions
    )
    if common:
        notice = second.edit_notice if first.edit_notice is None else first.edit_notice
        return Verdict("ask", first.reason, common, notice)
    asked = (f"{', '.join(one.decisions) or 'nothing'} ({one.reason})" for one in (first, second))
    return Verdict(
        "deny",
        f"a person would have to decide, and two rules leave no decision: {' and '.join(asked)}",
    )
