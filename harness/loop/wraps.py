"""Wrappers: how one is called, sync or async, and what its errors become (DESIGN: hooks)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from harness.errors import HarnessError, MiddlewareError
from harness.limits import LimitReached
from harness.loop.middleware import AgentMiddleware, hooks_of, is_async_hook

__all__ = ["Wrap", "wraps_of"]

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Wrap:
    """One wrapper.

    Attributes:
        author: `<middleware>.<hook>`, for errors.
        function: The hook.
        is_async: Whether it is an async function. A plain one runs in a worker thread of its own,
            with a plain handler, so that it may wait for it without holding up the event loop.
    """

    author: str
    function: Callable[..., Any]
    is_async: bool

    async def __call__(
        self, request: RequestT, handler: Callable[[RequestT], Coroutine[Any, Any, ResultT]]
    ) -> object:
        """Return what the wrapper returns; its type is the wrapper's affair.

        Raises:
            MiddlewareError: It raised something that is neither ours nor control flow.
        """
        try:
            if self.is_async:
                return await self.function(request, handler)
            return await self._in_thread(request, handler)
        except (HarnessError, LimitReached):
            raise
        except Exception as error:
            raise MiddlewareError(
                f"{self.author} raised {type(error).__name__}: {error}"
            ) from error

    async def _in_thread(
        self, request: RequestT, handler: Callable[[RequestT], Coroutine[Any, Any, ResultT]]
    ) -> object:
        def sync_handler(inner: RequestT) -> ResultT:
            return anyio.from_thread.run(handler, inner)

        # Nested wrappers each hold a thread while they wait: a shared limit could starve them all.
        result: Any = await anyio.to_thread.run_sync(
            self.function, request, sync_handler, limiter=anyio.CapacityLimiter(1)
        )
        return await result if inspect.isawaitable(result) else result


def wraps_of(middleware: Sequence[AgentMiddleware], hook: str) -> tuple[Wrap, ...]:
    """Return the wrappers of this hook, outermost first."""
    return tuple(
        Wrap(f"{one.name}.{hook}", getattr(one, hook), is_async_hook(one, hook))
        for one in hooks_of(middleware, hook)
    )
