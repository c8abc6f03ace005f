"""The middleware base class, its hooks, and how hooks are found and composed.

A middleware overrides the hooks it needs, sync or async under the same name. In the list of an
agent the first middleware is outermost: its `before_*` runs first, its `after_*` last, and its
wraps surround all others (peers A3.6, A3.7, A5.2).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from harness.errors import AgentBuildError
from harness.loop.requests import (
    HookResult,
    JumpTo,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from harness.policy import Verdict
from harness.state import State
from harness.tools import Tool

__all__ = ["AgentMiddleware", "HookName", "hook_config", "hooks_of", "jumps_of"]

HookName: TypeAlias = Literal["before_agent", "before_model", "after_model", "after_agent"]

_F = TypeVar("_F", bound=Callable[..., Any])
_JUMPS: tuple[JumpTo, ...] = ("model", "tools", "end")


class AgentMiddleware:
    """Base of all middleware. Every hook is optional.

    Attributes:
        state_schema: A TypedDict with the state keys this middleware reads or writes.
        tools: Tools it brings.
    """

    state_schema: ClassVar[type | None] = None
    tools: Sequence[Tool] = ()

    @property
    def name(self) -> str:
        """Unique within an agent; the class name unless overridden."""
        return type(self).__name__

    def before_agent(self, state: State, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run once when a run begins."""

    def before_model(self, state: State, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run before each model call."""

    def after_model(self, state: State, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run after each model answer, and after a driving client's calls."""

    def after_agent(self, state: State, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run once when a run ends."""

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Surround a model call; call the handler any number of times."""
        return await handler(request)

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Surround a tool call; the gate judges whatever call reaches it (peers E7)."""
        return await handler(request)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Say allow, deny or ask about a call; None is no opinion. Must be a pure function."""

    async def redact(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Remove from a result what nobody downstream may see."""
        return outcome

    async def evict(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Replace a result that is too large by a preview with a way to the rest."""
        return outcome


def hook_config(*, can_jump_to: Sequence[JumpTo]) -> Callable[[_F], _F]:
    """Declare where a hook may jump (peers A4.3). An undeclared jump ends the run with an error."""
    unknown = [target for target in can_jump_to if target not in _JUMPS]
    if unknown:
        raise AgentBuildError(f"can_jump_to accepts {', '.join(_JUMPS)}; got {unknown}")

    def mark(hook: _F) -> _F:
        hook.__can_jump_to__ = frozenset(can_jump_to)  # type: ignore[attr-defined]
        return hook

    return mark


def jumps_of(middleware: AgentMiddleware, hook: str) -> frozenset[str]:
    """Return where a middleware's hook may jump."""
    empty: frozenset[str] = frozenset()
    return cast(frozenset[str], getattr(getattr(middleware, hook), "__can_jump_to__", empty))


def hooks_of(middleware: Sequence[AgentMiddleware], hook: str) -> list[AgentMiddleware]:
    """Return the middleware that overrides a hook, in list order."""
    base = getattr(AgentMiddleware, hook)
    return [one for one in middleware if getattr(one, hook).__func__ is not base]


async def settle(value: Any) -> Any:
    """Return the value, awaited first if it is awaitable."""
    return await value if inspect.isawaitable(value) else value
