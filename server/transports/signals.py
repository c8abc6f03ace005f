"""Signals that stop a server: the first one asks it to end, the next one to do so at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType

import anyio

__all__ = ["Stop", "stop_on_signals", "until"]


@dataclass(slots=True, eq=False)
class Stop:
    """The signal to stop that a process has received.

    Attributes:
        asked: Set once the process has to end.
    """

    asked: anyio.Event = field(default_factory=anyio.Event)
    _at_once: anyio.Event | None = None

    @contextmanager
    def draining(self) -> Generator[anyio.Event]:
        """Yield an event that the next signal sets, for a server that shuts down slowly."""
        self._at_once = anyio.Event()
        try:
            yield self._at_once
        finally:
            self._at_once = None

    @property
    def is_draining(self) -> bool:
        """Whether the next signal still has an effect."""
        return self._at_once is not None and not self._at_once.is_set()

    def hear(self) -> None:
        """Handle a signal."""
        if not self.asked.is_set():
            self.asked.set()
        elif self._at_once is not None:
            self._at_once.set()


@contextmanager
def stop_on_signals() -> Generator[Stop]:
    """Yield the state that SIGINT and SIGTERM set; a second SIGINT ends a process that is idle.

    The bare SDK does not end on SIGINT alone. Hosts send SIGTERM soon after SIGINT, which must not
    interrupt the clean shutdown or the interpreter's own. So after a signal, further signals are
    ignored once the block has ended. Main thread only.
    """
    stop = Stop()
    loop = asyncio.get_running_loop()
    interrupted = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted += number == signal.SIGINT
        if interrupted > 1 and (interrupted > 2 or not stop.is_draining):
            os._exit(128 + number)  # a person at a terminal who has lost patience
        loop.call_soon_threadsafe(stop.hear)

    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in handled}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if stop.asked.is_set() else handler)


@asynccontextmanager
async def until(stop: anyio.Event) -> AsyncGenerator[None]:
    """Cancel the body when `stop` is set."""

    async def cancel_when_set(scope: anyio.CancelScope) -> None:
        await stop.wait()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when_set, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()
