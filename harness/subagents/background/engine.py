"""Run engine: the protocol that background tasks run through, their threads, and their queue.

The journal is the only truth: an engine's memory only holds what is running now. The threads of a
thread's background tasks belong to it, and are removed with it. The queue holds running tasks,
waiting tasks, and their listeners.
"""

from __future__ import annotations

import logging
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
from ...loop.hooks.calling import FAILURES, as_failure
from ...loop.hooks.middleware import hooks_of
from ...loop.hooks.requests import Runtime
from ...loop.run.context import RunControl
from ...loop.run_executor import RunOptions
from ...messages.message import new_id

__all__ = [
    "ALL",
    "OPEN",
    "AgentSource",
    "Behalf",
    "QueuedTask",
    "TaskEngine",
    "TaskQueue",
    "accepted_run",
    "delete_with_tasks",
    "first_of",
    "is_subagent",
    "parent_thread",
    "task_thread",
    "task_threads",
]


logger = logging.getLogger(__name__)

_FORGET_SECONDS = 10

OPEN: tuple[RunStatus, ...] = ("running", "paused")
"""Statuses of runs that may be abandoned."""

ALL = 1_000_000
"""A limit above the number of open runs."""


class AgentSource(Protocol):
    """Finds subagents by name."""

    def __call__(self, name: str) -> Agent:
        """Return the agent of a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
            HarnessError: It cannot be built now.
        """
        ...


@record
class Behalf:
    """Context that a task inherits from the run that started it; not stored in the journal.

    Attributes:
        context: As in `RunOptions`.
        principal: As in `RunOptions`.
    """

    context: Any = None
    principal: str = ""


class TaskEngine(Protocol):
    """Executes runs on their own threads."""

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
        """Wait until a run has paused or ended. Its errors are in the journal then.

        An engine may let another process execute it. A run that another living process already
        works on stays as it is.

        Raises:
            RunEnded: It has ended meanwhile.
            HarnessError: The run cannot continue now; nothing was stored.
        """
        ...

    async def cancel(self, run: Run, reason: str) -> Run:
        """End a run, and return its record once it has ended; an ended run stays as it is.

        Raises:
            HarnessError: Another living process works on it.
        """
        ...

    async def is_left(self, run: Run) -> bool:
        """Whether a run that is `running`, or has not started, is abandoned."""
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
        name: The name by which it is found, stored in its record; the `Agent`'s own may differ.
        thread_id: An idle thread.
        update: The input.
        options: The options of the run.
        for_anybody: A reason, to leave it `running` for any process that looks for abandoned
            runs. None to leave it `paused`.

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
    """Return the thread to which a task's thread belongs; None for other threads."""
    found = _TASK_THREAD.fullmatch(thread_id)
    return found[1] if found else None


def is_subagent(runtime: Runtime) -> bool:
    """Whether an agent works for another agent, in its thread or in the background."""
    return bool(runtime.ns) or parent_thread(runtime.thread_id) is not None


async def task_threads(journal: Checkpointer, thread_id: str) -> Sequence[str]:
    """Return the threads of a thread's tasks, and of their tasks, sorted by id."""
    found = await journal.threads(limit=_ALL, prefix=f"{thread_id}.task-")
    return sorted(one.thread_id for one in found if _is_below(one.thread_id, thread_id))


async def delete_with_tasks(
    journal: Checkpointer, thread_id: str, agent: Agent | None = None
) -> None:
    """Delete a thread with its runs and background tasks; unknown ids are ignored.

    No process may work on them; `BackgroundSubAgents.delete` ends tasks first. The thread is
    deleted last: if the journal fails in between, the same call can be repeated.

    Args:
        journal: The journal.
        thread_id: The thread.
        agent: The thread's agent, if it works in this process: it ends commands that still run in
            the background.

    Raises:
        CheckpointError: The journal cannot be written.
    """
    for one in (*await task_threads(journal, thread_id), thread_id):
        await journal.delete_thread(one)
        if agent is not None:
            await _forget(agent, one)


