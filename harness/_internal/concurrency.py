"""Concurrency helpers: task groups, events, and work in threads.

A single error of a task group is raised without the exception groups around it.

Long work runs in a thread, so that the event loop can continue; short work runs at once, because a
thread costs a tenth of a millisecond.

A lazy event costs almost nothing if it is set before anybody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

__all__ = ["LazyEvent", "leaves", "raising_one", "work_apart"]


@asynccontextmanager
async def raising_one() -> AsyncGenerator[None, None]:
    """Raise the error itself instead of an exception group with one error."""
    try:
        yield
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return all errors in a group, including those in nested groups."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]  # pyright: ignore[reportUnknownArgumentType]
    return found


_T = TypeVar("_T")

_FEW: Final = 1 << 16


async def work_apart(work: Callable[[], _T], chars: int = 0, *, items: int = 0) -> _T:
    """Return the result of `work`; it runs in a thread if it processes much data.

    Args:
        work: The function; it must be thread-safe.
        chars: Number of characters or bytes that it processes.
        items: Number of objects that it processes.
    """
    few = chars + 128 * items < _FEW
    return work() if few else await anyio.to_thread.run_sync(work)


class LazyEvent:
    """An event that costs almost nothing until somebody waits for it.

    Each call sets several events, and usually nobody waits for them. A normal event must look up
    its event loop first, which costs more than the notification.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event and wake all waiters."""
        self._is_set = True
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Wake all current waiters without setting the event."""
        for one in self._waiting:
            _wake(one)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the event is set, `wake` is called, or the seconds are over."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
            return
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, woken)
        self._waiting.append(woken)
        try:
            await woken
        finally:
            self._waiting.remove(woken)
            if timer is not None:
                timer.cancel()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # or cancelled
        waiting.set_result(None)
