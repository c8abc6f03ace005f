"""Task queue: tasks that run, tasks that wait, and their listeners, in memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

import anyio
from pydantic import JsonValue

from ..._internal.records import record
from ...checkpoint.base import Run
from ...errors import ToolError
from .engine import Behalf
from .threads import parent_thread

__all__ = ["TaskQueue", "Turn", "first_of"]


@record
class Turn:
    """A run that is to be carried on.

    Attributes:
        run: The run.
        answers: What it is resumed with.
        behalf: What it takes over.
    """

    run: Run
    answers: Mapping[str, JsonValue]
    behalf: Behalf | None


class TaskQueue:
    """A line of tasks for each thread that has started some; nothing here waits for anything.

    Args:
        max_running: Tasks of one thread that are carried at a time.
        max_open: Tasks of one thread that may be carried, in line, or about to begin.
    """

    def __init__(self, max_running: int, max_open: int) -> None:
        self._max_running = max_running
        self._max_open = max_open
        self._begin: Callable[[Turn], None] | None = None
        self._lines: dict[str, deque[Turn]] = {}
        self._carried: dict[str, Turn] = {}
        self._beginning: Counter[str] = Counter()
        self._news: WeakValueDictionary[str, anyio.Event] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """Whether tasks are carried at present."""
        return self._begin is not None

    def open(self, begin: Callable[[Turn], None]) -> None:
        """Begin to serve: `begin` is called for each turn that comes."""
        self._begin = begin

    def close(self) -> None:
        """Begin nothing any more, and forget who waits."""
        self._begin = None
        self._lines.clear()
        self._carried.clear()
        news = [*self._news.values()]
        self._news.clear()
        for event in news:  # whoever waits for something waits in vain
            event.set()

    # --- who -------------------------------------------------------------------------------

    def carries(self, thread_id: str) -> bool:
        """Whether the task of a thread is carried."""
        return any(one.run.thread_id == thread_id for one in self._carried.values())

    def is_carried(self, run: Run) -> bool:
        """Whether a run is."""
        return run.id in self._carried

    def turn(self, run: Run) -> Turn | None:
        """Return the turn for which a run is carried; None if it is not."""
        return self._carried.get(run.id)

    def waits(self, run: Run) -> bool:
        """Whether a run is in line."""
        return any(one.run.id == run.id for one in self._lines.get(_parent(run.thread_id), ()))

    # --- coming and going ------------------------------------------------------------------

    def enter(self, turn: Turn) -> None:
        """Put a run into the line of its thread, unless it is in it or carried."""
        known = self.is_carried(turn.run) or self.waits(turn.run)
        parent = _parent(turn.run.thread_id)
        if not known and self.is_open:
            self._lines.setdefault(parent, deque()).append(turn)
        self._next(parent)

    def remove(self, run: Run) -> None:
        """Take a run out of the line."""
        line = self._lines.get(_parent(run.thread_id), deque())
        for turn in [one for one in line if one.run.id == run.id]:
            line.remove(turn)

    def done(self, run: Run) -> None:
        """Say that a run is not carried any more."""
        self._carried.pop(run.id, None)

    def stir(self, thread_id: str) -> None:
        """Say that something has happened on the thread of a task."""
        parent = _parent(thread_id)
        event = self._news.pop(parent, None)
        if event is not None:
            event.set()
        self._next(parent)

    def news(self, thread_id: str) -> anyio.Event:
        """Return what is set when something next happens on a thread, or on one beside it."""
        return self._news.setdefault(_parent(thread_id), anyio.Event())

    @contextmanager
    def room(self, parent: str) -> Generator[None]:
        """Keep room for one more task of a thread while it begins.

        Raises:
            ToolError: There is none.
        """
        count = self._beginning[parent] + self._busy(parent) + len(self._lines.get(parent, ()))
        if count >= self._max_open:
            raise ToolError(
                f"{count} background tasks of this thread are open and no more are allowed, so "
                "none was started. Wait for some of them, or cancel some."
            )
        self._beginning[parent] += 1
        try:
            yield
        finally:
            self._beginning[parent] -= 1
            if not self._beginning[parent]:
                del self._beginning[parent]

    def _next(self, parent: str) -> None:
        line = self._lines.get(parent)
        while line and self._begin is not None and self._busy(parent) < self._max_running:
            turn = line.popleft()
            self._carried[turn.run.id] = turn
            self._begin(turn)
        if not line:
            self._lines.pop(parent, None)

    def _busy(self, parent: str) -> int:
        return sum(_parent(one.run.thread_id) == parent for one in self._carried.values())


def _parent(thread_id: str) -> str:
    return parent_thread(thread_id) or ""


async def first_of(events: Sequence[anyio.Event]) -> None:
    """Wait for the first of some events."""
    if len(events) == 1:
        await events[0].wait()
        return
    async with anyio.create_task_group() as group:

        async def one(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in events:
            group.start_soon(one, event)