async def _forget(agent: Agent, thread_id: str) -> None:
    """Have middleware release what it keeps for a deleted thread; no error of it matters."""
    known = {id(one): one for one in agent.definition.middleware}
    for one in (left := [*known.values()]):  # it grows: a subagent may have subagents
        further = [below for below in one.of_subagents() if id(below) not in known]
        known |= {id(below): below for below in further}
        left += further
    for one in hooks_of([*known.values()], "thread_deleted"):
        with anyio.move_on_after(_FORGET_SECONDS) as limit:
            try:
                await one.thread_deleted(thread_id)
            except FAILURES as raised:
                logger.warning("%s.thread_deleted raised", one.name, exc_info=as_failure(raised))
        if limit.cancelled_caught:
            text = "thread_deleted of %s took more than %d s"
            logger.warning(text, one.name, _FORGET_SECONDS)


def _is_below(task: str, thread_id: str) -> bool:
    """Whether a thread belongs to a task; other ids may begin in the same way."""
    above = parent_thread(task)
    while above is not None and above != thread_id:
        above = parent_thread(above)
    return above == thread_id


@record
class QueuedTask:
    """A run to execute.

    Attributes:
        run: The run.
        behalf: The context that it inherits.
    """

    run: Run
    behalf: Behalf | None


class TaskQueue:
    """A queue of tasks for each thread that has started some; no method waits.

    Args:
        max_running: The most tasks of one thread that are executed at a time.
        max_open: The most tasks of one thread that are executed, queued, or about to start.
    """

    def __init__(self, max_running: int, max_open: int) -> None:
        self._max_running = max_running
        self._max_open = max_open
        self._begin: Callable[[QueuedTask], None] | None = None
        self._lines: dict[str, deque[QueuedTask]] = {}
        self._executing: dict[str, QueuedTask] = {}
        self._beginning: Counter[str] = Counter()
        self._changes: WeakValueDictionary[str, anyio.Event] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """Whether tasks are executed now."""
        return self._begin is not None

    def open(self, begin: Callable[[QueuedTask], None]) -> None:
        """Start the queue: `begin` is called for each turn."""
        self._begin = begin

    def close(self) -> None:
        """Start nothing more, and clear the queue."""
        self._begin = None
        self._lines.clear()
        self._executing.clear()
        changes = [*self._changes.values()]
        self._changes.clear()
        for event in changes:  # nothing more will happen for waiting tasks
            event.set()

    # --- who -------------------------------------------------------------------------------

    def is_busy(self, thread_id: str) -> bool:
        """Whether the task of a thread is being executed."""
        return any(one.run.thread_id == thread_id for one in self._executing.values())

    def is_executing(self, run: Run) -> bool:
        """Whether a run is being executed."""
        return run.id in self._executing

    def turn(self, run: Run) -> QueuedTask | None:
        """Return the turn of a run that is being executed; None for others."""
        return self._executing.get(run.id)

    def waits(self, run: Run) -> bool:
        """Whether a run is queued."""
        return any(one.run.id == run.id for one in self._lines.get(_parent(run.thread_id), ()))

    # --- coming and going ------------------------------------------------------------------

    def enter(self, turn: QueuedTask) -> None:
        """Add a run to the queue of its thread, unless it is queued or being executed."""
        known = self.is_executing(turn.run) or self.waits(turn.run)
        parent = _parent(turn.run.thread_id)
        if not known and self.is_open:
            self._lines.setdefault(parent, deque()).append(turn)
        self._next(parent)

    def remove(self, run: Run) -> None:
        """Remove a run from the queue."""
        line = self._lines.get(_parent(run.thread_id), deque())
        for turn in [one for one in line if one.run.id == run.id]:
            line.remove(turn)

    def done(self, run: Run) -> None:
        """Note that a run is no longer executed."""
        self._executing.pop(run.id, None)

    def thread_changed(self, thread_id: str) -> None:
        """Note that something has happened on the thread of a task."""
        parent = _parent(thread_id)
        event = self._changes.pop(parent, None)
        if event is not None:
            event.set()
        self._next(parent)

    def next_change(self, thread_id: str) -> anyio.Event:
        """Return an event that is set when something happens on a thread, or on a sibling's."""
        return self._changes.setdefault(_parent(thread_id), anyio.Event())

    @contextmanager
    def room(self, parent: str) -> Generator[None]:
        """Reserve room for one more task of a thread while it starts.

        Raises:
            ToolError: There is no room.
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
            self._executing[turn.run.id] = turn
            self._begin(turn)
        if not line:
            self._lines.pop(parent, None)

    def _busy(self, parent: str) -> int:
        return sum(_parent(one.run.thread_id) == parent for one in self._executing.values())


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
