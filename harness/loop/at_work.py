"""Which agent is at work here, for code that is handed neither its request nor its runtime."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from harness.records import record

if TYPE_CHECKING:
    from harness.loop.middleware import AgentMiddleware
    from harness.loop.requests import Runtime
    from harness.loop.run_context import RunContext

__all__ = ["AgentAtWork", "agent_at_work", "at_work"]


@record
class AgentAtWork:
    """An agent that is moved just now.

    Attributes:
        runtime: What its hooks see.
        run: The run tree it belongs to.
        watchers: Its middleware with a `wrap_internal_call`, outermost first.
    """

    runtime: Runtime
    run: RunContext
    watchers: Sequence[AgentMiddleware]


_CURRENT: ContextVar[AgentAtWork | None] = ContextVar("agent_at_work", default=None)


def agent_at_work() -> AgentAtWork | None:
    """Return the innermost agent whose hook, model call or tool call this is part of, if any."""
    return _CURRENT.get()


@contextmanager
def at_work(agent: AgentAtWork) -> Generator[None]:
    """Let `agent_at_work` return this one."""
    token = _CURRENT.set(agent)
    try:
        yield
    finally:
        _CURRENT.reset(token)
