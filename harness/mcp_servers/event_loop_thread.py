"""Event loop thread: runs work that must outlive the task that started it.

A session with an MCP server is opened by one call and used by all later ones, from any run, any
agent and any event loop (`Agent.invoke` makes a new loop every time). So its tasks and cancel
scopes cannot belong to any of its callers: they live on this loop, and callers submit work to it.
Submitted work is cancelled with its caller, but tasks that it started with `spawn` are not.

The two sides talk by `call_soon_threadsafe` and never wait for each other's loop, so a slow caller
blocks neither the worker nor other callers. Both loops are asyncio's.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from .._internal.records import record

__all__ = ["EventLoopThread", "Inbox", "WorkerStopped"]

T = TypeVar("T")

_EXIT_SECONDS = 5.0


class WorkerStopped(Exception):
    """The worker was stopped before the work was done."""


class Inbox(Generic[T]):
    """Takes items from any thread for a reader on the loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._arrived = anyio.Event()

    def put(self, item: T) -> None:
        """Add an item; from any thread, without waiting."""
        self._items.append(item)
        with suppress(RuntimeError):  # the reader's loop is closed, so no reader waits
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self._arrived.set()

    async def get(self) -> T:
        """Wait for the next item."""
        while not self._items:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._items.popleft()


@dataclass(slots=True)
class _Done:
    """The end of a piece of work."""

    result: Any = None
    error: BaseException | None = None


@record
class _Running:
    """The thread's loop, and the task group on it."""

    loop: asyncio.AbstractEventLoop
    group: TaskGroup


class EventLoopThread:
    """Runs work on its own loop. The thread starts with the first work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._starting = threading.Lock()
        self._running: _Running | None = None
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    async def run(
        self,
        work: Callable[[Callable[[Any], None]], Awaitable[T]],
        hear: Callable[[Any], None] | None = None,
    ) -> T:
        """Do work on the worker's loop and return its result.

        Args:
            work: Gets a function that sends things to `hear`, which runs here, in this task.
            hear: Its exceptions end the work and are raised by this call.

        Raises:
            WorkerStopped: `stop` was called first.
        """
        inbox: Inbox[Any] = Inbox()
        scope = anyio.CancelScope()

        async def do() -> None:
            done = _Done(error=WorkerStopped("stopped before the work was done"))
            try:
                with scope:
                    done = _Done(await work(inbox.put))
            except Exception as error:  # noqa: BLE001  it is raised in the caller's task
                done = _Done(error=error)
            finally:
                inbox.put(done)

        running = self._begin(do)
        try:
            while not isinstance(item := await inbox.get(), _Done):
                if hear is not None:
                    hear(item)
        except BaseException:
            with suppress(RuntimeError):  # the worker has stopped, and the work with it
                running.loop.call_soon_threadsafe(scope.cancel)
            raise
        if item.error is not None:
            raise item.error
        return cast(T, item.result)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that belongs to no caller, from the worker's loop. It must not raise."""
        assert self._running is not None
        self._running.group.start_soon(work)

    async def stop(self) -> None:
        """Cancel remaining work and end the thread; the next work starts another."""
        thread = self._cancel()
        if thread is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> _Running:
        """Start work; work that started before `stop` is still notified of the stop."""
        with self._starting:
            if self._running is None or not self.alive:
                started: Future[_Running] = Future()
                self._thread = threading.Thread(
                    target=self._live, args=(started,), name=self._name, daemon=True
                )
                self._thread.start()
                self._running = started.result()
                atexit.register(self._at_exit)
            running = self._running
            running.loop.call_soon_threadsafe(running.group.start_soon, work)
            return running

    def _live(self, started: Future[_Running]) -> None:
        async def main() -> None:
            async with anyio.create_task_group() as group:
                started.set_result(_Running(asyncio.get_running_loop(), group))
                await anyio.sleep_forever()

        anyio.run(main, backend="asyncio")

    def _cancel(self) -> threading.Thread | None:
        with self._starting:
            running, thread = self._running, self._thread
            self._running = self._thread = None
            atexit.unregister(self._at_exit)
            if running is not None:
                with suppress(RuntimeError):  # the loop is closed already
                    running.loop.call_soon_threadsafe(running.group.cancel_scope.cancel)
        return thread

    def _at_exit(self) -> None:
        """End child processes properly when the program ends without `stop`."""
        thread = self._cancel()
        if thread is not None:
            thread.join(_EXIT_SECONDS)
