"""Events between a run and the one consumer that reads them, with back-pressure."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

__all__ = ["EventBuffer", "raising_one"]

T = TypeVar("T")


class EventBuffer(Generic[T]):
    """A queue whose producer never blocks where it puts, and waits where it can (`room`).

    A run emits from synchronous code, so `put` always takes the event; between phases, and after
    each piece of a model's answer, the run waits until the consumer has caught up.

    Args:
        size: Events that may wait before the producer does.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._items: deque[T] = deque()
        self._readable = anyio.Event()
        self._room = anyio.Event()
        self._ended = False

    def put(self, item: T) -> None:
        """Add an event."""
        self._items.append(item)
        self._readable.set()

    async def room(self) -> None:
        """Wait until fewer events wait than the buffer holds, or it has ended."""
        while len(self._items) >= self._size and not self._ended:
            if self._room.is_set():  # else others, such as parallel subagents, wait for it too
                self._room = anyio.Event()
            await self._room.wait()

    def end(self) -> None:
        """Say that nothing more comes, or that nobody reads any more."""
        self._ended = True
        self._readable.set()
        self._room.set()

    def __aiter__(self) -> EventBuffer[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._readable = anyio.Event()
            await self._readable.wait()
        item = self._items.popleft()
        if len(self._items) < self._size:
            self._room.set()
        return item


@asynccontextmanager
async def raising_one() -> AsyncGenerator[None, None]:
    """Raise the error itself where a task group of one task raises a group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None
