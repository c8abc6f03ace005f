"""Approval settings of a tool: what a person sees, and what they may decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .._internal.records import record
from ..policy.verdicts import ALL_DECISIONS, ApprovalDecision
from .requests import ToolCallRequest

__all__ = ["Description", "InterruptOnConfig"]

Description: TypeAlias = str | Callable[[ToolCallRequest], str]


@record
class InterruptOnConfig:
    """How calls of a tool are put before a person.

    Attributes:
        allowed_decisions: What the person may decide: `approve`, `edit` (run it with other
            arguments or another tool), `reject`, `respond` (answer in the tool's place).
        description: What the person reads: a text, or a function of the request. Empty for the
            middleware's own text.
        when: Asks only if this returns true. It runs again when the question has been answered,
            so it must depend on nothing but the request.
    """

    allowed_decisions: Sequence[ApprovalDecision] = ALL_DECISIONS
    description: Description = ""
    when: Callable[[ToolCallRequest], bool] | None = None
