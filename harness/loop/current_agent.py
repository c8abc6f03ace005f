"""The current agent: a context variable for code that gets neither request nor runtime."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .._internal.records import record

if TYPE_CHECKING:
    from .middleware import AgentMiddleware
    from .requests import Runtime
    from .run_context import RunContext

__all__ = ["CurrentAgent", "current_agent", "running_as"]


@record
class CurrentAgent:
    """An agent that is moved just now.

    Attributes:
        runtime: What its hooks see.
        run: The run tree it belongs to.
        watchers: Its middleware with a `wrap_internal_call`, outermost first.
    """

    runtime: Runtime
    run: RunContext
    watchers: Sequence[AgentMiddleware]


_CURRENT: ContextVar[CurrentAgent | None] = ContextVar("current_agent", default=None)


def current_agent() -> CurrentAgent | None:
    """Return the innermost agent whose hook, model call or tool call this is part of, if any."""
    return _CURRENT.get()


class running_as:  # noqa: N801 - a context manager, which a class makes without a generator
    """Let `current_agent` return this one."""

    __slots__ = ("_agent", "_token")

    def __init__(self, agent: CurrentAgent) -> None:
        self._agent = agent

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._agent)

    def __exit__(self, *raised: object) -> None:
        _CURRENT.reset(self._token)
