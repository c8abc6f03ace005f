"""A run this process works on: who hears its events, what it has written, what it does now."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import cast

import anyio

from ...harness.agent import RunResult
from ...harness.errors import HarnessError
from ...harness.loop.events import Emit, Event
from ...harness.loop.run_context import RunControl
from ..sampling.queue import Offer, SampledRun

__all__ = ["ActiveRun"]

MAX_UNHEARD = 16
"""How many events are kept for who will listen."""

WRITERS = ("write_file", "edit_file")
"""Tools that write the file at `path`."""


@dataclass(slots=True)
class ActiveRun:
    """A run this process works on.

    Attributes:
        run_id: The run.
        thread_id: Its thread.
        brief: A driven call, which others may wait for.
        counts: Whether it counts as one of its owner's runs at work.
        control: Ends it.
        finished: Set when it has paused or ended.
        listeners: Receive its events.
        unheard: Events so far, while nobody has listened yet.
        written: Paths of files it has written.
        line: The newest thing it does that is worth a line.
        offer: What the client lends of its model that made it go; None if it goes on by itself.
        sampled: Its calls of a client's model, while it is carried.
        result: Where it stopped.
        error: Why it could not be carried at all.
    """

    run_id: str
    thread_id: str
    brief: bool = False
    counts: bool = True
    offer: Offer | None = None
    sampled: SampledRun | None = None
    control: RunControl = field(default_factory=RunControl)
    finished: anyio.Event = field(default_factory=anyio.Event)
    listeners: list[Emit] = field(default_factory=list[Emit])
    unheard: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_UNHEARD))
    written: dict[str, None] = field(default_factory=dict[str, None])
    line: str | None = None
    result: RunResult | None = None
    error: HarnessError | None = None

    def hear(self, event: Event) -> None:
        """Pass an event on, or keep it for the first listener: a run starts before its caller."""
        for listener in self.listeners:
            listener(event)
        if not self.listeners:
            self.unheard.append(event)

    async def listen(self, emit: Emit | None) -> None:
        """Wait until the run has paused or ended; its events go to `emit` meanwhile."""
        if emit is None:
            await self.finished.wait()
            return
        while self.unheard:
            emit(self.unheard.popleft())
        self.listeners.append(emit)
        try:
            await self.finished.wait()
        finally:
            self.listeners.remove(emit)

    def note_written(self, tool: object, args: object) -> None:
        """Remember which file a call writes, for the notice that goes out after it."""
        if tool in WRITERS and isinstance(args, dict):
            path = cast("dict[str, object]", args).get("path")
            if isinstance(path, str):
                self.written["/" + path.lstrip("/")] = None
