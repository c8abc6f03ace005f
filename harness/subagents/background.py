"""Background tasks: subagents that go on working while their caller does something else.

A task is a run of its own on a thread of its own, `<caller's thread>.task-<id>`, in the caller's
journal. It outlives the call and the run that started it. What a dead process leaves behind is
found there and continued by the next `BackgroundSubAgents` (peers C7.3, E23).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self
from weakref import WeakValueDictionary

import anyio
from pydantic import JsonValue

from harness.checkpoint.base import Batch, Checkpointer, Run
from harness.errors import (
    AgentBuildError,
    HarnessError,
    RunEnded,
    ToolError,
    UnknownRun,
    UnknownThread,
)
from harness.loop.agent import Agent
from harness.loop.cancellation import FAILURES, as_failure
from harness.loop.carrier import RunOptions
from harness.loop.event_buffer import raising_one
from harness.messages import HumanMessage
from harness.policy import CallPolicy
from harness.subagents.background_agents import background_agent, post, unread
from harness.subagents.background_line import TaskLines, Turn, first_of
from harness.subagents.background_runs import (
    Behalf,
    LocalRuns,
    RunEngine,
    parent_thread,
    task_thread,
)
from harness.subagents.background_tasks import ENDED, NewTask, TaskView, given, status_of

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["AgentSource", "BackgroundSubAgents"]

_STOP_SECONDS = 10
_PATIENCE = 120.0
_LONGEST_PAUSE = 30.0

POLL_SECONDS = 0.5
"""How often a task of another process is looked at."""

logger = logging.getLogger(__name__)


class AgentSource(Protocol):
    """Finds subagents by name."""

    def __call__(self, name: str) -> Agent:
        """Return the agent of a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        ...


