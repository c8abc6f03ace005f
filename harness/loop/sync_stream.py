"""The async API for code that has no event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["iterate", "refuse_in_event_loop", "run_sync"]

T = TypeVar("T")


def refuse_in_event_loop(name: str) -> None:
    """Raise `RuntimeError` if an event loop runs in this thread: a sync call would stop it."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{name}() was called where an event loop is running, which it would block; nothing was "
        f"done. Use a{name}() there instead."
    )


def run_sync(function: Callable[[], Awaitable[T]], name: str) -> T:
    """Run an async function in an event loop of its own.

    Args:
        function: What to run.
        name: The sync method it is for.

    Raises:
        RuntimeError: An event loop is running in this thread.
    """
    refuse_in_event_loop(name)
    return anyio.run(function)


def iterate(
    begin: Callable[[], tuple[AsyncGenerator[T, None], Callable[[], None]]],
) -> Generator[T, None, None]:
    """Yield what an async generator yields; it runs in an event loop of a thread of its own.

    It is read by one task from beginning to end. What it raises is raised here.

    Args:
        begin: Makes the generator, and a function that makes it end soon, for a reader who leaves
            early. Both are called in the event loop.
    """

    async def pump(items: AsyncGenerator[T, None], send: MemoryObjectSendStream[T]) -> None:
        async with send, aclosing(items):
            async for item in items:
                try:
                    await send.send(item)
                except anyio.BrokenResourceError:
                    return  # the reader has left

    async def next_of(receive: MemoryObjectReceiveStream[T]) -> list[T]:
        try:
            return [await receive.receive()]
        except anyio.EndOfStream:
            return []

    with start_blocking_portal() as portal:
        send, receive = anyio.create_memory_object_stream[T](0)
        items, leave = portal.call(begin)
        pumped = portal.start_task_soon(pump, items, send)
        try:
            while found := portal.call(next_of, receive):
                yield found[0]
        except BaseException:
            portal.call(leave)
            raise
        finally:
            portal.call(receive.aclose)
            pumped.result()
