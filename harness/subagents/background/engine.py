"""Run engine: the protocol that background tasks run through, their threads, and their queue.

The journal is the only truth: what an engine holds in memory is who is running right now. The
threads of a thread's background tasks are its own, and are removed with it. The queue holds running
tasks, waiting tasks, and their listeners.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

import anyio

from ..._internal.records import record
from ...checkpoint.base import Checkpointer, Run, RunStatus
from ...errors import ToolError
from ...loop.agent import Agent
from ...loop.run.context import RunControl
from ...loop.run_executor import RunOptions
from ...messages.message import new_id

__all__ = [
    "ALL",
    "OPEN",
    "AgentSource",
    "Behalf",
    "RunEngine",
    "TaskQueue",
    "Turn",
    "accepted_run",
    "delete_with_tasks",
    "first_of",
    "parent_thread",
    "task_thread",
    "task_threads",
]


OPEN: tuple[RunStatus, ...] = ("running", "paused")
"""What a run is recorded as that somebody may have left behind."""

ALL = 1_000_000
"""More runs than are ever open."""


class AgentSource(Protocol):
    """Finds subagents by name."""

    def __call__(self, name: str) -> Agent:
        """Return the agent of a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
            HarnessError: It cannot be had now.
        """
        ...


@record
class Behalf:
    """Context that a task takes over from the run that started it; not kept in the journal.

    Attributes:
        context: As in `RunOptions`.
        principal: Likewise.
    """

    context: Any = None
    principal: str = ""


class RunEngine(Protocol):
    """Executes runs on threads of their own."""

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """Accept input on an idle thread; return the run, which does nothing yet.

        Raises:
            ThreadBusy: Another process was faster; nothing was stored.
            HarnessError: The input was refused; nothing was stored.
        """
        ...

    async def carry(self, run: Run, behalf: Behalf | None) -> None:
        """Return when a run has paused or ended. What it meets is in the journal then.

        An engine may have another process carry it. A run that another living process works on
        already stays as it is.

        Raises:
            RunEnded: It has ended meanwhile.
            HarnessError: The run cannot go on now; nothing was stored.
        """
        ...

    async def cancel(self, run: Run, reason: str) -> Run:
        """End a run, and return its record once it has ended; one that had stays as it is.

        Raises:
            HarnessError: Another living process works on it.
        """
        ...

    async def is_left(self, run: Run) -> bool:
        """Whether a run that is recorded as `running`, or that has not begun, is nobody's."""
        ...


async def accepted_run(
    agent: Agent,
    name: str,
    thread_id: str,
    update: Mapping[str, Any],
    options: RunOptions,
    *,
    for_anybody: str | None = None,
) -> Run:
    """Store input as the first step of a run that continues when it is resumed.

    Args:
        agent: The agent.
        name: What it is found by, which its record keeps; an `Agent` may call itself otherwise.
        thread_id: An idle thread.
        update: The input.
        options: How the run begins.
        for_anybody: Why it does nothing yet, if it is left, as `running`, to whoever looks for
            runs that nobody works on. None to leave it `paused`.

    Raises:
        HarnessError: As for `Agent.ainvoke`; nothing was stored.
    """
    control = RunControl()
    if for_anybody is None:
        control.drain()
    else:
        control.hand_over(for_anybody)
    run_id = options.run_id or new_id("run")
    options = replace(options, run_id=run_id, control=control, durability="sync")
    if agent.name != name:
        agent = copy(agent)
        agent.definition = replace(agent.definition, name=name)
    return (await agent.ainvoke(update, thread_id=thread_id, options=options)).run


_ALL = 1_000_000

_TASK_THREAD = re.compile(r"(.+)\.(task-[0-9a-f]{8})")


def task_thread(thread_id: str, task_id: str) -> str:
    """Return the thread of a task of a thread."""
    return f"{thread_id}.{task_id}"


def parent_thread(thread_id: str) -> str | None:
    """Return the thread a task's thread belongs to; None if it is none of a task."""
    found = _TASK_THREAD.fullmatch(thread_id)
    return found[1] if found else None


async def task_threads(journal: Checkpointer, thread_id: str) -> Sequence[str]:
    """Return the threads of a thread's tasks, and those of theirs, in order of their ids."""
    found = await journal.threads(limit=_ALL, prefix=f"{thread_id}.task-")
    return sorted(one.thread_id for one in found if _is_below(one.thread_id, thread_id))


async def delete_with_tasks(journal: Checkpointer, thread_id: str) -> None:
    """Delete a thread with its runs, and those of its background tasks; unknown ids do nothing.

    Nobody may be at work on them; `BackgroundSubAgents.delete` ends tasks first. The thread goes
    last: when the journal fails in between, the same call does the rest.

    Raises:
        CheckpointError: The journal cannot be written.
    """
    for one in await task_threads(journal, thread_id):
        await journal.delete_thread(one)
    await journal.delete_thread(thread_id)


def _is_below(task: str, thread_id: str) -> bool:
    """Whether a thread is one of a task; others may have ids that begin alike."""
    above = parent_thread(task)
    while above is not None and above != thread_id:
        above = parent_thread(above)
    return above == thread_id


@record
class Turn:
    """A run that is to be executed.

    Attributes:
        run: The run.
        behalf: What it takes over.
    """

    run: Run
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
        """Whether tasks are executed at present."""
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
        """Whether the task of a thread is executed."""
        return any(one.run.thread_id == thread_id for one in self._carried.values())

    def is_carried(self, run: Run) -> bool:
        """Whether a run is."""
        return run.id in self._carried

    def turn(self, run: Run) -> Turn | None:
        """Return the turn for which a run is executed; None if it is not."""
        return self._carried.get(run.id)

    def waits(self, run: Run) -> bool:
        """Whether a run is in line."""
        return any(one.run.id == run.id for one in self._lines.get(_parent(run.thread_id), ()))

    # --- coming and going ------------------------------------------------------------------

    def enter(self, turn: Turn) -> None:
        """Add a run to the queue of its thread, unless it is in it or executed."""
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
        """Say that a run is not executed any more."""
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
