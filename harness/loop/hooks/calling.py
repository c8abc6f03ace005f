"""Hook calls: calls hooks and wraps of middleware, and handles their results and errors.

Awaiting a task or future that other code has cancelled also raises `CancelledError`, although the
run itself was not cancelled. `as_failure` distinguishes this from a cancelled run.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from ..._internal.records import record
from ...errors import HarnessError, MiddlewareError
from ...limits.limits import LimitReached
from ...state.channels import State
from .middleware import AgentMiddleware, HookName, hooks_of, is_async_hook, jumps_of, settle
from .requests import Command, HookResult, Runtime, Send

__all__ = [
    "FAILURES",
    "ExitCalled",
    "Hook",
    "StrayCancellation",
    "Wrap",
    "as_failure",
    "failure_of",
    "phase_hooks",
    "wraps_of",
]

FAILURES = (Exception, asyncio.CancelledError, SystemExit)
"""Exceptions that may be failures of foreign code; `as_failure` decides whether they are."""


class StrayCancellation(Exception):
    """Code raised `CancelledError` although nothing around it was cancelled."""


class ExitCalled(Exception):
    """Code called `exit`, which ends a program: a tool or hook must not end a server."""


def as_failure(error: Exception | asyncio.CancelledError | SystemExit) -> Exception:
    """Convert an exception to a failure.

    To be called in the task that caught it, in the scopes that surround the code that raised it.

    Raises:
        asyncio.CancelledError: It is a cancellation; the same object, which its scope identifies.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit):
        exited = ExitCalled(f"it called exit({error.code!r}), as only a program may")
        exited.__cause__ = error
        return exited
    if isinstance(error, anyio.get_cancelled_exc_class()) and _being_cancelled():
        raise error
    failure = StrayCancellation(
        "CancelledError was raised in it although nothing cancelled the run; probably something "
        "that it waited for was cancelled"
    )
    failure.__cause__ = error
    return failure


def _being_cancelled() -> bool:
    """Return whether a scope around this task, or the task itself, is being cancelled.

    Scopes call `Task.cancel` but count separately, so both must be checked. A request that was
    swallowed without `Task.uncancel` is still counted: in doubt, it is real.
    """
    if anyio.current_effective_deadline() == -math.inf:
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failure_of(
    author: str, raised: Exception | asyncio.CancelledError | SystemExit, more: str = ""
) -> Exception:
    """Convert an exception of a hook to the error to raise; our own errors are unchanged.

    Args:
        author: `<middleware>.<hook>`.
        raised: What it raised.
        more: What the error also says.

    Raises:
        asyncio.CancelledError: As for `as_failure`.
    """
    if isinstance(raised, (HarnessError, LimitReached)):
        return raised
    error = as_failure(raised)
    failed = MiddlewareError(f"{author} raised {type(error).__name__}: {error}{more}")
    failed.__cause__ = error
    return failed


_NOTHING = Command()


@record
class Hook:
    """One hook.

    Attributes:
        author: `<middleware>.<hook>`, for errors, breakpoints and questions.
        call: The function, sync or async.
        jumps: Where it may jump.
    """

    author: str
    call: Callable[[State, Runtime], HookResult | Awaitable[HookResult]]
    jumps: frozenset[str]

    async def __call__(self, state: State, runtime: Runtime) -> Command:
        """Return its result as a command.

        Raises:
            MiddlewareError: It raised, or returned something else.
            HarnessError, LimitReached: As raised by it.
        """
        try:
            result = self.call(state, runtime)
            if result is None:
                return _NOTHING
            result = await settle(result)
        except FAILURES as raised:
            raise failure_of(self.author, raised)  # noqa: B904 - it knows its cause
        return _NOTHING if result is None else self._command(result)

    def _command(self, result: Mapping[str, Any] | Command) -> Command:
        if isinstance(result, Command):
            return self._checked(result)
        if not isinstance(result, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MiddlewareError(
                f"{self.author} returned {type(result).__name__}; return None, a mapping of state "
                "keys, or a Command"
            )
        update = dict(result)
        return Command(jump_to=update.pop("jump_to", None), update=update)

    def _checked(self, command: Command) -> Command:
        """Return a command if its parts are valid."""
        update: object = command.update
        if isinstance(update, Mapping) and all(isinstance(one, Send) for one in command.send):  # pyright: ignore[reportUnnecessaryIsInstance]
            return command
        raise MiddlewareError(
            f"{self.author} returned {command!r}; `update` is a mapping of state keys, `send` a "
            "list of Send(tool, args)"
        )


def phase_hooks(middleware: Sequence[AgentMiddleware], name: HookName) -> tuple[Hook, ...]:
    """Return the hooks of a phase, in the order in which they run."""
    users = hooks_of(middleware, name)
    in_order = users if name.startswith("before") else users[::-1]
    return tuple(
        Hook(f"{one.name}.{name}", getattr(one, name), jumps_of(one, name)) for one in in_order
    )


RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


@record
class Wrap:
    """One wrapper.

    Attributes:
        author: `<middleware>.<hook>`, for errors.
        call: The hook, called with the request and an async handler; its result is not checked.
    """

    author: str
    call: Callable[[Any, Callable[[Any], Coroutine[Any, Any, Any]]], Awaitable[Any]]


async def _in_thread(
    function: Callable[..., Any],
    request: RequestT,
    handler: Callable[[RequestT], Coroutine[Any, Any, ResultT]],
) -> object:
    """Call a sync hook in a separate worker thread, with a sync handler that it may wait for."""

    def sync_handler(inner: RequestT) -> ResultT:
        return anyio.from_thread.run(handler, inner)

    # Nested wrappers each hold a thread while they wait: a shared limit could starve them all.
    result: Any = await anyio.to_thread.run_sync(
        function, request, sync_handler, limiter=anyio.CapacityLimiter(1)
    )
    return await result if inspect.isawaitable(result) else result


def wraps_of(middleware: Sequence[AgentMiddleware], hook: str) -> tuple[Wrap, ...]:
    """Return the wrappers of this hook, outermost first."""
    wraps: list[Wrap] = []
    for one in hooks_of(middleware, hook):
        function: Callable[..., Any] = getattr(one, hook)
        call = function if is_async_hook(one, hook) else partial(_in_thread, function)
        wraps.append(Wrap(f"{one.name}.{hook}", call))
    return tuple(wraps)
