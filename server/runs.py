"""Runs as background work: they live in the app's task group, requests only wait for them.

So a client that gives up, disconnects or times out ends its wait and nothing else. What a run is
doing is in the journal; what is held in memory is only who works on what right now. A run left
behind by a server that died is continued by the next one that sees it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic import JsonValue

from harness.agent import Agent, RunOptions, RunResult
from harness.checkpoint.base import Batch, Checkpointer, Interrupt, Run
from harness.errors import HarnessError, StaleThread, ThreadBusy, UnknownRun, UnknownThread
from harness.limits import Limits
from harness.loop.events import Emit
from harness.messages import ToolCall, ToolMessage
from harness.subagents.background_runs import parent_thread
from server.auth.caller import current_caller, owner_of
from server.auth.owned_journal import OwnedJournal
from server.auth.principals import Principals
from server.results import unknown
from server.run_carrier import Changed, LiveRun, RunCarrier, Servers, busy

if TYPE_CHECKING:
    from harness.subagents.background import BackgroundSubAgents

__all__ = ["RunManager", "Snapshot"]

DRIVE_SECONDS = 45.0
"""How long a driven call is waited for unless its client bears more or less."""

LONG_TOOLS = frozenset({"execute"})
"""Driven calls that count as runs at work."""

POLL_SECONDS = 0.5
"""How often a run of another server process is looked at."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a run stands.

    Attributes:
        run: Its record.
        questions: Open questions, when it waits for answers.
        result: The result of its call, when it is a driven run that has ended.
    """

    run: Run
    questions: Sequence[Interrupt] = ()
    result: ToolMessage | None = None


def _call_id(run_id: str) -> str:
    """Return the id of the tool call of a driven run: its result is found by it."""
    return "call_" + run_id.partition("_")[2]


class RunManager:
    """Starts, watches, answers and ends runs.

    Args:
        agent: Returns the agent, built when it is first needed.
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
        agent: Callable[[], Agent],
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
        self._carrier = RunCarrier(
            agent, checkpointer, group, owner, servers, changed, limits, principals
        )
        self._starting: dict[str, LiveRun] = {}

    @property
    def active(self) -> int:
        """How many runs this process works on."""
        return len(self._carrier.live)

    # --- starting --------------------------------------------------------------------------

    async def drive(
        self,
        tool: str,
        args: dict[str, JsonValue],
        thread_id: str | None,
        seconds: float = DRIVE_SECONDS,
    ) -> Snapshot:
        """Run one tool call of a client's own model; return where it ended, or is after `seconds`.

        Calls on one thread wait for each other. A request that is dropped while it waits in line
        runs nothing; once its call has begun, the call is finished.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: A delegated run moves the thread, a question is open on it, or the calls
                before this one took too long.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        await self._require_owned(thread_id)
        if thread_id is not None and self._agent().recalls(thread_id):
            try:
                return await self._drive(tool, args, thread_id, seconds, trust_cache=True)
            except StaleThread:
                pass  # another process has moved the thread, so look at what it did
        return await self._drive(tool, args, thread_id, seconds, trust_cache=False)

    async def _drive(
        self,
        tool: str,
        args: dict[str, JsonValue],
        thread_id: str | None,
        seconds: float,
        *,
        trust_cache: bool,
    ) -> Snapshot:
        caller = current_caller.get()
        run_id = caller.new_id("run", thread_id)
        live = LiveRun(run_id, thread_id or caller.new_id("thr"), brief=True)
        live.counts = tool in LONG_TOOLS
        await self._enter(live, known_idle=thread_id is None or trust_cache)
        if live.counts:
            self._require_room(live)
        call = ToolCall(_call_id(live.run_id), tool, args)
        live.note_written(tool, args)

        async def work(agent: Agent, options: RunOptions) -> RunResult:
            options = replace(options, trust_cache=trust_cache)
            return await agent.adrive([call], thread_id=live.thread_id, options=options)

        self._carrier.spawn(live, work, modes=(), is_new=thread_id is None)
        with anyio.move_on_after(seconds):
            await live.finished.wait()
        if not live.finished.is_set():
            return Snapshot(self._unrecorded(live))
        if live.error is not None:
            raise live.error
        if live.result is None:
            raise HarnessError(
                f"The server is stopping. Run {live.run_id} goes on when it is started again."
            )
        results = live.result.results
        return Snapshot(live.result.run, live.result.interrupts, results[-1] if results else None)

    async def start(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        agent: str | None = None,
        key: str | None = None,
    ) -> str:
        """Begin to work on a goal and return the run's id once the input is in the journal.

        Args:
            goal: What shall be done.
            thread_id: The thread to go on with; a new one by default.
            agent: A subagent to give the goal to directly.
            key: Of the caller's choice: a second start with it finds the first one's run.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: The thread is in use.
            HarnessError: The input was refused; nothing was stored.
        """
        caller = current_caller.get()
        key = caller.key(key)
        await self._require_owned(thread_id)
        run_id = caller.new_id("run", thread_id)
        live = LiveRun(run_id, thread_id or caller.new_id("thr"))
        if key is not None and (known := await self._started_before(key, live)) is not None:
            return known

        async def work(main: Agent, options: RunOptions) -> RunResult:
            if agent is None:
                own = await self._agent_on(live.thread_id, main)
                return await own.ainvoke(goal, thread_id=live.thread_id, options=options)
            args: dict[str, JsonValue] = {"description": goal, "subagent_type": agent}
            call = ToolCall(_call_id(live.run_id), "task", args)
            return await main.adrive([call], thread_id=live.thread_id, options=options)

        try:
            await self._enter(live, known_idle=thread_id is None)
            self._require_room(live)
            self._carrier.spawn(live, work, key=key, is_new=thread_id is None)
            await live.control.accepted.wait()
        finally:
            if key is not None:
                self._release(key, live)
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

    async def _started_before(self, key: str, live: LiveRun) -> str | None:
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

    def _release(self, key: str, live: LiveRun) -> None:
        self._starting.pop(key, None)
        if live.run_id not in self._carrier.live:
            live.control.accepted.set()  # nothing was started, so let the next one look

    async def _enter(self, live: LiveRun, *, known_idle: bool) -> None:
        await self._carrier.take_gate(live)
        if known_idle:
            return
        try:
            await self._require_idle(live.thread_id)
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
        live = LiveRun(current_caller.get().new_id("run", thread_id), thread_id)
        await self._enter(live, known_idle=False)
        try:
            yield live.run_id
        finally:
            self._carrier.leave_gate(live)

    async def _require_idle(self, thread_id: str) -> None:
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        if not runs and await self._journal.load(thread_id) is not None:
            return  # a copy: its runs are those of another thread
        if not runs:
            raise await self._unknown_thread(thread_id)
        newest = runs[0]
        if newest.status == "needs_approval":
            raise ThreadBusy(
                f"Thread {thread_id} waits for an answer in run {newest.id}; nothing was done. "
                f'See the question with threads(thread_id="{thread_id}"), answer it with '
                f'reply(run_id="{newest.id}", …) or drop it with cancel(run_id="{newest.id}").'
            )
        if newest.status == "running":
            if await self._carrier.is_dead(newest.owner):
                self._carrier.adopt_soon(newest)
            raise busy(thread_id, newest.id)

    async def _require_owned(self, thread_id: str | None) -> None:
        if thread_id is not None and not current_caller.get().owns(thread_id):
            raise await self._unknown_thread(thread_id)

    def _require_room(self, live: LiveRun) -> None:
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
        advice = "Call threads to list them, or leave thread_id out to begin a new one."
        return UnknownThread(unknown("thread", thread_id, [row.thread_id for row in rows], advice))

    # --- watching --------------------------------------------------------------------------

    async def wait(self, run_id: str, seconds: float, emit: Emit | None = None) -> Snapshot:
        """Return where a run stands when it pauses or ends, or after `seconds`.

        Raises:
            UnknownRun: There is no such run.
        """
        with anyio.move_on_after(seconds):
            while (run := await self._find(run_id)).status == "running":
                live = self._carrier.live.get(run_id)
                if live is not None:
                    await live.listen(emit)
                elif not await self._carrier.is_dead(run.owner) or not await self._carrier.adopt(
                    run
                ):
                    await anyio.sleep(POLL_SECONDS)
        return await self.snapshot(run_id)

    async def snapshot(self, run_id: str) -> Snapshot:
        """Return where a run stands now.

        Raises:
            UnknownRun: There is no such run.
        """
        run = await self._find(run_id)
        if run.status == "needs_approval":
            return Snapshot(run, await self.questions(run_id))
        if run.kind == "drive" and run.status == "done":
            result = await self._tool_result(run)
            # No model summed it up, so the result of the call is the answer.
            return Snapshot(replace(run, answer=result.text if result else None), (), result)
        return Snapshot(run)

    async def is_stored(self, run_id: str) -> bool:
        """Whether a run is in the journal: a driven one is once its first act is."""
        return await self._journal.run(run_id) is not None

    def doing(self, run_id: str) -> str | None:
        """Return a line about what a run does right now, if this process works on it."""
        live = self._carrier.live.get(run_id)
        return live.line if live is not None else None

    async def questions(self, run_id: str) -> list[Interrupt]:
        """Return the open questions of a run, also while it still works on other calls."""
        return [one for one in await self._journal.interrupts(run_id) if not one.answered]

    async def _tool_result(self, run: Run) -> ToolMessage | None:
        """Return the result of a driven run's call; None after a rewind to before it."""
        state = await self._agent().get_state(run.thread_id)
        wanted = _call_id(run.id)
        for message in reversed(state.values.get("messages", ())):
            if isinstance(message, ToolMessage) and message.tool_call_id == wanted:
                return message
        return None

    async def _find(self, run_id: str) -> Run:
        owned = current_caller.get().owns(run_id)
        run = await self._journal.run(run_id) if owned else None
        live = self._carrier.live.get(run_id) if owned else None
        if run is None and live is not None:
            return self._unrecorded(live)
        if run is None:
            known = [one.id for one in await OwnedJournal(self._journal).find_runs(limit=200)]
            advice = "Call threads to see recent runs, or task to start one."
            raise UnknownRun(unknown("run", run_id, known, advice))
        return run

    def _unrecorded(self, live: LiveRun) -> Run:
        """Return the record of a run at work whose input waits for its first act."""
        return Run(live.run_id, live.thread_id, "drive", self._agent().name)

    # --- steering --------------------------------------------------------------------------

    async def reply(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Store answers and let the run go on; without answers, let a failed run try again.

        Raises:
            UnknownRun, RunEnded, UnknownInterrupt, InvalidAnswer: Nothing was stored.
            ThreadBusy: The run cannot go on now.
        """
        run = await self._find(run_id)
        if run_id in self._carrier.live:
            await self._agent().answer(run_id, answers)
        else:
            await self._carrier.resume(run, answers, most=self._max_runs)

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End a run; what it has committed stays. A run that has ended is returned as it is.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: The caller may not cancel it.
            ThreadBusy: Another living server process works on it.
        """
        run = await self._find(run_id)
        caller = current_caller.get()
        if not caller.may("delegate") and not (run.kind == "drive" and caller.may("drive")):
            raise HarnessError(
                f"Cancelling run {run_id} needs the scope 'delegate'; nothing was done."
            )
        return await self.end(run, reason)

    async def end(self, run: Run, reason: str) -> Run:
        """End a run, whoever asks for it; as `cancel`."""
        run_id = run.id
        live = self._carrier.live.get(run_id)
        if live is not None:
            live.control.cancel(reason)
            await live.finished.wait()
        run = await self._journal.run(run_id) or run
        if run.status in ("done", "failed", "cancelled"):
            return run
        if run.status == "running" and not await self._carrier.is_dead(run.owner):
            raise ThreadBusy(
                f"Run {run_id} belongs to another server process that is alive, so it was not "
                "cancelled. Cancel it through the client that started it."
            )
        run = replace(run, status="cancelled", reason=reason)
        await self._journal.commit(Batch(run.thread_id, runs=[run]))
        self._carrier.changed(run.thread_id)
        return run

    # --- background tasks ------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """Id of this server process."""
        return self._carrier.owner

    def serve_tasks(self, tasks: BackgroundSubAgents) -> None:
        """Carry background tasks too."""
        self._carrier.tasks = tasks

    async def carry(self, run: Run, answers: Mapping[str, JsonValue]) -> None:
        """Go on with a run, and return when it has paused or ended.

        Raises:
            HarnessError: It cannot go on now; nothing was stored.
        """
        if run.id not in self._carrier.live:
            await self._carrier.resume(run, answers)
        live = self._carrier.live.get(run.id)
        if live is not None:
            await live.finished.wait()

    async def is_left(self, run: Run) -> bool:
        """Whether nobody works on a run that is recorded as `running`."""
        return run.id not in self._carrier.live and await self._carrier.is_dead(run.owner)

    async def recover(self) -> list[str]:
        """Continue the runs of servers that died, and return their ids."""
        continued: list[str] = []
        left = await self._journal.find_runs(status="running", limit=1_000)
        if self._carrier.tasks is not None:
            waiting = await self._journal.find_runs(status="paused", limit=1_000)
            if any(parent_thread(one.thread_id) for one in (*left, *waiting)):
                self._agent()  # once it is built, its background tasks go on
            left = [one for one in left if parent_thread(one.thread_id) is None]
        for run in left:
            if run.id in self._carrier.live or not await self._carrier.is_dead(run.owner):
                continue
            if await self._carrier.adopt(run):
                continued.append(run.id)
        if continued:
            logger.warning("continuing %d runs of a server that ended", len(continued))
        return continued