class BackgroundSubAgents:
    """Carries background tasks while it is entered: `async with BackgroundSubAgents(journal)`.

    Leaving it stops them where they are; their runs stay `running` in the journal, and the next
    one, in this process or another, goes on with them. It serves one agent.

    Args:
        checkpointer: The journal of the agent.
        options: How tasks are carried. `limits` bound each task whose subagent has none of its
            own (`Limits()` by default): a task never counts against the run that started it,
            which may be over long before. `context` and `principal` are those of the run that
            started it; after a restart, these.
        max_running: Tasks of one thread that work at a time; further ones are `pending`.
        max_open: Tasks of one thread that may be pending or running.
        is_alive: Whether another process still works, by the `owner` of its runs. Give it where
            several processes share the journal: by default their tasks count as left behind.
        engine: Makes what carries the runs, from the way to find agents; `LocalRuns` by default.

    Raises:
        ValueError: A bound is not positive.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        *,
        options: RunOptions | None = None,
        max_running: int = 8,
        max_open: int = 64,
        is_alive: Callable[[str], bool] | None = None,
        engine: Callable[[AgentSource], RunEngine] | None = None,
    ) -> None:
        if max_running < 1 or max_open < 1:
            raise ValueError("max_running and max_open must be 1 or more")
        self.checkpointer = checkpointer
        self._tasks = TaskLines(max_running, max_open)
        self._agents: dict[int, tuple[Agent, Agent]] = {}
        self._find: AgentSource | None = None
        self._above: tuple[str, ...] = ()
        self._policy: CallPolicy | None = None
        local = partial(LocalRuns, checkpointer, options=options or RunOptions(), is_alive=is_alive)
        self._engine: RunEngine = (engine or local)(self.agent)
        self._failing: dict[str, float] = {}
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._jobs: MemoryObjectSendStream[Turn | None] | None = None
        self._stack: AsyncExitStack | None = None

    # --- its life --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Begin to work, and continue what was left behind."""
        if self._stack is not None:
            raise RuntimeError("this BackgroundSubAgents is entered already")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._working())
            self._stack = stack.pop_all()
        self._recover_soon()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Stop the tasks; they go on when the next one is entered."""
        stack, self._stack = self._stack, None
        return None if stack is None else await stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _working(self) -> AsyncGenerator[None]:
        send, receive = anyio.create_memory_object_stream[Turn | None](inf)
        local = self._engine if isinstance(self._engine, LocalRuns) else None
        if local is not None:
            local.open()
        try:
            async with raising_one(), anyio.create_task_group() as group:
                # Runs begin in this task, not in that of a tool: nothing of the caller's context
                # shall get into them.
                group.start_soon(self._serve, receive)
                self._jobs = send
                self._tasks.open(send.send_nowait)
                try:
                    yield
                finally:
                    self._jobs = None
                    self._tasks.close()
                    group.cancel_scope.cancel()
        finally:
            send.close()
            self._failing.clear()
            if local is not None:
                local.close()

    async def _serve(self, jobs: MemoryObjectReceiveStream[Turn | None]) -> None:
        async with jobs, anyio.create_task_group() as group:
            async for job in jobs:
                if job is None:
                    group.start_soon(self._recover)
                else:
                    group.start_soon(self._carry, job)

    def bind(
        self, find: AgentSource, above: Sequence[str], policy: CallPolicy | None = None
    ) -> None:
        """Say whose subagents these are.

        Args:
            find: Returns a subagent's agent by name.
            above: Names of the agents from the main one to the one that starts the tasks.
            policy: The rules of that one, which hold for its tasks too.

        Raises:
            AgentBuildError: It serves another agent already.
        """
        if self._find is not None:
            raise AgentBuildError(
                "this BackgroundSubAgents serves another agent already; make one for each agent"
            )
        self._find, self._above, self._policy = find, tuple(above), policy
        self._recover_soon()

    def agent(self, name: str) -> Agent:
        """Return a subagent as it works in the background.

        Raises:
            HarnessError: There is none of that name, or no agent was built with this object.
        """
        if self._find is None:
            raise HarnessError("no agent was built with this BackgroundSubAgents yet")
        found = self._find(name)
        known = self._agents.get(id(found))
        if known is None:
            made = background_agent(found, self.checkpointer, self._above, self._policy)
            known = self._agents[id(found)] = (found, made)  # the id stays taken
        return known[1]

    # --- tasks -----------------------------------------------------------------------------

    async def start(self, task: NewTask) -> TaskView:
        """Begin a task; its input is in the journal when this returns.

        Raises:
            UnknownSubAgent: There is none of that name.
            ToolError: Too many tasks are open, or this object is not entered.
            HarnessError: The input was refused; nothing was stored.
        """
        thread_id = task_thread(task.thread_id, task.task_id)
        agent = self.agent(task.agent)
        with anyio.CancelScope(shield=True):
            async with self._lock(thread_id):
                run = await self._newest(thread_id)
                if run is None:
                    self._check_open()
                    with self._tasks.room(task.thread_id):
                        update = given(agent, task)
                        run = await self._engine.begin(task.agent, thread_id, update, task.behalf)
                await self._line_up(run, {}, task.behalf)
        return await self.look(thread_id)

    async def look(self, thread_id: str) -> TaskView:
        """Return where the task of a thread stands.

        Raises:
            UnknownThread: There is no such task.
        """
        run = await self._newest(thread_id)
        if run is None:
            raise UnknownThread(f"there is no background task on thread {thread_id!r}")
        view = self._view(run)
        if view.status != "waiting":
            return view
        asked = await self.checkpointer.interrupts(run.id)
        return TaskView(view.task_id, run, "waiting", [one for one in asked if not one.answered])

    async def wait(self, thread_ids: Collection[str], seconds: float) -> Sequence[TaskView]:
        """Return where tasks stand once all have stopped, or after `seconds`.

        It returns at once when this object is left meanwhile.

        Raises:
            UnknownThread: There is no such task.
        """
        deadline = time.monotonic() + max(0.0, seconds)
        entered = self._tasks.is_open
        while True:
            news = {parent_thread(one): self._tasks.news(one) for one in thread_ids}
            views = [await self.look(one) for one in thread_ids]
            left = deadline - time.monotonic()
            in_vain = entered and not self._tasks.is_open
            if left <= 0 or in_vain or all(one.stopped for one in views):
                return views
            others = [
                one for one in views if not one.stopped and not self.carries(one.run.thread_id)
            ]
            for one in others:  # what its process has left by now is ours
                await self._adopt(one.run, ours=True)
            mine = not others
            with anyio.move_on_after(left if mine else min(left, POLL_SECONDS)):
                await first_of(list(news.values()))

    async def send(
        self, thread_id: str, text: str, key: str, behalf: Behalf | None = None
    ) -> TaskView:
        """Send a task a message: it reads it before its next model call.

        A task that is done, failed or timed out goes on with it, with all it knows. One that
        waits for a person reads it once it has its answer.

        Args:
            thread_id: The task's thread.
            text: The message.
            key: Of the caller's choice; the same message is sent once, however often it is called.
            behalf: For a task that goes on.

        Raises:
            ToolError: The task was cancelled, or it has ended and too many others are open;
                nothing was sent.
            HarnessError: There is no such task, or the message was refused.
        """
        with anyio.CancelScope(shield=True):
            view = await self.look(thread_id)
            agent = self.agent(view.run.agent)
            if view.status == "cancelled":
                raise ToolError(
                    f"{view.task_id} was cancelled, so nothing was sent to it. Start a new task."
                )
            self._check_open()
            goes_on = view.status in ENDED and not self.carries(thread_id)
            parent = parent_thread(thread_id) or ""
            with self._tasks.room(parent) if goes_on else nullcontext():
                async with self._lock(thread_id):
                    await post(agent, thread_id, HumanMessage(text, source="task", id=f"msg_{key}"))
                if view.run.status == "paused":
                    await self._line_up(view.run, {}, behalf, go_on=True)
                await self._deliver(thread_id, behalf)
        return await self.look(thread_id)

    async def cancel(self, thread_id: str, reason: str) -> TaskView:
        """Stop a task; what it has done stays. One that has ended stays as it is.

        Raises:
            HarnessError: There is no such task, or another living process works on it.
        """
        view = await self.look(thread_id)
        if view.status in ENDED:
            return view
        self._tasks.remove(view.run)
        run = await self._engine.cancel(view.run, reason)
        while self.carries(thread_id):
            await self._tasks.news(thread_id).wait()
        if view.status == "waiting":
            await self._tell_of_the_end(run)
        now = await self.look(thread_id)
        if now.run.id == run.id and now.status not in ENDED:  # it had not begun to go on
            await self._engine.cancel(now.run, reason)
        self.stirred(thread_id)
        return await self.look(thread_id)

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Answer what a task asks, on behalf of a person; it goes on in the background.

        Args:
            run_id: The task's run.
            answers: By interrupt id, as for `Agent.aresume`; without any, a paused or failed task
                goes on.

        Raises:
            UnknownRun, RunEnded, UnknownInterrupt, InvalidAnswer: As for `Agent.aresume`.
        """
        self._check_open()
        run = await self.checkpointer.run(run_id)
        if run is None or parent_thread(run.thread_id) is None:
            raise UnknownRun(f"there is no background task with a run {run_id!r}")
        if run.status in ("done", "cancelled"):
            raise RunEnded(f"run {run_id} is {run.status} and asks nothing; nothing was stored")
        if answers:
            await self.agent(run.agent).answer(run_id, answers)
            run = await self.checkpointer.run(run_id) or run  # it may have gone to wait meanwhile
        await self._line_up(run, {}, None, go_on=True)

    # --- carrying --------------------------------------------------------------------------

    def carries(self, thread_id: str) -> bool:
        """Whether this object works on the task of a thread."""
        return self._tasks.carries(thread_id)

    def stirred(self, thread_id: str) -> None:
        """Say that something has happened on a thread; for engines that carry other runs too."""
        if parent_thread(thread_id) is not None:
            self._tasks.stir(thread_id)

    async def _line_up(
        self,
        run: Run,
        answers: Mapping[str, JsonValue],
        behalf: Behalf | None,
        *,
        go_on: bool = False,
    ) -> None:
        """Let a run be carried as soon as its thread's tasks leave room, unless it is already.

        Another living process keeps what it carries or has in line.
        """
        if run.status == "running" or _not_begun(run):
            go_on = await self._engine.is_left(run)
        if go_on:
            self._tasks.enter(Turn(run, answers, behalf))

    async def _carry(self, turn: Turn) -> None:
        """Carry a run; nothing that happens to it may end the others."""
        run, failed = turn.run, False
        try:
            await self._go_through(turn)
            self._failing.pop(run.id, None)
        except ToolError as error:
            await self._give_up(run, str(error))
        except FAILURES as raised:
            error, failed = as_failure(raised), True
            self._failing.setdefault(run.id, time.monotonic())
            unexpected = None if isinstance(error, HarnessError) else error
            text = "background run %s cannot go on now: %s"
            logger.warning(text, run.id, error, exc_info=unexpected)
            await anyio.sleep(POLL_SECONDS)  # whoever waits for it tries again at once
        finally:
            self._tasks.done(run)
        self.stirred(run.thread_id)
        if failed:
            await self._try_again(turn)

    async def _go_through(self, turn: Turn) -> None:
        """Carry a run to where it stops, and again if it got an answer in that moment."""
        run = turn.run
        self.agent(run.agent)
        answered = await self._answered(run)
        while True:
            await self._engine.carry(run, turn.answers, turn.behalf)
            now = await self.checkpointer.run(run.id)
            if now is None or now.status != "needs_approval":
                break
            before, answered = answered, await self._answered(run)
            if answered <= before:
                break
        await self._deliver(run.thread_id, turn.behalf, carried=run.id)

    async def _answered(self, run: Run) -> set[str]:
        return {one.id for one in await self.checkpointer.interrupts(run.id) if one.answered}

    async def _try_again(self, turn: Turn) -> None:
        """Let a run that could not go on be carried again, later and later, or give it up."""
        run, why = turn.run, "its journal could not be read or written"
        while self._tasks.is_open:
            tried = time.monotonic() - self._failing.get(run.id, time.monotonic())
            if tried > _PATIENCE:
                await self._give_up(run, why)
                return
            await anyio.sleep(min(max(POLL_SECONDS, tried), _LONGEST_PAUSE))
            try:
                now = await self.checkpointer.run(run.id)
                if now is None or now.status == "cancelled":
                    return
                if now.status == "done":
                    await self._deliver(run.thread_id, turn.behalf)
                else:
                    same = (now.status, now.attempt) == (run.status, run.attempt)
                    await self._line_up(now, turn.answers, turn.behalf, go_on=same)
            except HarnessError as error:
                why = str(error)
            else:
                return

    async def _give_up(self, run: Run, why: str) -> None:
        """End a run that cannot be carried; one that somebody has begun to carry stays."""
        self._failing.pop(run.id, None)
        try:
            now = await self.checkpointer.run(run.id)
            if now is None or not (now.status == "running" or _not_begun(now)):
                return
            if await self._engine.is_left(now):
                ended = replace(now, status="failed", reason=f"it could not go on: {why}")
                await self.checkpointer.commit(Batch(now.thread_id, runs=[ended]))
        except HarnessError as error:
            logger.error("background run %s could not be ended: %s", run.id, error)

    async def _deliver(
        self, thread_id: str, behalf: Behalf | None, *, carried: str | None = None
    ) -> None:
        """Let a task that has ended go on with messages that it has not read."""
        async with self._lock(thread_id):
            run = await self._newest(thread_id)
            if run is None or run.status not in ("done", "failed"):
                return
            if carried is None and self.carries(thread_id):
                return  # it is looked at again when that run ends
            fresh = await unread(self.agent(run.agent), thread_id)
            if fresh:
                update = {"messages": list(fresh)}
                run = await self._engine.begin(run.agent, thread_id, update, behalf)
                await self._line_up(run, {}, behalf)

    def _recover_soon(self) -> None:
        if self._find is not None and self._jobs is not None:
            self._jobs.send_nowait(None)

    async def _recover(self) -> None:
        """Continue what other processes have left."""
        try:
            left = [
                run
                for status in ("running", "paused")
                for run in await self.checkpointer.find_runs(status=status, limit=1_000)
                if parent_thread(run.thread_id) is not None
            ]
            for run in sorted(left, key=lambda one: one.created_at):
                await self._adopt(run)
        except FAILURES as raised:
            error = as_failure(raised)
            logger.error("background tasks of earlier processes were not continued: %s", error)

    async def _adopt(self, left: Run, *, ours: bool = False) -> None:
        try:
            self.agent(left.agent)
        except HarnessError as error:
            if ours and isinstance(error, ToolError):
                await self._give_up(left, str(error))
                return
            logger.warning("background run %s stays as it is: %s", left.id, error)
            return
        async with self._lock(left.thread_id):
            run = await self.checkpointer.run(left.id)
            if run is not None:
                await self._line_up(run, {}, None)

    async def _tell_of_the_end(self, run: Run) -> None:
        """Tell middleware that a run which nobody carried was cancelled."""
        try:
            told = self.agent(run.agent).definition.told_of_stops
        except HarnessError as error:  # nobody is left who could be told
            logger.warning("subagent %s was not told of its end: %s", run.agent, error)
            return
        for one in told:
            try:
                with anyio.move_on_after(_STOP_SECONDS):
                    await one.run_stopped(run)
            except FAILURES as raised:
                logger.warning("%s.run_stopped raised", one.name, exc_info=as_failure(raised))

    # --- reading ---------------------------------------------------------------------------

    async def _newest(self, thread_id: str) -> Run | None:
        """Return the newest run of the task; calls that a client drove there are none of it."""
        if parent_thread(thread_id) is None:
            return None
        runs = await self.checkpointer.find_runs(thread_id=thread_id, limit=200)
        return next((one for one in runs if one.kind == "delegate"), None)

    def _view(self, run: Run) -> TaskView:
        status = status_of(run)
        if self._tasks.is_carried(run):
            status = "running"  # whatever its record says yet, or already
        elif self._tasks.waits(run):
            status = "pending"
        return TaskView(run.thread_id.rpartition(".")[2], run, status)

    def _lock(self, thread_id: str) -> anyio.Lock:
        return self._locks.setdefault(thread_id, anyio.Lock())

    def _check_open(self) -> None:
        if self._jobs is None:
            raise ToolError(
                "background tasks do not run now: the BackgroundSubAgents of this agent is not "
                "entered (`async with`). Nothing was done."
            )


def _not_begun(run: Run) -> bool:
    return run.status == "paused" and run.attempt == 1
