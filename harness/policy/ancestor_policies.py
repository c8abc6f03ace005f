"""Ancestor policies: the rules a subagent inherits from its callers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .composite import CallPolicy

__all__ = ["ancestor_policies", "narrowing"]

_ABOVE: ContextVar[tuple[CallPolicy, ...]] = ContextVar("ancestor_policies", default=())


def ancestor_policies() -> tuple[CallPolicy, ...]:
    """Return the policies of the agents above the one that is running."""
    return _ABOVE.get()


@contextmanager
def narrowing(policy: CallPolicy) -> Generator[None]:
    """Hold the agents that run inside the block to a policy besides their own."""
    above = _ABOVE.get()
    token = _ABOVE.set(above if policy in above else (*above, policy))
    try:
        yield
    finally:
        _ABOVE.reset(token)
