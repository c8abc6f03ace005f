"""Wrappers: how one is called, sync or async, and what its errors become."""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from .._internal.records import record
from ..errors import HarnessError, MiddlewareError
from ..limits.limits import LimitReached
from .cancellation import as_failure
from .middleware import AgentMiddleware, hooks_of, is_async_hook

__all__ = ["Wrap", "wraps_of"]

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


@record
class Wrap:
    """One wrapper.

    Attributes:
        author: `<middleware>.<hook>`, for errors.
        call: The hook, given the request and an async handler; what it returns is its affair.
    """

    author: str
    call: Callable[[Any, Callable[[Any], Coroutine[Any, Any, Any]]], Awaitable[Any]]

    def failure(self, raised: Exception | CancelledError) -> Exception | CancelledError:
        """Return what an error of the hook becomes; ours and control flow stay what they are."""
        if isinstance(raised, (HarnessError, LimitReached)):
            return raised
        error = as_failure(raised)
        failed = MiddlewareError(f"{self.author} raised {type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed


async def _in_thread(
    function: Callable[..., Any],
    request: RequestT,
    handler: Callable[[RequestT], Coroutine[Any, Any, ResultT]],
) -> object:
    """Call a plain hook in a worker thread of its own, with a plain handler it may wait for."""

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
