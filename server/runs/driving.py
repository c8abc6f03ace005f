"""Call driver: runs the calls of clients' own models, one at a time per thread."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic import JsonValue

from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import Checkpointer, Run
from ...harness.errors import HarnessError, StaleThread, ThreadBusy, UnknownThread
from ...harness.messages.message import ToolCall
from ...harness.subagents.background.engine import parent_thread
from ..auth.caller import current_caller, owner_of
from ..auth.owned_journal import NAMES, OwnedJournal
from ..results import unknown
from ..sampling.queue import Offer
from .accounts import Accounts, Snapshot
from .active_run import ActiveRun, agent_of, busy, call_id
from .contracts import Agents, Work, holder_of
from .goals import Goal
from .supervisor import QUEUE_SECONDS, RunSupervisor

__all__ = ["CallDriver"]

DRIVE_SECONDS = 45.0
"""Seconds to wait for a driven call, unless its client is known to wait for more or less."""

_TRIES, _PAUSE = 100, 0.05
"""How often a call is retried when other calls were faster, and the longest pause, in seconds."""

LONG_TOOLS = frozenset({"execute"})
"""Driven calls that count as working runs."""


def _unrecorded(live: ActiveRun, why: HarnessError, *, is_new: bool) -> str:
    """Return the note for the caller of a read-only tool whose call is not recorded."""
    begun = (
        f" Thread {live.thread_id} was not begun: leave thread_id out in the next call."
        if is_new
        else ""
    )
    return f"Note: this call was answered, but it is not in the thread's history: {why}{begun}"


class CallDriver:
    """Runs calls of clients' own models, and starts queued calls when their thread is free.

    Args:
        supervisor: Executes the runs.
        agent: Returns the agent of a thread or run, built when it is first needed.
        checkpointer: The journal.
        group: The task group that runs live in.
    """

    def __init__(
        self,
        supervisor: RunSupervisor,
        agent: Agents,
        checkpointer: Checkpointer,
        group: TaskGroup,
    ) -> None:
        self._agent = agent
        self._journal = checkpointer
        self._supervisor = supervisor
        self._queue = self._supervisor.queue
        self._queue.begin = self._begin_queued
        self._accounts = Accounts(agent, checkpointer)
        self._starting: dict[str, ActiveRun] = {}
        self._replying: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._group = group

    async def drive(
        self,
        tool: str,
        args: dict[str, JsonValue],
        thread_id: str | None,
        seconds: float = DRIVE_SECONDS,
        *,
        begins: bool = False,
        trust_cache: bool = True,
        tries: int = _TRIES,
    ) -> Snapshot:
        """Run one tool call of a client's own model; return its status, after `seconds` at most.

        Calls on one thread wait for each other. A request that is cancelled while it waits in line
        runs nothing; once its call has begun, the call is finished.

        Args:
            tool: The tool's name.
            args: Its arguments.
            thread_id: The thread; a new one by default.
            seconds: How long to wait for the end.
            begins: Whether to create the thread if no thread has that id.
            trust_cache: Whether to use the newest state this process has seen, without reading it.
            tries: How often to retry when calls through other servers were faster.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: A delegated run moves the thread, a question is open on it, or the calls
                before this one took too long.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        caller, is_new = current_caller.get(), thread_id is None
        if thread_id is None:
            thread_id, trust_cache = caller.new_id("thr"), False
            run_id = caller.new_id("run")
        else:
            if not caller.owns(thread_id):
                raise await self._unknown_thread(thread_id)
            if self._agent.prepares:
                await self._agent.prepare(thread_id)
            trust_cache = trust_cache and self._agent(thread_id).recalls(thread_id)
            run_id = caller.new_id("run", thread_id)
        live = ActiveRun(run_id, thread_id, brief=True)
        live.counts = tool in LONG_TOOLS
        known_idle = is_new or trust_cache
        is_new |= await self._enter(live, known_idle=known_idle, begins=begins)
        if live.counts:
            self._require_room(live)
        call = ToolCall(call_id(live.run_id), tool, args)
        live.note_written(tool, args)
        self._supervisor.spawn(
            live,
            lambda agent, given: agent.adrive([call], thread_id=live.thread_id, options=given),
            modes=("checkpoints",),
            is_new=is_new,
            trust_cache=trust_cache,
        )
        await live.finished.wait(seconds)
        if not live.finished.is_set():
            stopping = self._supervisor.stopping.has_begun
            return Snapshot(self._unrecorded(live), stopping=stopping)
        if isinstance(live.error, StaleThread | ThreadBusy) and (
            trust_cache or (tries and await self._may_try_again(live))
        ):
            # Another process has changed the thread, or is changing it: read the new state.
            tries -= not trust_cache
            return await self.drive(
                tool, args, thread_id, seconds, begins=begins, trust_cache=False, tries=tries
            )
        if live.error is not None:
            raise live.error
        if live.result is None:
            raise HarnessError(
                f"The server is stopping. Run {live.run_id} continues when it is started again."
            )
        results, unrecorded = live.result.results, live.result.unrecorded
        return Snapshot(
            live.result.run,
            live.result.interrupts,
            results[-1] if results else None,
            notes=() if unrecorded is None else (_unrecorded(live, unrecorded, is_new=is_new),),
        )

    async def _may_try_again(self, live: ActiveRun) -> bool:
        """Tell whether a call did nothing because other calls were faster."""
        has_done_nothing = await self._journal.run(live.run_id) is None
        await anyio.sleep(random.uniform(0, _PAUSE))
        return has_done_nothing

    def _work(self, goal: Goal, live: ActiveRun) -> Work:
        async def work(main: Agent, options: RunOptions) -> RunResult:
            alone = not (goal.agent or goal.task_id)
            own = await self._agent_on(live.thread_id, main) if alone else main
            return await goal.begin(own, main, live.run_id, live.thread_id, options)

        return work

    async def _begin_queued(self, run: Run, goal: Goal, offer: Offer | None) -> None:
        """Begin a run that waited in line; see `Begin`."""
        live = ActiveRun(run.id, run.thread_id, offer=offer)
        await self._supervisor.take_gate(live)
        self._supervisor.spawn(live, self._work(goal, live), accepted=run)
        await live.control.accepted.wait()
        if live.error is not None:
            raise live.error

    async def _agent_on(self, thread_id: str, main: Agent) -> Agent:
        """Return the agent that continues a thread; for a background task, its subagent."""
        if parent_thread(thread_id) is None:
            return main
        runs = await self._journal.find_runs(thread_id=thread_id, limit=20)
        newest = next((one for one in runs if one.kind == "delegate"), None)
        return main if newest is None else agent_of(newest, main, self._supervisor.tasks)

    async def _enter(self, live: ActiveRun, *, known_idle: bool, begins: bool = False) -> bool:
        """Take the gate of an idle thread; return whether the thread is new, which `begins` allows.

        Raises:
            UnknownThread, ThreadBusy: As for `start`.
        """
        await self._supervisor.take_gate(live)
        if known_idle:
            return False
        try:
            if begins and not await self._exists(live.thread_id):
                return True
            waits = QUEUE_SECONDS if live.brief else 0.0
            await self._require_idle(live, anyio.current_time() + waits)
            return False
        except BaseException:
            self._supervisor.leave_gate(live)
            raise

    @asynccontextmanager
    async def exclusive(self, thread_id: str) -> AsyncGenerator[str]:
        """Keep every run of this process off an idle thread; yields an id to record changes under.

        Raises:
            UnknownThread, ThreadBusy: As for `start`.
        """
        await self._require_owned(thread_id)
        live = ActiveRun(current_caller.get().new_id("run", thread_id), thread_id)
        await self._enter(live, known_idle=False)
        try:
            yield live.run_id
        finally:
            self._supervisor.leave_gate(live)

    async def _require_idle(self, live: ActiveRun, until: float) -> None:
        if not await self._exists(live.thread_id):
            raise await self._unknown_thread(live.thread_id)
        await self._require_no_line(live)
        while (holder := await holder_of(self._journal, live.thread_id)) is not None:
            if holder.status == "needs_approval":
                raise ThreadBusy(
                    f"Thread {live.thread_id} waits for an answer in run {holder.id}; nothing was "
                    f'done. See the question with threads(thread_id="{live.thread_id}"), answer it '
                    f'with reply(run_id="{holder.id}", …) or drop it with '
                    f'cancel(run_id="{holder.id}").',
                    holder.id,
                )
            if await self._supervisor.is_left(holder):
                self._group.start_soon(self._supervisor.adopt, holder)
            elif holder.kind == "drive" and await self._has_ended(holder, until):
                continue
            raise busy(live.thread_id, holder.id)

    async def _require_no_line(self, live: ActiveRun) -> None:
        """Refuse a run if others wait in line before it; driven calls need not wait.

        Raises:
            ThreadBusy: Some do.
        """
        if live.brief:
            return
        waiting = await self._journal.find_runs(thread_id=live.thread_id, status="queued", limit=1)
        if waiting:
            raise ThreadBusy(
                f"Run {waiting[0].id} is queued on thread {live.thread_id}; nothing was done. "
                "Wait for it, cancel it, or use another thread.",
                waiting[0].id,
            )

    async def _exists(self, thread_id: str) -> bool:
        """Tell whether a thread exists; a copy has no runs of its own."""
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        return bool(runs) or await self._journal.load(thread_id) is not None

    async def _has_ended(self, run: Run, until: float) -> bool:
        """Wait until a call of another server on the thread has ended; return whether it has."""
        with (
            anyio.move_on_after(max(0.0, until - anyio.current_time())),
            self._supervisor.servers.run_changes.watching(run.id) as watch,
        ):
            now = await self._journal.run(run.id)
            while now is not None and now.status == "running":
                await watch.next(now)
                now = await self._journal.run(run.id)
            return True
        return False

    async def _require_owned(self, thread_id: str | None) -> None:
        if thread_id is not None and not current_caller.get().owns(thread_id):
            raise await self._unknown_thread(thread_id)

    def _require_room(self, live: ActiveRun) -> None:
        """Refuse a call of a user who has too many working runs, and release its gate."""
        try:
            self._require_place(live.run_id)
        except ThreadBusy:
            self._supervisor.leave_gate(live)
            raise

    def _require_place(self, run_id: str) -> None:
        owner = owner_of(run_id)
        if owner and len(self._supervisor.working(owner)) >= self._supervisor.bounds.max_runs:
            self._refuse_for_want_of_room(run_id)

    def _refuse_for_want_of_room(self, run_id: str) -> NoReturn:
        working = self._supervisor.working(owner_of(run_id))
        first = f' Wait for one with wait(run_id="{working[0]}"), or cancel one.' if working else ""
        raise ThreadBusy(
            f"{len(working)} of your runs are working, which is the limit; nothing "
            f"was started.{first}"
        )

    async def _unknown_thread(self, thread_id: str) -> UnknownThread:
        rows = await OwnedJournal(self._journal).threads(limit=200)
        advice = f"Call threads to list them, or begin one with a name of {NAMES}."
        return UnknownThread(unknown("thread", thread_id, [row.thread_id for row in rows], advice))

    def _unrecorded(self, live: ActiveRun) -> Run:
        """Return the record of a running run whose input is stored with its first step."""
        return Run(live.run_id, live.thread_id, "drive", self._agent(live.run_id).name)
