"""Run starter: begins driven calls and delegated goals, one at a time per thread."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import Checkpointer, Interrupt, Run
from ...harness.errors import HarnessError, KnownRun, StaleThread, ThreadBusy, UnknownThread
from ...harness.limits.limits import Limits
from ...harness.loop.run.choices import RunChoices
from ...harness.messages.message import HumanMessage, ToolCall, ToolMessage
from ...harness.subagents.background.engine import parent_thread
from ..auth.caller import OwnedJournal, Principals, current_caller, owner_of
from ..auth.thread_names import NAMES
from ..results import unknown
from ..sampling.queue import Offer, SampledCall
from .active_run import ActiveRun, busy
from .contracts import Agents, Changed, Servers
from .supervisor import QUEUE_SECONDS, RunSupervisor
from .task_inputs import TaskInput, place_inputs, told, with_images

__all__ = ["Began", "RunStarter", "Snapshot", "call_id"]

DRIVE_SECONDS = 45.0
"""How long a driven call is waited for unless its client bears more or less."""

Began: TypeAlias = Callable[[str], None]
"""Told the id of a run as soon as it is started."""

_TRIES, _PAUSE = 100, 0.05
"""How often a call tries again that others were faster than, and after how many seconds at most."""

LONG_TOOLS = frozenset({"execute"})
"""Driven calls that count as runs at work."""


@record
class Snapshot:
    """Status of a run.

    Attributes:
        run: Its record.
        questions: Open questions, when it waits for answers.
        result: The result of its call, when it is a driven run that has ended.
        calls: Calls of a client's model that it, or its background tasks, wait for.
        notes: What became of answers that were not taken; why a call is not recorded.
        stuck: Why it cannot go on, while it is `running` and nobody works on it.
        data: Its structured answer, if it owed one and is done.
        stopping: Whether this server stops, so that the next one goes on with it.
    """

    run: Run
    questions: Sequence[Interrupt] = ()
    result: ToolMessage | None = None
    calls: Sequence[SampledCall] = ()
    notes: Sequence[str] = ()
    stuck: str | None = None
    data: JsonValue = None
    stopping: bool = False


def call_id(run_id: str) -> str:
    """Return the id of the tool call of a driven run: its result is found by it."""
    return "call_" + run_id.partition("_")[2]


def _unrecorded(live: ActiveRun, why: HarnessError, *, is_new: bool) -> str:
    """Return what the caller of a tool that only reads is told when its call is not recorded."""
    begun = (
        f" Thread {live.thread_id} was not begun: leave thread_id out in the next call."
        if is_new
        else ""
    )
    return f"Note: this call was answered, but it is not in the thread's history: {why}{begun}"


class RunStarter:
    """Begins runs, and knows those of this process.

    Args:
        agent: Returns the agent of a thread or run, built when it is first needed.
        checkpointer: The journal.
        group: Where runs live.
        owner: Id of this server process.
        servers: Which other processes live.
        changed: Told when a thread moved on.
        limits: Bounds of each run tree.
        principals: Whose each run is.
        max_runs: Delegated runs of one caller that may work at the same time.
    """

    def __init__(
        self,
        agent: Agents,
        checkpointer: Checkpointer,
        group: TaskGroup,
        owner: str,
        servers: Servers,
        changed: Changed,
        limits: Limits,
        principals: Principals | None = None,
        max_runs: int = 1_000,
    ) -> None:
        self._agent = agent
        self._journal = checkpointer
        self._max_runs = max_runs
        self._carrier = RunSupervisor(
            agent, checkpointer, group, owner, servers, changed, limits, principals
        )
        self._group = group
        self._starting: dict[str, ActiveRun] = {}
        self._replying: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

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
        """Run one tool call of a client's own model; return where it ended, or is after `seconds`.

        Calls on one thread wait for each other. A request that is dropped while it waits in line
        runs nothing; once its call has begun, the call is finished.

        Args:
            tool: The tool's name.
            args: Its arguments.
            thread_id: The thread; a new one by default.
            seconds: How long to wait for the end.
            begins: Whether the thread begins with this call if there is none of that id.
            trust_cache: Whether the newest state that this process has seen will do.
            tries: How often it tries again when calls through other servers were faster.

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
            await self._require_owned(thread_id)
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
        self._carrier.spawn(
            live,
            lambda agent, given: agent.adrive([call], thread_id=live.thread_id, options=given),
            modes=("checkpoints",),
            is_new=is_new,
            trust_cache=trust_cache,
        )
        await live.finished.wait(seconds)
        if not live.finished.is_set():
            stopping = self._carrier.stopping.has_begun
            return Snapshot(self._unrecorded(live), stopping=stopping)
        if isinstance(live.error, StaleThread | ThreadBusy) and (
            trust_cache or (tries and await self._may_try_again(live))
        ):
            # Another process has moved the thread, or does so now: look at what it did.
            tries -= not trust_cache
            return await self.drive(
                tool, args, thread_id, seconds, begins=begins, trust_cache=False, tries=tries
            )
        if live.error is not None:
            raise live.error
        if live.result is None:
            raise HarnessError(
                f"The server is stopping. Run {live.run_id} goes on when it is started again."
            )
        results, unrecorded = live.result.results, live.result.unrecorded
        return Snapshot(
            live.result.run,
            live.result.interrupts,
            results[-1] if results else None,
            notes=() if unrecorded is None else (_unrecorded(live, unrecorded, is_new=is_new),),
        )

    async def _may_try_again(self, live: ActiveRun) -> bool:
        """Whether a call that others were faster than has done nothing."""
        has_done_nothing = await self._journal.run(live.run_id) is None
        await anyio.sleep(random.uniform(0, _PAUSE))
        return has_done_nothing

    async def start(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        begins: bool = False,
        agent: str | None = None,
        task_id: str | None = None,
        key: str | None = None,
        offer: Offer | None = None,
        began: Began | None = None,
        choices: RunChoices | None = None,
        inputs: Sequence[TaskInput] = (),
    ) -> str:
        """Begin to work on a goal and return the run's id once the input is in the journal.

        Args:
            goal: What shall be done.
            thread_id: The thread to go on with; a new one by default.
            begins: Whether it begins with this run if there is none of that id.
            agent: A subagent to give the goal to directly.
            task_id: One of an earlier call on the thread that goes on, as its result named it.
            key: Of the caller's choice: a second start with it finds the first one's run.
            offer: What the client lends of its model; None if nobody knows.
            began: Told the run's id if this call starts it, before its input is stored.
            choices: What its caller chose for it.
            inputs: Files that come with the goal.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: The thread is in use.
            HarnessError: The input was refused; nothing was stored.
        """
        caller = current_caller.get()
        key = caller.key(key)
        await self._require_owned(thread_id)
        run_id = caller.new_id("run", thread_id)
        live = ActiveRun(run_id, thread_id or caller.new_id("thr"), offer=offer)
        if key is not None and (known := await self._started_before(key, live)) is not None:
            return known

        async def work(main: Agent, options: RunOptions) -> RunResult:
            options = replace(options, choices=choices)
            named = {"subagent_type": agent, "task_id": task_id}
            args: dict[str, JsonValue] = {key: value for key, value in named.items() if value}
            own = main if args else await self._agent_on(live.thread_id, main)
            if inputs:
                # First what may be refused: files would stay.
                await anyio.to_thread.run_sync(own.definition.chosen, choices)
                await place_inputs(own, live.thread_id, inputs, options.principal)
            if not args:
                said = {"messages": [HumanMessage(await with_images(goal, inputs))]}
                return await own.ainvoke(said, thread_id=live.thread_id, options=options)
            args["description"] = told(goal, inputs)
            call = ToolCall(call_id(live.run_id), "task", args)
            return await main.adrive([call], thread_id=live.thread_id, options=options)

        try:
            is_new = thread_id is None
            is_new |= await self._enter(live, known_idle=is_new, begins=begins)
            self._require_room(live)
            self._carrier.spawn(live, work, key=key, is_new=is_new)
            if began is not None:
                began(live.run_id)
            await live.control.accepted.wait()
        finally:
            if key is not None:
                self._release(key, live)
        if isinstance(live.error, KnownRun) and caller.owns(live.error.run_id):
            return live.error.run_id  # another process was faster
        if live.error is not None:
            raise live.error
        return live.run_id

    async def _agent_on(self, thread_id: str, main: Agent) -> Agent:
        """Return who goes on with a thread: on that of a background task its subagent."""
        if parent_thread(thread_id) is None:
            return main
        runs = await self._journal.find_runs(thread_id=thread_id, limit=20)
        newest = next((one for one in runs if one.kind == "delegate"), None)
        return main if newest is None else self._carrier.agent_of(newest, main)

    async def _started_before(self, key: str, live: ActiveRun) -> str | None:
        """Return the run that this key has started, or reserve the key for `live`."""
        while (other := self._starting.get(key)) is not None:
            await other.control.accepted.wait()
        self._starting[key] = live
        try:
            known = await self._journal.find_runs(idempotency_key=key, limit=1)
        except BaseException:
            self._release(key, live)
            raise
        if not known or not current_caller.get().owns(known[0].id):
            return None
        self._release(key, live)
        return known[0].id

    def _release(self, key: str, live: ActiveRun) -> None:
        if live.run_id not in self._carrier.live:
            live.control.accepted.set()  # nothing was started, so let the next one look
        if live.control.accepted.is_set():
            self._starting.pop(key, None)
        else:  # the request was dropped, and its run is not yet to be found by the key
            self._group.start_soon(self._release_once_stored, key, live)

    async def _release_once_stored(self, key: str, live: ActiveRun) -> None:
        await live.control.accepted.wait()
        self._starting.pop(key, None)

    async def _enter(self, live: ActiveRun, *, known_idle: bool, begins: bool = False) -> bool:
        """Take the gate of an idle thread; return whether there is none yet, which `begins` allows.

        Raises:
            UnknownThread, ThreadBusy: As for `start`.
        """
        await self._carrier.take_gate(live)
        if known_idle:
            return False
        try:
            if begins and not await self._exists(live.thread_id):
                return True
            waits = QUEUE_SECONDS if live.brief else 0.0
            await self._require_idle(live.thread_id, anyio.current_time() + waits)
            return False
        except BaseException:
            self._carrier.leave_gate(live)
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
            self._carrier.leave_gate(live)

    async def _require_idle(self, thread_id: str, until: float) -> None:
        while (newest := await self._newest(thread_id)) is not None:
            if newest.status == "needs_approval":
                raise ThreadBusy(
                    f"Thread {thread_id} waits for an answer in run {newest.id}; nothing was done. "
                    f'See the question with threads(thread_id="{thread_id}"), answer it with '
                    f'reply(run_id="{newest.id}", …) or drop it with cancel(run_id="{newest.id}").'
                )
            if newest.status != "running":
                return
            if await self._carrier.is_left(newest):
                self._carrier.adopt_soon(newest)
            elif newest.kind == "drive" and await self._has_ended(newest, until):
                continue
            raise busy(thread_id, newest.id)

    async def _newest(self, thread_id: str) -> Run | None:
        """Return the newest run of a thread; None for a copy, whose runs are those of another."""
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        if not runs and await self._journal.load(thread_id) is None:
            raise await self._unknown_thread(thread_id)
        return runs[0] if runs else None

    async def _exists(self, thread_id: str) -> bool:
        """Whether there is a thread; a copy has no runs of its own."""
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        return bool(runs) or await self._journal.load(thread_id) is not None

    async def _has_ended(self, run: Run, until: float) -> bool:
        """Wait until a call of another server on the thread has ended; return whether it has."""
        with (
            anyio.move_on_after(max(0.0, until - anyio.current_time())),
            self._carrier.servers.news.watching(run.id) as watch,
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
        """Refuse one more run of somebody who has enough of them at work, and leave its gate."""
        owner = owner_of(live.run_id)
        working = self._carrier.working(owner)
        if owner and len(working) >= self._max_runs:
            self._carrier.leave_gate(live)
            raise ThreadBusy(
                f"{len(working)} runs of yours are at work, which is the most there may be; "
                f'nothing was started. Wait for one with wait(run_id="{working[0]}"), or cancel '
                "one."
            )

    async def _unknown_thread(self, thread_id: str) -> UnknownThread:
        rows = await OwnedJournal(self._journal).threads(limit=200)
        advice = f"Call threads to list them, or begin one with a name of {NAMES}."
        return UnknownThread(unknown("thread", thread_id, [row.thread_id for row in rows], advice))

    def _unrecorded(self, live: ActiveRun) -> Run:
        """Return the record of a run at work whose input waits for its first act."""
        return Run(live.run_id, live.thread_id, "drive", self._agent(live.run_id).name)
