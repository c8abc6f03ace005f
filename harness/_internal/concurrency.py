"""Concurrency helpers: task groups, events, and work in threads.

Errors of a task group are raised as the error itself, without the groups around it.

Work that may take long runs in a thread; quick work runs at once. A thread costs a tenth of a
millisecond, and the event loop goes on meanwhile.

A lazy event costs nothing if it is set before anybody waits for it.
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
    """Raise the error itself where a task group of one task raises a group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors inside a group, whatever groups wrap them."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]  # pyright: ignore[reportUnknownArgumentType]
    return found


_T = TypeVar("_T")

_FEW: Final = 1 << 16


async def work_apart(work: Callable[[], _T], chars: int = 0, *, items: int = 0) -> _T:
    """Return what some work comes to; in a thread if it goes through much.

    Args:
        work: Does it; it may run beside the event loop.
        chars: How many characters or bytes it goes through.
        items: Through how many objects.
    """
    few = chars + 128 * items < _FEW
    return work() if few else await anyio.to_thread.run_sync(work)


class LazyEvent:
    """An event that costs next to nothing until somebody waits for it.

    A driven call says of a handful of things that they are over, each to whoever may wait. Hardly
    ever somebody does, and what asks which event loop it is costs more than what it says.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Say that it has happened, and wake all who wait."""
        self._is_set = True
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """End the waits of now, whether it has happened or not."""
        for one in self._waiting:
            _wake(one)

    async def wait(self, seconds: float | None = None) -> None:
        """Return once it has happened, after so many seconds, or when `wake` is called."""
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
    if not waiting.done():  # nor cancelled
        waiting.set_result(None)
