"""Thread queues: each thread has one working run, and its other runs wait in line."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from ....harness._internal.concurrency import raising_one
from ....harness.checkpoint.base import Checkpointer, Run
from ....harness.errors import HarnessError
from ..active_run import ActiveRun
from ..cancellation import Cancellation
from ..contracts import Changed, Servers, holder_of, moved_on
from ..lifecycle import Stopping
from .turns import Turns

__all__ = ["LOOK_SECONDS", "PAUSE", "ThreadQueues"]

LOOK_SECONDS = 5.0
"""Seconds to wait for the first run in line on a thread before it is checked again."""

_MOST_IN_LINE = 1_000
"""The most queued runs of one thread that are read."""

PAUSE = 1.0
"""Seconds to wait before a failed attempt is repeated."""

logger = logging.getLogger(__name__)


class Supervisor(Protocol):
    """Executes runs on this server; see `RunSupervisor`."""

    owner: str
    servers: Servers
    stopping: Stopping
    cancellation: Cancellation
    changed: Changed
    live: dict[str, ActiveRun]

    def goes_on(self, run_id: str) -> bool: ...
    async def is_left(self, run: Run) -> bool: ...
    async def adopt(self, run: Run, *, here: bool = False) -> bool: ...


class ThreadQueues:
    """Starts the queued runs of each thread, one after the other.

    Args:
        journal: The journal.
        supervisor: Executes runs on this server.
        group: The task group in which it waits.
        turns: Says which goals interrupt.
        offer: Asks the engine to start a run.
    """

    def __init__(
        self,
        journal: Checkpointer,
        supervisor: Supervisor,
        group: TaskGroup,
        turns: Turns,
        offer: Callable[[Run], Awaitable[bool]],
    ) -> None:
        self._journal = journal
        self._supervisor = supervisor
        self._group = group
        self._turns = turns
        self._offer = offer
        self._guarded: dict[str, anyio.Event] = {}

    def guard(self, thread_id: str) -> None:
        """Make sure that the queued runs of a thread start, one after the other."""
        if thread_id in self._guarded:
            self._guarded[thread_id].set()
            return
        self._guarded[thread_id] = anyio.Event()
        self._group.start_soon(self._guard, thread_id, name=f"line of {thread_id}")

    async def _guard(self, thread_id: str) -> None:
        try:
            while not self._supervisor.stopping.has_begun:
                try:
                    waits = await self._let_on(thread_id)
                    if not (waits or self._guarded[thread_id].is_set()):  # nor has one just come
                        return
                except HarnessError as error:
                    logger.warning("queued runs on thread %s wait: %s", thread_id, error)
                    await anyio.sleep(PAUSE)
        finally:
            del self._guarded[thread_id]

    async def _let_on(self, thread_id: str) -> bool:
        """Wait for a change on a thread; return whether any of its runs are in line."""
        self._guarded[thread_id] = anyio.Event()
        line = await self.line(thread_id)
        if not line:
            return False
        first, holder = line[0], await holder_of(self._journal, thread_id)
        if holder is None:
            await self._offer(first)
            await self._moved(first)
            return True
        turn = await self._turns.of(first.id)
        if turn.interrupts and await self._is_older(holder, first):
            await self._supervisor.cancellation.end(holder, f"interrupted by run {first.id}")
            return True
        if holder.status == "running" and await self._supervisor.is_left(holder):
            await self._supervisor.adopt(holder)
        await self._moved(holder)
        return True

    async def _moved(self, run: Run) -> None:
        """Wait a few seconds at most for a change of a run, or of the line on its thread."""
        with anyio.move_on_after(LOOK_SECONDS):
            async with raising_one(), anyio.create_task_group() as group:
                group.start_soon(self._run_moved, run, group.cancel_scope)
                await self._guarded[run.thread_id].wait()
                group.cancel_scope.cancel()

    async def _run_moved(self, run: Run, scope: anyio.CancelScope) -> None:
        live = self._supervisor.live.get(run.id)
        if live is not None:
            await live.finished.wait()
        else:
            await moved_on(self._journal, self._supervisor.servers.run_changes, run)
        scope.cancel()

    async def line(self, thread_id: str) -> Sequence[Run]:
        """Return the queued runs of a thread, the next one first."""
        found = await self._journal.find_runs(
            thread_id=thread_id, status="queued", limit=_MOST_IN_LINE
        )
        newest_first = [*found]
        if len(newest_first) > 1:
            for run in found:
                if (await self._turns.of(run.id)).interrupts:
                    newest_first.remove(run)
                    newest_first.append(run)
                    break
        return newest_first[::-1]

    async def _is_older(self, run: Run, other: Run) -> bool:
        """Tell whether a run was accepted before another run of its thread.

        The journal keeps the order. The times in the records come from clocks of several machines.
        """
        known = await self._journal.find_runs(thread_id=run.thread_id, limit=_MOST_IN_LINE)
        newer = next((one.id for one in known if one.id in (run.id, other.id)), other.id)
        return newer == other.id

    async def waits_for(self, *runs: Run) -> Sequence[str]:
        """Return in words what each of these queued runs waits for."""
        ahead: dict[str, str | None] = {}
        for thread_id in {run.thread_id for run in runs}:
            line = [one.id for one in await self.line(thread_id)]
            holder = await holder_of(self._journal, thread_id)
            first = None if holder is None else holder.id
            ahead.update(zip(line, [first, *line], strict=False))
        return [_behind(run.id, ahead.get(run.id)) for run in runs]


def _behind(run_id: str, ahead: str | None) -> str:
    if ahead in (None, run_id):  # it may have begun since its line was read
        return "waits for a free place"
    return f"queued behind run {ahead}"
