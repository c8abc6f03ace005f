"""Lazy event: an event that costs nothing when it is set before anybody waits for it."""

from __future__ import annotations

import anyio
import anyio.lowlevel

__all__ = ["LazyEvent"]


class LazyEvent:
    """An `anyio.Event` that is made by the first who waits for it.

    A driven call says of a handful of things that they are over, each to whoever may wait. Hardly
    ever somebody does, and what asks which event loop it is costs more than what it says.
    """

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Say that it has happened, and wake all who wait."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Return once it has happened."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
