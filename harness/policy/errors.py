"""Policy errors."""

from __future__ import annotations

from ..errors import AgentBuildError

__all__ = ["PolicyError"]


class PolicyError(AgentBuildError):
    """A policy is not valid; the text names the file, the line and what is accepted."""
