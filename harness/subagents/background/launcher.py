"""Background task launcher: starts, steers and lists subagents that work in the background.

A task is a separate run on its own thread, `<caller's thread>.task-<id>`, in the caller's journal.
It outlives the call and the run that started it. Tasks of a dead process are found there and
continued by the next `BackgroundSubAgents`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import anyio
from pydantic import JsonValue

from ..._internal.concurrency import raising_one
from ...checkpoint.base import Checkpointer, Interrupt
from ...errors import HarnessError, RunEnded, ToolError, UnknownRun, UnknownThread
from ...loop.agent import Agent
from ...loop.run_executor import RunOptions
from ...messages.message import HumanMessage
from ...policy import CallPolicy
from .engine import (
    AgentSource,
    Behalf,
    TaskEngine,
    TaskQueue,
    delete_with_tasks,
    first_of,
    parent_thread,
    task_thread,
    task_threads,
)
from .local_tasks import LocalTasks
from .task_agents import TaskAgents
from .task_runner import POLL_SECONDS, TaskRunner
from .tasks import ENDED, NewTask, TaskView, given, post

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["BackgroundSubAgents"]

_ATTEMPTS = 5

Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A separate task that handles all its errors."""


class BackgroundSubAgents:
    """Executes background tasks inside its block: `async with BackgroundSubAgents(journal)`.

    At the end of the block they stop; their runs stay `running` in the journal, and the next block,
    in this process or another, continues them. It serves one agent.

    Args:
        checkpointer: The journal of the agent.
        options: Options of tasks. `limits` apply to each task whose subagent has none (`Limits()`
            by default): a task never counts towards the run that started it, which may end long
            before. `context` and `principal` are those of that run; after a restart, of `options`.
        max_running: The most tasks of one thread that work at the same time; more are `pending`.
        max_open: The most pending or running tasks of one thread.
        is_alive: Tells whether another process is alive, by the `owner` of its runs. Set it if
            processes of several machines share the journal: for this machine it is known, and
            processes of others count as alive unless this returns False. It is called in a thread.
        engine: Makes the engine that executes the runs; `LocalTasks` by default.

    Attributes:
        agent: Returns a subagent by name, as it works in the background.
        main: The agent that starts the tasks, if `create_deep_agent` built it.

    Raises:
        ValueError: A limit is not positive.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        *,
        options: RunOptions | None = None,
        max_running: int = 8,
        max_open: int = 64,
        is_alive: Callable[[str], bool] | None = None,
        engine: Callable[[AgentSource], TaskEngine] | None = None,
    ) -> None:
        if max_running < 1 or max_open < 1:
            raise ValueError("max_running and max_open must be 1 or more")
        self.checkpointer = checkpointer
        self._tasks = TaskQueue(max_running, max_open)
        self.agent = TaskAgents(checkpointer)
        self.main: Agent | None = None
        given = options or RunOptions()
        local = partial(LocalTasks, checkpointer, options=given, is_alive=is_alive)
        self._engine: TaskEngine = (engine or local)(self.agent)
        self._local = self._engine if isinstance(self._engine, LocalTasks) else None
        self._runner = TaskRunner(checkpointer, self.agent, self._engine, self._tasks)
        self._jobs: MemoryObjectSendStream[Job] | None = None
        self._stack: AsyncExitStack | None = None

    # --- start and stop --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start to work, and continue abandoned tasks."""
        if self._stack is not None:
            raise RuntimeError("this BackgroundSubAgents is entered already")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._working())
            self._stack = stack.pop_all()
        self._recover_soon()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        """Stop the tasks; they continue in the next block."""
        stack, self._stack = self._stack, None
        return None if stack is None else await stack.__aexit__(*exc_info)

    @asynccontextmanager
    async def _working(self) -> AsyncGenerator[None]:
        send, receive = anyio.create_memory_object_stream[Job](inf)
        if self._local is not None:
            await self._local.open()
        try:
            async with raising_one(), anyio.create_task_group() as group:
                # Runs start in this task, not in a tool's, so that they inherit no context of the
                # caller.
                group.start_soon(self._serve, receive)
                self._jobs = send
                self._tasks.open(lambda turn: send.send_nowait(partial(self._runner.carry, turn)))
                try:
                    yield
                finally:
                    self._jobs = None
                    self._tasks.close()
                    group.cancel_scope.cancel()
        finally:
            send.close()
            self._runner.forget()
            if self._local is not None:
                await self._local.close()

    async def _serve(self, jobs: MemoryObjectReceiveStream[Job]) -> None:
        async with jobs, anyio.create_task_group() as group:
            async for job in jobs:
                group.start_soon(job)

    def bind(
        self, find: AgentSource, above: Sequence[str], policy: CallPolicy | None = None
    ) -> None:
        """Set the agent that these subagents belong to.

        Args:
            find: Returns a subagent's agent by name.
            above: Names of the agents from the main one to the one that starts the tasks.
            policy: The rules of that agent, which also apply to its tasks.

        Raises:
            AgentBuildError: It serves another agent already.
        """
        self.agent.bind(find, above, policy)
        self._recover_soon()

    # --- tasks -----------------------------------------------------------------------------

    async def start(self, task: NewTask) -> TaskView:
        """Start a task; its input is in the journal when this returns.

        Raises:
            UnknownSubAgent: There is none of that name.
            ToolError: Too many tasks are open, or this is called outside the block.
            HarnessError: The input was refused; nothing was stored.
        """
        thread_id = task_thread(task.thread_id, task.task_id)
        agent = self.agent(task.agent)
        with anyio.CancelScope(shield=True):
            async with self._runner.lock(thread_id):
                run = await self._runner.newest(thread_id)
                if run is None:
                    self._check_open()
                    with self._tasks.room(task.thread_id):
                        update = given(agent, task)
                        run = await self._engine.begin(task.agent, thread_id, update, task.behalf)
                await self._runner.line_up(run, task.behalf)
        return await self.look(thread_id)

    async def look(self, thread_id: str) -> TaskView:
        """Return the status of a thread's task.

        Raises:
            UnknownThread: There is no such task.
        """
        run = await self._runner.newest(thread_id)
        if run is None:
            raise UnknownThread(f"there is no background task on thread {thread_id!r}")
        status = await self._runner.status(run)
        asked: Sequence[Interrupt] = ()
        if status == "waiting":
            known = await self.checkpointer.interrupts(run.id)
            asked = [one for one in known if not one.answered and one.is_question]
        return TaskView(thread_id.rpartition(".")[2], run, status, asked)

    async def wait(
        self, thread_ids: Collection[str], seconds: float, *, caller: str | None = None
    ) -> Sequence[TaskView]:
        """Return the status of tasks once all have stopped and left room, or after `seconds`.

        It returns at once if the block ends meanwhile. Tasks of a dead process are continued.

        Args:
            thread_ids: The threads of the tasks.
            seconds: How long to wait at most.
            caller: The thread that asks: tasks of other threads are only watched. None for callers
                that may do everything.

        Raises:
            UnknownThread: There is no such task.
        """
        deadline = time.monotonic() + max(0.0, seconds)
        entered = self._tasks.is_open
        while True:
            changes = {parent_thread(one): self._tasks.next_change(one) for one in thread_ids}
            views = [await self.look(one) for one in thread_ids]
            left = deadline - time.monotonic()
            in_vain = entered and not self._tasks.is_open
            busy = any(not one.stopped or self.is_busy(one.run.thread_id) for one in views)
            if left <= 0 or in_vain or not busy:
                return views
            at_work = [one for one in views if not one.stopped]
            others = [one for one in at_work if not self.is_busy(one.run.thread_id)]
            for one in others:  # a task that its process has left by now is ours
                if caller in (None, parent_thread(one.run.thread_id)):
                    await self._runner.adopt(one.run, ours=True)
            with anyio.move_on_after(min(left, POLL_SECONDS) if others else left):
                await first_of(list(changes.values()))

    async def send(
        self, thread_id: str, text: str, key: str, behalf: Behalf | None = None
    ) -> TaskView:
        """Send a message to a task, which reads it before its next model call.

        A task that is done, failed or timed out continues with it, keeping its transcript. A task
        that waits for a person reads it once it has the answer.

        Args:
            thread_id: The task's thread.
            text: The message.
            key: An idempotency key: calls with the same key send the message once.
            behalf: The context for a task that continues; by default the one it had last.

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
            goes_on = view.status in ENDED and not self.is_busy(thread_id)
            parent = parent_thread(thread_id) or ""
            with self._tasks.room(parent) if goes_on else nullcontext():
                async with self._runner.lock(thread_id):
                    await post(agent, thread_id, HumanMessage(text, source="task", id=f"msg_{key}"))
                    if view.run.status == "paused":
                        await self._runner.line_up(view.run, behalf, go_on=True)
                await self._runner.deliver(thread_id, behalf)
        return await self.look(thread_id)

    async def cancel(self, thread_id: str, reason: str) -> TaskView:
        """Stop a task; its work stays. An ended task stays as it is.

        Raises:
            HarnessError: There is no such task, or another living process works on it.
        """
        view = await self.look(thread_id)
        for _ in range(_ATTEMPTS):  # a message may continue it just as it ends
            if view.status in ENDED and not self.is_busy(thread_id):
                break
            self._tasks.remove(view.run)
            run = await self._engine.cancel(view.run, reason)
            if self._tasks.is_executing(run):  # it may have started just as it ended
                run = await self._engine.cancel(run, reason)
            while self._tasks.is_executing(run):
                await self._tasks.next_change(thread_id).wait()
            if self.is_busy(thread_id):  # the run before it is just ending, or another has begun
                with anyio.move_on_after(POLL_SECONDS):
                    await self._tasks.next_change(thread_id).wait()
            if view.status == "waiting":
                await self._runner.tell_of_the_end(run)
            self._tasks.thread_changed(thread_id)
            view = await self.look(thread_id)
        return view

    async def delete(self, thread_id: str) -> None:
        """Delete a thread with its history, runs and jobs, and its tasks with theirs.

        Tasks that have not ended are cancelled first. No run may work on the thread itself.

        Raises:
            HarnessError: Another living process works on a task; nothing was deleted.
            CheckpointError: The journal cannot be written.
        """
        await self.cancel_all(thread_id, "its thread is deleted")
        await delete_with_tasks(self.checkpointer, thread_id, self.main)

    async def cancel_all(
        self, thread_id: str, reason: str, *, begun_by: float | None = None
    ) -> None:
        """Stop the unfinished tasks of a thread; their work stays.

        Args:
            thread_id: The thread.
            reason: Why.
            begun_by: Leave tasks whose newest run began after this Unix time.

        Raises:
            HarnessError: One could not be stopped; the others were.
        """
        found = await task_threads(self.checkpointer, thread_id)
        newest = [(one, await self._runner.newest(one)) for one in found]
        latest = inf if begun_by is None else begun_by
        there = [one for one, run in newest if run is not None and run.created_at <= latest]
        failed: list[HarnessError] = []

        async def stop(task: str) -> None:
            try:
                await self.cancel(task, reason)
            except HarnessError as error:
                failed.append(error)

        async with raising_one(), anyio.create_task_group() as group:
            for one in there:
                group.start_soon(stop, one)
        if failed:
            raise failed[0]

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Answer a task's questions on behalf of a person; it continues in the background.

        Args:
            run_id: The task's run.
            answers: Answers by interrupt id, as for `Agent.aresume`; without answers, a paused or
                failed task continues.

        Raises:
            UnknownRun, RunEnded, UnknownInterrupt, InvalidAnswer: As for `Agent.aresume`.
        """
        self._check_open()
        run = await self.checkpointer.run(run_id)
        if run is None or parent_thread(run.thread_id) is None:
            raise UnknownRun(f"there is no background task with a run {run_id!r}")
        if run.status in ("done", "cancelled"):
            raise RunEnded(f"run {run_id} is {run.status} and asks nothing; nothing was stored")
        async with self._runner.lock(run.thread_id):
            if answers:
                await self.agent(run.agent).answer(run_id, answers)
                run = await self.checkpointer.run(run_id) or run  # it may be waiting by now
            await self._runner.line_up(run, None, go_on=True)

    # --- execution -------------------------------------------------------------------------

    def is_busy(self, thread_id: str) -> bool:
        """Whether this object works on the task of a thread."""
        return self._tasks.is_busy(thread_id)

    def stop_starting(self) -> None:
        """Start no more tasks, because this process is about to end.

        Working tasks run until they stop, and all waits for tasks end. Tasks that have not started
        are found by the next process.
        """
        self._tasks.close()

    def thread_changed(self, thread_id: str) -> None:
        """Note that something happened on a thread, for engines that also execute other runs."""
        if parent_thread(thread_id) is not None:
            self._tasks.thread_changed(thread_id)
            self._do_soon(partial(self._runner.look_after, thread_id))

    def _recover_soon(self) -> None:
        if self._local is not None:  # other engines find abandoned runs themselves
            self._do_soon(self._runner.recover)

    def _do_soon(self, job: Job) -> None:
        if self.agent.are_bound and self._jobs is not None:
            self._jobs.send_nowait(job)

    def _check_open(self) -> None:
        if self._jobs is None:
            raise ToolError(
                "background tasks do not run now: the BackgroundSubAgents of this agent is not "
                "entered (`async with`). Nothing was done."
            )
