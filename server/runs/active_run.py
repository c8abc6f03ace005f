"""Active run: a run of this process, its listeners, and what it does now."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import anyio

from ...harness.agent import RunResult
from ...harness.errors import HarnessError
from ...harness.loop.run.context import RunControl
from ...harness.loop.run.events import Emit, Event
from ..sampling.queue import Offer, SampledRun

__all__ = ["PARTS", "ActiveRun", "ThreadPart"]

ThreadPart: TypeAlias = Literal["todos", "transcript", "checkpoints", "files"]
"""What of a thread can be read; `files` is the listing."""

PARTS: tuple[ThreadPart, ...] = ("todos", "transcript", "checkpoints", "files")
"""All of them."""

MAX_UNHEARD = 16
"""How many events are kept for who will listen."""

WRITERS = ("write_file", "edit_file")
"""Tools that write the file at `path`."""

COMMANDS = ("execute", "job")
"""Tools that may write any file."""

_PARTS: Mapping[str, ThreadPart] = {"messages": "transcript", "todos": "todos", "files": "files"}
"""What clients read of a state key."""


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
        written: Paths of files it has written since that was last announced.
        ran_commands: Whether it has run commands since.
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
    ran_commands: bool = False
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
        self.ran_commands = self.ran_commands or tool in COMMANDS
        if tool in WRITERS and isinstance(args, dict):
            path = cast("dict[str, object]", args).get("path")
            if isinstance(path, str):
                self.written["/" + path.lstrip("/")] = None

    def changed_by(self, event: Event) -> set[ThreadPart]:
        """Return what of the thread a checkpoint has changed, but for files it does not hold.

        That of a subagent is none of the thread's own: what it brings comes with its caller's.
        """
        if len(event.path) > 1:
            return set()
        keys = cast("list[str]", event.data.get("keys") or ())
        return {"checkpoints", *(_PARTS[key] for key in keys if key in _PARTS)}

    def take_written(self) -> tuple[set[ThreadPart], list[str]]:
        """Return what is to be announced of files that were written, and forget it."""
        parts: set[ThreadPart] = {"files"} if self.ran_commands else set()
        files = [*self.written]
        self.written.clear()
        self.ran_commands = False
        return parts, files
