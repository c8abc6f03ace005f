"""Runs as background work: they live in the app's task group, and requests only wait for them.

So a client that gives up, disconnects or times out ends its wait and nothing else. What a run is
doing is in the journal; memory only holds which run is being worked on now. If a server dies,
the next server that finds its runs continues them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.checkpoint.base import ENDED, OPEN, Run
from ...harness.errors import (
    HarnessError,
    RunEnded,
    StaleThread,
    ThreadBusy,
)
from ...harness.limits.limits import Limits
from ...harness.loop.run.caller_messages import CallerMessage, messages_of
from ..approvals.decisions import How, note_decisions
from ..auth.caller import current_caller
from ..engine import Bounds
from ..sampling.queue import Offer, is_parked
from .active_run import ActiveRun, agent_of, is_task
from .lifecycle import KINDS, RunFigures, Stopping, kind_of
from .queue import RunQueue, is_in_line
from .supervisor import RunSupervisor
from .watching import RunWatcher

if TYPE_CHECKING:
    from ...harness.subagents.background.launcher import BackgroundSubAgents

__all__ = ["RunManager"]

_MOST_QUEUED = 100_000
"""The most queued runs that a server continues when it starts."""

LEND_SECONDS = 30.0
"""Seconds for which a client that polls counts as connected."""

logger = logging.getLogger(__name__)


class RunManager(RunWatcher):
    """Starts, watches, answers and ends runs; see `RunStarter` for the arguments."""

    @property
    def supervisor(self) -> RunSupervisor:
        """Executes the runs, background tasks included."""
        return self._supervisor

    @property
    def queue(self) -> RunQueue:
        """The runs that wait for their turn."""
        return self._queue

    def bound(
        self, limits: Limits, bounds: Bounds, queue_size: int, journal_patience: float
    ) -> None:
        """Apply these limits to runs that start from now on."""
        self._supervisor.bounds = bounds
        self._queue.size = queue_size
        self._queue.engine.room_changed()
        self._supervisor.limits = limits
        self._supervisor.journal_wait.wait_seconds = journal_patience

    @property
    def active(self) -> int:
        """How many runs this process works on."""
        return len(self._supervisor.live)

    @property
    def at_work(self) -> Mapping[str, int]:
        """How many of each kind it works on."""
        counts = Counter(map(kind_of, self._supervisor.live.values()))
        return {kind: counts[kind] for kind in KINDS}

    @property
    def figures(self) -> RunFigures:
        """How many runs have started and stopped here."""
        return self._supervisor.figures

    @property
    def stopping(self) -> Stopping:
        """Whether this server is stopping."""
        return self._supervisor.stopping

    async def drain(self, seconds: float) -> None:
        """Start nothing more, and hand over the working runs; see `RunSupervisor.drain`."""
        await self._supervisor.drain(seconds)

    # --- steering --------------------------------------------------------------------------

    async def reply(
        self,
        run_id: str,
        answers: Mapping[str, JsonValue],
        *,
        offer: Offer | None = None,
        how: How = "reply",
    ) -> dict[str, JsonValue]:
        """Store answers and continue the run; without answers, retry a failed run.

        The first answer of a question stands. The same one again changes nothing.

        Args:
            run_id: The run.
            answers: By question.
            offer: The client's offer of its model, if the client retries the run.
            how: The way in which the caller answers.

        Returns:
            The stored answers, by question, for those answers that came too late.

        Raises:
            UnknownRun, RunEnded, UnknownInterrupt, InvalidAnswer: Nothing was stored.
            ThreadBusy: The run cannot go on now.
        """
        async with self._replying.setdefault(run_id, anyio.Lock()):
            run = await self._find(run_id)  # not before: an earlier answer may have continued it
            asked = await self.asked(run_id) if answers else ()
            stored = {one.id: one.answer for one in asked if one.answered}
            fresh = {key: value for key, value in answers.items() if key not in stored}
            # A server may have died after it stored the last answer.
            waits_in_vain = run.status == "needs_approval" and len(stored) == len(asked)
            live = self._supervisor.live.get(run_id)
            if live is not None:
                await self._agent_of(run).answer(run_id, fresh)
                await self._go_on_if_paused(live, fresh)
            elif fresh or not answers or waits_in_vain:
                try:
                    await self.go_on(run, fresh, offer)
                except (RunEnded, StaleThread, ThreadBusy) as error:
                    asked = await self.asked(run_id)
                    stored = {one.id: one.answer for one in asked if one.answered}
                    left = {key: value for key, value in fresh.items() if key not in stored}
                    elsewhere = getattr(error, "run_id", run_id) == run_id
                    if not answers or (
                        left and not (elsewhere and await self._answered_elsewhere(run_id, left))
                    ):
                        raise  # otherwise another process has stored all answers meanwhile
        await note_decisions(self._journal, run, fresh.keys() - stored.keys(), how)
        return {
            key: stored[key] for key in answers if answers[key] != stored.get(key, answers[key])
        }

    async def go_on(
        self, run: Run, answers: Mapping[str, JsonValue], offer: Offer | None = None
    ) -> None:
        """Continue a run with answers: at once if possible, or else when its turn comes.

        Args:
            run: The run.
            answers: New answers to its questions; those in the journal are used anyway.
            offer: The client's offer of its model, if the client continues the run.

        Raises:
            RunEnded, UnknownInterrupt, InvalidAnswer, StaleThread, ThreadBusy: Nothing was stored.
        """
        self._supervisor.stopping.require_serving()
        stands = run.status in ("needs_approval", "paused", "failed") and run.kind == "delegate"
        if is_parked(run):  # it continues where its client's model is
            self._require_place(run.id)
        in_line = is_in_line(run)
        here = not (stands or in_line) or is_parked(run)
        admitted = not here and self._queue.admits(run.id, run.attempt, is_task=is_task(run))
        if here or admitted:
            try:
                await self._supervisor.resume(run, answers, offer=offer)
            finally:
                if admitted:
                    self._queue.engine.started(run.id)
            return
        if self._agent.prepares:
            await self._agent.prepare(run.id)
        agent = self._agent_of(run)
        with anyio.CancelScope(shield=True):  # a client that gives up must not leave it half done
            if answers:
                await agent.answer(run.id, answers)
            if in_line:
                await self._queue.offer(run)  # it keeps its place, unless its server has ended
            else:
                await self._queue.go_on(run)

    async def _go_on_if_paused(self, live: ActiveRun, answers: Mapping[str, JsonValue]) -> None:
        """Continue a run that paused just before the answers that it waits for were stored."""
        await self._supervisor.decided(live.run_id)
        waits_for = live.result.interrupts if live.result is not None else ()
        if live.result is None or not any(one.id in answers for one in waits_for):
            return
        run = await self._find(live.run_id)
        if (run.status, run.attempt) == ("needs_approval", live.result.run.attempt):
            await self._supervisor.adopt(run)

    def _agent_of(self, run: Run) -> Agent:
        return agent_of(run, self._agent(run.id), self._supervisor.tasks)

    async def tell(self, run: Run, message: str) -> CallerMessage:
        """Send a message to a running or waiting run; see `Agent.asteer`."""
        await self._agent.prepare(run.id)
        agent = self._agent_of(run)
        try:
            return await agent.asteer(run.id, message)
        except RunEnded as error:
            raise RunEnded(f"The message was not stored: {error}.") from error

    async def messages(self, run: Run) -> Sequence[CallerMessage]:
        """Return the messages that its caller sent to a run while it worked, oldest first."""
        if run.kind == "drive":
            return ()
        return messages_of(run, await self._journal.interrupts(run.id))

    async def _answered_elsewhere(self, run_id: str, answers: Mapping[str, JsonValue]) -> bool:
        """Store answers for a run that another server works on, or has just paused.

        That server continues with them when it reaches the questions. If it already has, this
        server does.

        Returns:
            Whether it is such a run.
        """
        run, supervisor = await self._find(run_id), self._supervisor
        if run.status not in OPEN or (run.status == "running" and await supervisor.is_left(run)):
            return False
        await self._agent_of(run).answer(run_id, answers)
        run = await self._find(run_id)
        if run.status == "needs_approval" and not await self.questions(run_id):
            await self._supervisor.adopt(run)
        return True

    async def unpark(self, run_id: str, seconds: float = LEND_SECONDS) -> None:
        """Continue a run that waits for a client's model.

        The background tasks of its thread continue as well, whatever became of the run itself. If
        the thread has changed without the run, the run is recorded as failed. If another server
        works on the run, it pauses the run at the next call of the model, so that it can continue
        here.

        Args:
            run_id: The run.
            seconds: How long the client stays connected.

        Raises:
            UnknownRun: There is no such run.
            ThreadBusy: Another run is on its thread, or the caller has enough runs at work.
            HarnessError: The run cannot continue now.
        """
        run = await self._find(run_id)
        if self._supervisor.tasks is not None:
            await self._unpark_tasks(self._supervisor.tasks, run.thread_id)
        if not is_parked(run):
            if run.status == "running" and run_id not in self._supervisor.live:
                self._supervisor.servers.run_changes.lend(run_id, seconds)
            return
        try:
            await self.reply(run_id, {}, offer="tools")
        except RunEnded as error:
            await self._supervisor.end_superseded(run, error)
        except ThreadBusy:
            faster = self._supervisor.holds_gate(run) or not is_parked(await self._find(run_id))
            if not faster:
                raise

    async def _unpark_tasks(self, tasks: BackgroundSubAgents, thread_id: str) -> None:
        for run in await self._journal.find_runs(status="paused", limit=1_000):
            if not is_parked(run) or not run.thread_id.startswith(f"{thread_id}."):
                continue
            try:
                await tasks.answer(run.id, {})  # in line, because of the limit on working runs
            except HarnessError as error:  # the run that the caller waits for is not at fault
                logger.warning("background run %s stays paused: %s", run.id, error)

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End a run; its committed steps stay. A run that has ended is returned as it is.

        Background tasks of its thread end with it, unless it is a driven call. A repeated cancel
        leaves tasks that began after the run had ended.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: The caller may not cancel it.
            ThreadBusy: Another server process works on it and is slow to end it, but will.
        """
        run = await self._find(run_id)
        caller = current_caller.get()
        if not caller.may("delegate") and not (run.kind == "drive" and caller.may("drive")):
            raise HarnessError(
                f"Cancelling run {run_id} needs the scope 'delegate'; nothing was done. Ask the "
                "operator for a token with this scope."
            )
        before, run = run, await self._supervisor.cancellation.end(run, reason)
        tasks = self._supervisor.tasks
        is_cancelled = run.status == "cancelled" and run.kind == "delegate"
        if is_cancelled and not is_task(run) and tasks is not None:
            until = run.updated_at if before.status in ENDED else None
            await tasks.cancel_all(run.thread_id, reason, begun_by=until)
        return run

    # --- what servers that died have left ----------------------------------------------------

    async def recover(self) -> list[str]:
        """Continue the runs of servers that died, and return their ids."""
        await self._supervisor.cancellation.forget_settled()
        left = [*await self._journal.find_runs(status="running", limit=1_000)]
        waiting = await self._journal.find_runs(status="needs_approval", limit=1_000)
        # Of these, servers have stored the answers, and ended before they could continue them.
        left += [one for one in waiting if await self._goes_on(one)]
        # The oldest first, so that they start in the order of their arrival.
        left += [*await self._journal.find_runs(status="queued", limit=_MOST_QUEUED)][::-1]
        continued = [
            one.id
            for one in left
            if await self._queue.is_left(one) and await self._supervisor.adopt(one)
        ]
        if continued:
            logger.warning("continuing %d runs of a server that ended", len(continued))
        return continued
