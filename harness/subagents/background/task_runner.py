"""Task runner: executes background runs, each isolated from the failures of others."""

from __future__ import annotations

import logging
import time
from weakref import WeakValueDictionary

import anyio

from ...checkpoint.base import ENDED as ENDED_RUNS
from ...checkpoint.base import Checkpointer, Run, taken_over
from ...errors import CheckpointError, HarnessError, RunEnded, Superseded, ThreadBusy, ToolError
from ...loop.hooks.calling import FAILURES, as_failure
from .engine import ALL, OPEN, AgentSource, Behalf, QueuedTask, TaskEngine, TaskQueue, parent_thread
from .tasks import ENDED, TaskStatus, status_of, unread

__all__ = ["POLL_SECONDS", "TaskRunner"]

_STOP_SECONDS = 10
_PATIENCE = 120.0
_LONGEST_PAUSE = 30.0
_FIRST = 100
_KEPT_ENDED = 1_000

POLL_SECONDS = 0.5
"""Seconds between two checks of a task of another process."""

logger = logging.getLogger(__name__)


class TaskRunner:
    """Executes tasks until they stop: done, failed, or waiting for a person.

    Args:
        checkpointer: The journal.
        agents: Finds the agent of a run by name.
        engine: Executes one run.
        tasks: The queue of tasks.
    """

    def __init__(
        self, checkpointer: Checkpointer, agents: AgentSource, engine: TaskEngine, tasks: TaskQueue
    ) -> None:
        self._journal = checkpointer
        self._agents = agents
        self._engine = engine
        self._tasks = tasks
        self._failing: dict[str, float] = {}
        self._behalves = _Behalves()
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def forget(self) -> None:
        """Forget which runs could not continue."""
        self._failing.clear()

    def lock(self, thread_id: str) -> anyio.Lock:
        """Return a lock for changes of a task's input."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    async def newest(self, thread_id: str) -> Run | None:
        """Return the newest run of the task, without driven calls on its thread."""
        if parent_thread(thread_id) is None:
            return None
        limit = _FIRST
        while True:
            runs = await self._journal.find_runs(thread_id=thread_id, limit=limit)
            found = next((one for one in runs if one.kind == "delegate"), None)
            if found is not None or len(runs) < limit:
                return found
            limit *= 10

    async def status(self, run: Run) -> TaskStatus:
        """Return the status of a run's task.

        An ended run that is still being executed is `running` if a message continues it.
        """
        if self._tasks.waits(run):
            return "pending"
        status, turn = status_of(run), self._tasks.turn(run)
        if turn is None:
            return status
        if status == "pending" and run.status == "running":
            return status
        begun = run.attempt > turn.run.attempt  # before that, its record shows how it stopped last
        stays = status in ENDED and begun and not await self._has_unread(run)
        return status if stays else "running"

    async def _has_unread(self, run: Run) -> bool:
        if run.status not in ("done", "failed"):
            return False
        try:
            return bool(await unread(self._agents(run.agent), run.thread_id))
        except ToolError:  # no process is left to read it
            return False

    async def line_up(self, run: Run, behalf: Behalf | None, *, go_on: bool = False) -> None:
        """Execute a run as soon as its thread's tasks leave room, unless it is being executed.

        Another living process keeps the runs that it executes or has queued. Without `behalf`, the
        run gets the context that its task had last.
        """
        if run.status == "running" or _not_begun(run):
            go_on = await self._engine.is_left(run)
        if go_on:
            self._tasks.enter(QueuedTask(run, behalf or self._behalves.of(run.thread_id)))

    async def carry(self, turn: QueuedTask) -> None:
        """Execute a run; no error of it may end the others."""
        run, failed = turn.run, False
        self._behalves.begin(run.thread_id, turn.behalf)
        try:
            await self._go_through(turn)
            self._failing.pop(run.id, None)
        except ToolError as error:
            await self._give_up(run, str(error))
        except FAILURES as raised:
            error, failed = as_failure(raised), True
            self._failing.setdefault(run.id, time.monotonic())
            unexpected = None if isinstance(error, HarnessError) else error
            text = "background run %s cannot continue now: %s"
            logger.warning(text, run.id, error, exc_info=unexpected)
            await anyio.sleep(POLL_SECONDS)  # the task that waits for it tries again at once
        finally:
            self._tasks.done(run)
        self._tasks.thread_changed(run.thread_id)
        if failed:
            await self._try_again(turn)

    async def _go_through(self, turn: QueuedTask) -> None:
        """Execute a run until it stops, and again if it just got an answer."""
        run = turn.run
        self._agents(run.agent)
        answered = await self._answered(run)
        while True:
            try:
                await self._engine.carry(run, turn.behalf)
            except RunEnded as error:  # another process was faster, such as one that cancelled it
                logger.info("background run %s was not continued: %s", run.id, error)
            now = await self._journal.run(run.id)
            async with self.lock(run.thread_id):  # from now on, messages find it released
                before = answered
                if now is not None and now.status == "needs_approval":
                    answered = await self._answered(run)
                if answered <= before:
                    if now is None or now.status in ENDED_RUNS:
                        self._behalves.end(run.thread_id)
                    await self._deliver(run.thread_id, turn.behalf)
                    self._tasks.done(run)
                    return

    async def _answered(self, run: Run) -> set[str]:
        asked = await self._journal.interrupts(run.id)
        return {one.id for one in asked if one.answered and one.is_question}

    async def _is_answered(self, run: Run) -> bool:
        """Whether a run waits for a person, but all of its questions are answered."""
        if run.status != "needs_approval":
            return False
        asked = await self._journal.interrupts(run.id)
        return all(one.answered for one in asked if one.is_question)

    async def _try_again(self, turn: QueuedTask) -> None:
        """Retry a run that could not continue, with growing pauses, or give it up."""
        run, why = turn.run, "its journal could not be read or written"
        while self._tasks.is_open:
            tried = time.monotonic() - self._failing.get(run.id, time.monotonic())
            if tried > _PATIENCE:
                await self._give_up(run, why)
                return
            await anyio.sleep(min(max(POLL_SECONDS, tried), _LONGEST_PAUSE))
            try:
                now = await self._journal.run(run.id)
                if now is None or now.status == "cancelled":
                    self._failing.pop(run.id, None)
                    return
                same = (now.status, now.attempt) == (run.status, run.attempt)
                if now.status in ENDED_RUNS and not same:
                    await self.deliver(run.thread_id, turn.behalf)
                    self._failing.pop(run.id, None)
                else:
                    go_on = same or await self._is_answered(now)
                    await self.line_up(now, turn.behalf, go_on=go_on)
            except HarnessError as error:
                why = str(error)
            else:
                return

    async def _give_up(self, run: Run, why: str) -> None:
        """End a run that cannot be executed, unless another process has begun to execute it."""
        self._failing.pop(run.id, None)
        self._behalves.end(run.thread_id)
        try:
            now = await self._journal.run(run.id)
            if now is None or not (now.status == "running" or _not_begun(now)):
                return
            if await self._engine.is_left(now):
                reason = f"it could not continue: {why}"
                await self._journal.commit(taken_over(now, status="failed", reason=reason))
        except HarnessError as error:
            logger.error("background run %s could not be ended: %s", run.id, error)

    async def deliver(self, thread_id: str, behalf: Behalf | None) -> None:
        """Continue an ended task with messages that it has not read."""
        async with self.lock(thread_id):
            if not self._tasks.is_busy(thread_id):  # otherwise it is done when it is released
                await self._deliver(thread_id, behalf)

    async def _deliver(self, thread_id: str, behalf: Behalf | None) -> None:
        run = await self.newest(thread_id)
        if run is None or run.status not in ("done", "failed"):
            return
        fresh = await unread(self._agents(run.agent), thread_id)
        if not fresh:
            return
        behalf = behalf or self._behalves.of(thread_id)
        try:
            run = await self._engine.begin(run.agent, thread_id, fresh, behalf)
        except ThreadBusy:
            now = await self.newest(thread_id)
            if now is None or now.id == run.id:
                raise
            return  # another process has just delivered them
        except Superseded:
            return  # somebody has cancelled or taken over the run as it began
        await self.line_up(run, behalf)

    async def look_after(self, thread_id: str) -> None:
        """Continue a task with messages that it did not read in a run of another process."""
        try:
            await self.deliver(thread_id, None)
        except FAILURES as raised:
            error = as_failure(raised)
            logger.warning("messages on thread %s stay unread: %s", thread_id, error)

    async def recover(self) -> None:
        """Continue abandoned runs of other processes, as soon as the journal can be read."""
        pause = POLL_SECONDS
        while self._tasks.is_open:
            try:
                await self._adopt_all()
            except CheckpointError as error:
                text = "what earlier processes left cannot be continued now: %s"
                logger.warning(text, error)
            except FAILURES as raised:
                error = as_failure(raised)
                text = "background tasks of earlier processes were not continued"
                logger.error(text, exc_info=error)
                return
            else:
                return
            await anyio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _adopt_all(self) -> None:
        left = [
            run
            for status in OPEN
            for run in await self._journal.find_runs(status=status, limit=ALL)
            if parent_thread(run.thread_id) is not None
        ]
        for run in sorted(left, key=lambda one: one.created_at):
            await self.adopt(run)

    async def adopt(self, left: Run, *, ours: bool = False) -> None:
        """Continue a run, unless another process works on it.

        Args:
            left: The run.
            ours: Whether a task waits for it here. If so, it ends if its subagent no longer exists.
        """
        try:
            self._agents(left.agent)
        except HarnessError as error:
            if ours and isinstance(error, ToolError):
                await self._give_up(left, str(error))
                return
            logger.warning("background run %s stays as it is: %s", left.id, error)
            return
        async with self.lock(left.thread_id):
            run = await self._journal.run(left.id)
            if run is not None:
                await self.line_up(run, None)

    async def tell_of_the_end(self, run: Run) -> None:
        """Notify middleware that an abandoned run was cancelled."""
        self._behalves.end(run.thread_id)
        try:
            told = self._agents(run.agent).definition.told_of_stops
        except HarnessError as error:  # nothing waits for it any more
            logger.warning("subagent %s was not told of its end: %s", run.agent, error)
            return
        for one in told:
            try:
                with anyio.move_on_after(_STOP_SECONDS):
                    await one.run_stopped(run)
            except FAILURES as raised:
                logger.warning("%s.run_stopped raised", one.name, exc_info=as_failure(raised))


class _Behalves:
    """The context of tasks, by thread: of all that are open, and of those that ended last."""

    def __init__(self) -> None:
        self._open: dict[str, Behalf] = {}
        self._ended: dict[str, Behalf] = {}

    def of(self, thread_id: str) -> Behalf | None:
        """Return the context that a task had last; None if unknown."""
        return self._open.get(thread_id) or self._ended.get(thread_id)

    def begin(self, thread_id: str, behalf: Behalf | None) -> None:
        """Note the context of a task that is executed now."""
        if behalf is not None:
            self._ended.pop(thread_id, None)
            self._open[thread_id] = behalf

    def end(self, thread_id: str) -> None:
        """Note that a task has ended; only a message continues it."""
        if thread_id in self._open:
            self._ended[thread_id] = self._open.pop(thread_id)
            if len(self._ended) > _KEPT_ENDED:
                del self._ended[next(iter(self._ended))]


def _not_begun(run: Run) -> bool:
    return run.status == "paused" and run.attempt == 1
