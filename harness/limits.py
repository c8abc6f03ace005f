"""Bounds for a whole tree of runs: the agent, its subagents and theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.messages import Usage

__all__ = ["LimitReached", "Limits", "Meter"]


class LimitReached(Exception):
    """A bound of the run tree was met; ends the run with a typed reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use, all of its subagents included.

    Attributes:
        model_calls: Answers of the agent's models.
        tool_calls: Tool calls that start.
        depth: Levels of subagents below the main agent.
        parallel_tool_calls: Calls of one answer that run at the same time; the rest wait.
    """

    model_calls: int = 200
    tool_calls: int = 1_000
    depth: int = 3
    parallel_tool_calls: int = 16


@dataclass(slots=True)
class Meter:
    """What a run tree has used so far; shared by all of its agents."""

    limits: Limits
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def before_model_call(self) -> None:
        """Count a model call, or raise `LimitReached`."""
        if self.model_calls >= self.limits.model_calls:
            raise LimitReached(f"limit: {self.limits.model_calls} model calls")
        self.model_calls += 1

    def before_tool_call(self) -> None:
        """Count a tool call, or raise `LimitReached`."""
        if self.tool_calls >= self.limits.tool_calls:
            raise LimitReached(f"limit: {self.limits.tool_calls} tool calls")
        self.tool_calls += 1
