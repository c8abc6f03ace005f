"""The middleware base class, its hooks, and how hooks are found and composed.

A middleware overrides the hooks it needs, sync or async under the same name. In the list of an
agent the first middleware is outermost: its `before_*` runs first, its `after_*` last, and its
wraps surround all others.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast, get_args

from ...errors import AgentBuildError
from ...messages.message import AIMessage
from ...policy import Verdict
from ...tools.signatures import is_async, is_generator, snake_case
from ...tools.tool import Tool
from .requests import (
    HookResult,
    InternalCall,
    InternalHandler,
    JumpTo,
    ModelRequest,
    ModelResult,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolCallResult,
)

if TYPE_CHECKING:
    from ...checkpoint.base import Run
    from ...redaction.rules import Rule

__all__ = [
    "HOOKS",
    "AgentMiddleware",
    "HookName",
    "check_call",
    "check_hook",
    "check_middleware",
    "hook_config",
    "hooks_of",
    "is_async_hook",
    "jumps_of",
    "settle",
]

HookName: TypeAlias = Literal["before_agent", "before_model", "after_model", "after_agent"]

HOOKS: Mapping[str, tuple[str, ...]] = {
    "before_agent": ("state", "runtime"),
    "before_model": ("state", "runtime"),
    "after_model": ("state", "runtime"),
    "after_agent": ("state", "runtime"),
    "wrap_model_call": ("request", "handler"),
    "wrap_tool_call": ("request", "handler"),
    "judge": ("request",),
    "redact": ("request", "outcome"),
    "evict": ("request", "outcome"),
}
"""Every hook, with its positional arguments."""

_AROUND_TOOLS = "wrap_tool_call, and call the handler where the tool is to run"
_AROUND_RUNS = "before_agent and after_agent, which run once per run"

_INSTEAD: Mapping[str, str] = {
    "before_tool": _AROUND_TOOLS,
    "before_tool_call": _AROUND_TOOLS,
    "after_tool": _AROUND_TOOLS,
    "after_tool_call": _AROUND_TOOLS,
    "wrap_tool": "wrap_tool_call",
    "wrap_agent": _AROUND_RUNS,
    "wrap_agent_call": _AROUND_RUNS,
    "modify_model_request": "wrap_model_call, and hand request.override(…) to the handler",
}
"""Names that are mistaken for hooks, with the right ones."""

_F = TypeVar("_F", bound=Callable[..., Any])
_JUMPS: tuple[JumpTo, ...] = ("model", "tools", "end")
_MARK = "__can_jump_to__"


class AgentMiddleware:
    """Base class of all middleware. Every hook is optional.

    Attributes:
        state_schema: A TypedDict with the state keys this middleware reads or writes.
        tools: Tools it adds.
        redaction: Redaction rules for all input and output of the agent and its subagents.
        made_with: The arguments of its constructor, by position and by name; for listings.
        supplies_tools: Whether its `wrap_tool_call` may answer calls of tools that the agent does
            not have. If no middleware does, offering such a tool to a model is an error.
    """

    state_schema: ClassVar[type | None] = None
    supplies_tools: ClassVar[bool] = True
    tools: Sequence[Tool] = ()
    redaction: Sequence[Rule] = ()
    made_with: tuple[tuple[object, ...], Mapping[str, object]] = (), {}

    if not TYPE_CHECKING:  # type checkers use __init__

        def __new__(cls, *args: object, **options: object) -> Self:
            """Remember the arguments."""
            if (args or options) and cls.__init__ is object.__init__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
            made = super().__new__(cls)
            vars(made)["made_with"] = args, options
            return made

    @property
    def name(self) -> str:
        """Unique within an agent; the class name unless overridden."""
        return type(self).__name__

    # A hook may declare the state as its own TypedDict: only this type allows that.

    def before_agent(self, state: Any, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run once when a run begins."""

    def before_model(self, state: Any, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run before each model call."""

    def after_model(self, state: Any, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run after each model answer, and after the calls of a client that drives."""

    def after_agent(self, state: Any, runtime: Runtime) -> HookResult | Awaitable[HookResult]:
        """Run once when a run ends."""

    # A handler is async in an async hook and sync in a sync one, which no single type expresses.

    def wrap_model_call(
        self, request: ModelRequest, handler: Any
    ) -> ModelResult | Awaitable[ModelResult]:
        """Surround a model call; call the handler any number of times.

        Async hooks get a `ModelHandler`. A sync one runs in a worker thread with a sync handler.
        """
        return handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Any
    ) -> ToolCallResult | Awaitable[ToolCallResult]:
        """Surround a tool call; the gate checks the call that the hook passes on.

        Async hooks get a `ToolHandler`. A sync one runs in a worker thread with a sync handler.
        """
        return handler(request)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Return allow, deny or ask for a call; None is no opinion. Must be a pure function."""

    def subagent(self, name: str) -> Any | None:
        """Return the `Agent` that a tool of this middleware runs under a name, if there is one.

        Answers to that agent's questions are checked against its tools.
        """
        return None

    def of_subagents(self) -> Sequence[AgentMiddleware]:
        """Return middleware of the agents below that their caller may not have.

        It is notified of deleted threads, too.
        """
        return ()

    async def wrap_internal_call(self, call: InternalCall, handler: InternalHandler) -> AIMessage:
        """Observe a model call that a middleware of the agent makes for its own purposes.

        Examples are a summary, or a choice of tools. Return what the handler returns.
        """
        return await handler()

    async def run_stopped(self, run: Run) -> None:
        """Run when a run has paused or ended for any reason; see `run.status`.

        Use it to end things that must not outlive a run, such as processes. It cannot write to
        the thread. It runs once for each middleware of the main agent and of subagents that took
        part. Status `running` means that this process releases the run. Errors, and a hook that
        takes longer than ten seconds, are logged.
        """

    async def thread_deleted(self, thread_id: str) -> None:
        """Run after this process deleted a thread of the agent, or one of its background tasks.

        Use it to release what is kept for the thread outside the journal. Errors, and a hook that
        takes longer than ten seconds, are logged.
        """

    async def aclose(self) -> None:
        """Release its open resources (`Agent.aclose`); it can be used again."""

    async def redact(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Remove text from a result that nobody may see."""
        return outcome

    async def evict(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Replace a result that is too large by a preview that tells how to read the rest."""
        return outcome


def hook_config(*, can_jump_to: Sequence[JumpTo]) -> Callable[[_F], _F]:
    """Declare where a hook may jump. An undeclared jump ends the run with an error.

    The declaration belongs to the decorated function: a subclass that overrides the hook must
    declare its own jumps.

    Raises:
        AgentBuildError: A target is invalid.
    """
    unknown = [target for target in can_jump_to if target not in _JUMPS]
    if unknown:
        raise AgentBuildError(f"can_jump_to accepts {', '.join(_JUMPS)}; got {unknown}")

    def mark(hook: _F) -> _F:
        # For a staticmethod, only the function itself is visible later.
        setattr(getattr(hook, "__func__", hook), _MARK, frozenset(can_jump_to))
        return hook

    return mark


def jumps_of(middleware: AgentMiddleware, hook: str) -> frozenset[str]:
    """Return the targets to which a middleware's hook may jump."""
    function: Any = getattr(middleware, hook)
    while not hasattr(function, _MARK) and isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return getattr(cast(object, function), _MARK, frozenset[str]())


def hooks_of(middleware: Sequence[AgentMiddleware], hook: str) -> list[AgentMiddleware]:
    """Return the middleware that overrides a hook, in list order.

    A hook counts wherever it comes from: the class, a base of it, or the instance.
    """
    base = getattr(AgentMiddleware, hook)
    found = [(one, getattr(one, hook)) for one in middleware]
    return [one for one, own in found if getattr(own, "__func__", own) is not base]


def is_async_hook(middleware: AgentMiddleware, hook: str) -> bool:
    """Return whether a middleware's hook is an async function; others run as sync ones."""
    return is_async(getattr(middleware, hook))


def check_middleware(middleware: object) -> None:
    """Check a middleware when an agent is built, so that nothing in it is silently ignored.

    Raises:
        AgentBuildError: It is not a middleware, a method only looks like a hook, or a hook does
            not accept the loop's arguments.
    """
    if not isinstance(middleware, AgentMiddleware):
        given = middleware if isinstance(middleware, type) else type(middleware)
        raise AgentBuildError(
            f"middleware= takes instances of AgentMiddleware, such as {given.__name__}() if that "
            f"is one; got {middleware!r}"
        )
    owner = middleware.name
    for name in sorted(_added(middleware)):
        _check_name(owner, name)
    for hook in HOOKS:
        if hooks_of([middleware], hook):
            check_hook(f"{owner}.{hook}", hook, getattr(middleware, hook))
            if hook not in get_args(HookName) and jumps_of(middleware, hook):
                jumping = ", ".join(get_args(HookName))
                raise AgentBuildError(f"{owner}.{hook} cannot jump: can_jump_to is for {jumping}")


def check_hook(label: str, hook: str, function: object) -> None:
    """Check that a function can be called as a hook is.

    Args:
        label: Its name in errors.
        hook: The hook.
        function: The value given for it.

    Raises:
        AgentBuildError: It cannot be called; the text says what is expected.
    """
    check_call(label, hook, HOOKS[hook], function)
    if hook == "judge" and is_async(function):
        raise AgentBuildError(f"{label}: judge is a pure function, so it must not be async")
    if hook in ("redact", "evict") and not is_async(function):
        raise AgentBuildError(f"{label}: {hook} must be async: async def {hook}(…)")


def check_call(label: str, what: str, arguments: Sequence[str], function: object) -> None:
    """Check that a value is a function that accepts these positional arguments.

    Raises:
        AgentBuildError: It is not one; the text says what is expected.
    """
    expected = f"{label}: {what} is a function of ({', '.join(arguments)}), given by place"
    if not callable(function) or isinstance(function, type):
        raise AgentBuildError(f"{expected}; got {function!r}")
    if is_generator(function):
        raise AgentBuildError(f"{expected}, that returns a value; this one is a generator")
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise AgentBuildError(f"{expected}; this one cannot be called so: {error}") from error


def _added(middleware: AgentMiddleware) -> Iterator[str]:
    """Yield the public names of functions that a middleware has but its base class has not."""
    own = dict.fromkeys(vars(middleware))
    for base in type(middleware).__mro__:
        if base not in AgentMiddleware.__mro__:
            own.update(dict.fromkeys(vars(base)))
    for name in own:
        known = name.startswith("_") or hasattr(AgentMiddleware, name)
        if not known and callable(inspect.getattr_static(middleware, name)):
            yield name


def _check_name(owner: str, name: str) -> None:
    if name.startswith("a") and name[1:] in HOOKS:
        raise AgentBuildError(
            f"{owner} defines {name}, which is never called: one name serves sync and async. "
            f"Write `async def {name[1:]}(…)` instead."
        )
    guess = snake_case(name)
    instead = _INSTEAD.get(guess) or _INSTEAD.get(guess.removeprefix("a"))
    if instead is not None:
        raise AgentBuildError(
            f"{owner} defines {name}, which is not a hook and is never called. Override {instead}; "
            "if it is a helper, begin its name with an underscore."
        )
    hooks = [hook for hook in HOOKS if "_" in hook]
    close = difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)
    if close:
        raise AgentBuildError(
            f"{owner} defines {name}, which is never called. If it is meant to be the hook "
            f"{close[0]}, rename it; if it is a helper, begin its name with an underscore."
        )


async def settle(value: Any) -> Any:
    """Return the value, awaited first if it is awaitable."""
    return await value if inspect.isawaitable(value) else value
