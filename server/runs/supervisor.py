"""Run supervisor: executes runs in the app's task group, one per thread at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic import JsonValue

from ...harness._internal.concurrency import LazyEvent
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import Checkpointer, Run, taken_over
from ...harness.errors import HarnessError, JournalAway, RunEnded, Superseded, ToolError
from ...harness.limits.carried_limits import narrowed
from ...harness.limits.limits import Limits
from ...harness.loop.run.events import Event, StreamMode
from ...harness.policy.composite import consenting
from ..approvals import RunConsents
from ..auth.caller import Principals, owner_of
from ..engine import Bounds, MakeEngine
from ..engine.local import LocalEngine
from ..sampling.queue import Offer, SamplingQueue
from .active_run import (
    ActiveRun,
    GateHolder,
    ThreadGates,
    agent_of,
    busy,
    is_task,
    starts_by_itself,
)
from .cancellation import Cancellation
from .contracts import Agents, Changed, Servers, Work
from .goals import StructuredRuns
from .lifecycle import JournalWait, RunFigures, Stopping
from .progress import note_event
from .queue import RunQueue

if TYPE_CHECKING:
    from ...harness.subagents.background.launcher import BackgroundSubAgents

__all__ = ["QUEUE_SECONDS", "RunSupervisor"]

QUEUE_SECONDS = 30.0
"""Seconds that a driven call waits for other calls on its thread."""

logger = logging.getLogger(__name__)


class RunSupervisor:
    """Executes runs.

    Args:
        agent: Returns the agent of a thread or run, built when it is first needed.
        journal: The journal.
        group: The task group that runs live in.
        owner: Id of this server process.
        servers: Says which other processes are alive.
        changed: Called when a thread has changed.
        limits: Limits of each run tree.
        principals: Says which user a run belongs to.
        bounds: How many runs may work at the same time.
        engine: Makes the engine, which decides when a run starts.

    Attributes:
        live: Working runs, by id.
        stuck: Why abandoned runs cannot continue, by id, for those that were tried.
        cancellation: Ends runs.
        structured: Which runs have structured answers.
        stopping: Whether this server is stopping, and who waits for its runs.
        figures: How many runs have started and stopped here.
        consents: Approvals that apply to later calls.
        journal_wait: The runs that wait for a journal that cannot be used.
        queue: The runs that wait for their turn.
    """

    def __init__(
        self,
        agent: Agents,
        journal: Checkpointer,
        group: TaskGroup,
        owner: str,
        servers: Servers,
        changed: Changed,
        limits: Limits,
        principals: Principals | None = None,
        bounds: Bounds | None = None,
        engine: MakeEngine = LocalEngine,
    ) -> None:
        self.live: dict[str, ActiveRun] = {}
        self.stuck: dict[str, str] = {}
        self.structured = StructuredRuns()
        self.stopping = Stopping(self.live, servers)
        self.figures = RunFigures()
        self.journal_wait = JournalWait(journal, self._adopt_if_left, group)
        self._undecided: dict[str, LazyEvent] = {}
        self.sampling = SamplingQueue(changed)
        self.changed = changed
        self._agent = agent
        self._journal = journal
        self._group = group
        self.owner = owner
        self.servers = servers
        self.limits = limits
        self._principals = principals
        self._gates = ThreadGates()
        self.tasks: BackgroundSubAgents | None = None
        self.consents = RunConsents(journal)
        self.bounds = bounds or Bounds()
        self.queue = RunQueue(journal, engine(lambda: self.bounds, self), self, group)
        self.cancellation = Cancellation(journal, servers, self.live, self.is_left, self._was_ended)

    async def take_gate(self, live: ActiveRun) -> None:
        """Wait for driven calls on the thread, then reserve it.

        Raises:
            ThreadBusy: A delegated run is on it, or the driven calls take too long.
            HarnessError: The run is nobody's who is known.
        """
        if self._principals is not None:
            live.principal = await self._principals.find(live.run_id)
        wanted = GateHolder(live.run_id, live.brief)
        holder = await self._gates.enter(live.thread_id, wanted, QUEUE_SECONDS)
        if holder is not None:
            raise busy(live.thread_id, holder.run_id)

    def holds_gate(self, run: Run) -> bool:
        """Whether a run holds the gate of its thread: it is executed, or about to be."""
        holder = self._gates.holder(run.thread_id)
        return holder is not None and holder.run_id == run.id

    def working(self, owner: str | None = None, *, tasks: bool = False) -> list[str]:
        """Return the counted runs, or background tasks, that work here: all, or one user's."""
        return [
            run_id
            for run_id, live in self.live.items()
            if live.counts and live.is_task == tasks and owner in (None, owner_of(run_id))
        ]

    def leave_gate(self, live: ActiveRun) -> None:
        """Release the gate of a thread; `spawn` does so by itself at the end."""
        self._gates.leave(live.thread_id)

    def spawn(
        self,
        live: ActiveRun,
        work: Work,
        *,
        modes: Sequence[StreamMode] = ("tasks", "checkpoints", "custom", "messages"),
        key: str | None = None,
        is_new: bool = False,
        trust_cache: bool = False,
        accepted: Run | None = None,
    ) -> None:
        """Execute a run whose gate was taken, independent of the request that asked for it.

        Raises:
            HarnessError: Its user is unknown, or this server is stopping; the gate was released.
        """
        try:
            self.stopping.require_serving()
        except HarnessError:
            self.leave_gate(live)
            raise
        options = RunOptions(
            run_id=live.run_id,
            emit=lambda event: self._hear(live, event),
            modes=modes,
            limits=self.limits,
            control=live.control,
            owner=self.owner,
            idempotency_key=key,
            log_events=not live.brief,
            trust_cache=trust_cache,
            principal=live.principal,
            accepted=accepted,
        )
        self.live[live.run_id] = live
        self.journal_wait.forget(live.run_id)
        self.figures.begun(live)
        self.cancellation.look_out(self._group)
        name = f"run {live.run_id}"
        self._group.start_soon(self._execute, live, work, options, is_new, name=name)

    async def _execute(
        self, live: ActiveRun, work: Work, options: RunOptions, is_new: bool
    ) -> None:
        """Execute a run until it pauses or ends. No error of it may end the task group."""
        try:
            with self.sampling.carrying(
                live.run_id, live.thread_id, live.control.pause, live.offer
            ) as live.sampled:
                if self._agent.prepares:
                    await self._agent.prepare(live.run_id)
                agent = self._agent(live.run_id)
                if agent.limits is not None:
                    options = replace(options, limits=narrowed(self.limits, agent.limits))
                with consenting(self.consents):
                    live.result = await work(agent, options)
            if not live.brief:
                self.structured.note_result(live.result)
        except HarnessError as error:
            live.error = self._left(live, error)
        except Exception as error:
            logger.exception("run %s failed", live.run_id)
            live.error = HarnessError(
                f"run {live.run_id} failed inside the server ({type(error).__name__}: {error}); "
                "the server's log has the details. What it had committed stays."
            )
        finally:
            del self.live[live.run_id]
            self.figures.ended(live)
            self._gates.leave(live.thread_id)
            live.control.accepted.set()
            live.finished.set()
            if live.counts:  # so there is room for another one
                self.queue.engine.room_changed()
        parts, files = live.take_written()
        if live.result is None or live.result.unrecorded is None:
            self.changed(live.thread_id, parts=parts, files=files, is_new=is_new)
        if self.tasks is not None:
            self.tasks.thread_changed(live.thread_id)
        if live.result is not None and live.result.run.status == "needs_approval":
            await self._let_go(live.result)

    def _left(self, live: ActiveRun, error: HarnessError) -> HarnessError:
        """Return the error to raise for callers that wait for a run which stopped with an error."""
        if isinstance(error, Superseded):
            logger.warning("run %s continues elsewhere: %s", live.run_id, error)
            return busy(live.thread_id, live.run_id)
        if isinstance(error, JournalAway) and live.control.accepted.is_set():
            self.journal_wait.begin(live.run_id)
        return error

    async def _adopt_if_left(self, run: Run) -> bool:
        """Continue a run that nobody works on; return whether nothing more is to be done here."""
        if run.status != "running" or not await self.is_left(run):
            return True
        return await self.adopt(run) or run.id not in self.stuck

    def _hear(self, live: ActiveRun, event: Event) -> None:
        if event.data.get("event") == "tool_start" and not self.servers.may_work:
            live.control.leave()
        note_event(live, event, self.changed)

    async def _let_go(self, result: RunResult) -> None:
        """Release a run that waits for answers, unless it can continue at once."""
        run_id = result.run.id
        decided = self._undecided[run_id] = LazyEvent()
        await anyio.lowlevel.checkpoint()  # so that the engine sees that its turn has ended
        await self._go_on_if_answered(result)
        if self._undecided.get(run_id) is decided:
            del self._undecided[run_id]
        decided.set()

    async def _go_on_if_answered(self, result: RunResult) -> None:
        """Resume a run that got its answer just as it paused to wait for it."""
        open_ids = {one.id for one in result.interrupts}
        try:
            known = await self._journal.interrupts(result.run.id)
        except HarnessError as error:
            logger.warning("run %s waits for an answer: %s", result.run.id, error)
            return
        if any(one.answered for one in known if one.id in open_ids):
            await self.adopt(result.run)

    async def resume(
        self, run: Run, answers: Mapping[str, JsonValue], *, offer: Offer | None = None
    ) -> None:
        """Continue a run that waits, has failed, or was abandoned.

        Args:
            run: The run.
            answers: The answers to its questions.
            offer: The client's offer of its model, if the client continues the run.

        Raises:
            ThreadBusy: Its thread is in use, or another living process works on it.
            HarnessError: As for `Agent.aresume`; nothing was stored.
        """
        if run.status == "queued":
            raise starts_by_itself(run)
        live = ActiveRun(run.id, run.thread_id, offer=offer, is_task=is_task(run))
        await self.take_gate(live)

        async def work(main: Agent, options: RunOptions) -> RunResult:
            agent = agent_of(run, main, self.tasks)
            if agent is not main and agent.limits is not None:
                options = replace(options, limits=agent.limits)
            return await agent.aresume(run.id, answers, options=options)

        passed_on = False
        try:
            async with self.servers.takeover():
                now = await self._journal.run(run.id)
                if now is not None and now.status == "running":
                    if not await self.is_left(now):
                        raise busy(run.thread_id, run.id)
                    await self.cancellation.require_unasked(now)
                passed_on = True
                self.spawn(live, work)
                await live.control.accepted.wait()
        finally:
            if not passed_on:
                self.leave_gate(live)
        if live.error is not None:
            raise live.error

    def goes_on(self, run_id: str) -> bool:
        """Whether a run works here, or will as soon as it has no open questions."""
        return run_id in self.live or run_id in self._undecided

    async def decided(self, run_id: str) -> None:
        """Wait until a run that paused either works again or stays paused."""
        about_to = self._undecided.get(run_id)
        if about_to is not None:
            await about_to.wait()

    async def drain(self, seconds: float) -> None:
        """Start nothing more, let runs finish their step within `seconds`, and hand them over."""
        if self.tasks is not None:
            self.tasks.stop_starting()
        await self.queue.engine.drain()
        await self.stopping.drain(seconds)

    def _was_ended(self, run: Run) -> None:
        self.stuck.pop(run.id, None)
        self.changed(run.thread_id)
        self._group.start_soon(self.queue.withdraw, run.id)

    async def is_left(self, run: Run) -> bool:
        """Return whether a run has the status `running` although no process executes it.

        This process can abandon a run as well, if the journal could not store how it ended.
        """
        if run.id in self.live:
            return False
        if run.owner == self.owner:  # it may have ended since its record was read
            now = await self._journal.run(run.id)
            return now is not None and now.status == "running" and run.id not in self.live
        return run.owner is None or not await self.servers.is_alive(run.owner)

    async def adopt(self, run: Run, *, here: bool = False) -> bool:
        """Continue a run that nobody works on; return whether this process has continued it.

        A short run may have ended by then. It waits for its turn, unless its turn is `here`. Errors
        are not raised, because no caller is at fault; the next check tries again.

        Raises:
            JournalAway: Its turn is here; the engine no longer knows it, so the caller tries again.
        """
        if run.id in self.live or self.stopping.has_begun:
            return run.id in self.live
        admitted = is_resumed = False
        try:
            admitted = not here and await self.queue.may_adopt(run)
            if here or admitted:
                is_resumed = await self._resume_or_end(run)
            self.stuck.pop(run.id, None)
            self.figures.taken_over += is_resumed and run.owner != self.owner
        except HarnessError as error:
            if self.stuck.get(run.id) != str(error):  # it is tried twice a second
                logger.warning("run %s cannot be continued now: %s", run.id, error)
            self.stuck[run.id] = str(error)
            if here and isinstance(error, JournalAway):
                raise
        except Exception:
            logger.exception("run %s cannot be continued now", run.id)
        finally:
            if admitted:
                self.queue.engine.started(run.id)
        return is_resumed or run.id in self.live

    async def _resume_or_end(self, run: Run) -> bool:
        """Continue a run, or record that it cannot continue; return whether it has continued."""
        if not await self._is_still(run):
            return False
        try:
            await self.resume(run, {})
        except (RunEnded, ToolError) as error:
            await self.end_superseded(run, error)
            return False
        return True

    async def end_superseded(self, run: Run, error: HarnessError) -> None:
        """Record that a run cannot continue, unless another process has continued it."""
        if await self._is_still(run):
            with suppress(Superseded):  # another process was faster
                await self._journal.commit(taken_over(run, status="failed", reason=str(error)))
                self.changed(run.thread_id)

    async def _is_still(self, run: Run) -> bool:
        """Whether the run is unchanged since its record was read."""
        now = await self._journal.run(run.id)
        return now is not None and now.status == run.status
