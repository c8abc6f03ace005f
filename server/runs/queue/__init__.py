"""Run queue: accepted runs that have not started, and runs that no server executes.

A run waits in line for one of two things: for its thread, if another run is open there, or for a
place, which the engine assigns. Waiting runs are in the journal with status `queued`, so the line
survives a crash.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from ....harness._internal.concurrency import work_apart
from ....harness.checkpoint.base import Batch, Checkpointer, Fence, Run, taken_over
from ....harness.errors import (
    HarnessError,
    JournalAway,
    StaleThread,
    Superseded,
    ThreadBusy,
)
from ...auth.caller import owner_of
from ...engine import Leg, RunEngine
from ...sampling.queue import Offer
from ..active_run import is_task
from ..goals import Goal, kept_goal
from ..lifecycle import ServerStopping
from .losses import MOST_LOSSES, ServerLosses, given_up
from .thread_queues import PAUSE, Supervisor, ThreadQueues
from .turns import Turns

__all__ = ["WAITS", "Begin", "RunQueue", "is_in_line", "lined_up"]

WAITS = "it waits for a free place"
"""Reason of a run that continues as soon as there is a place."""

Begin = Callable[[Run, Goal, Offer | None], Awaitable[None]]
"""Starts a queued run on its free thread; returns once its input is in the journal."""


_MOST_OFFERS = 10_000
"""How many offers of clients' models to keep for runs that have not started; oldest go first."""

_COUNTED_SECONDS, _COUNTED_TIMES = 2.0, 20.0
"""Seconds for which a count of queued runs is cached, at least; and as a multiple of its cost."""


logger = logging.getLogger(__name__)


def lined_up(run: Run) -> Batch:
    """Return the batch that lets any server continue a stopped run when it has a place."""
    return taken_over(run, status="running", owner=None, reason=WAITS, answer=None)


def is_in_line(run: Run) -> bool:
    """Whether a run was stored to wait for a place, and no server has continued it yet."""
    return (run.status, run.owner, run.reason) == ("running", None, WAITS)


class RunQueue:
    """Queues runs, and starts or continues them when their turn comes.

    Args:
        journal: The journal.
        engine: Decides when and where a run starts.
        supervisor: Executes runs on this server.
        group: The task group in which it waits.

    Attributes:
        begin: Starts a run here.
        engine: The same.
        size: The most queued runs of one caller; 0 for none.
        threads: The line of each thread.
    """

    def __init__(
        self,
        journal: Checkpointer,
        engine: RunEngine,
        supervisor: Supervisor,
        group: TaskGroup,
    ) -> None:
        self.engine = engine
        self.size = 1_000
        self.begin: Begin
        self._journal = journal
        self._supervisor = supervisor
        self._group = group
        self._losses = ServerLosses(journal)
        self._turns = Turns(journal)
        self.threads = ThreadQueues(journal, supervisor, group, self._turns, self.offer)
        self._offers: dict[str, Offer | None] = {}
        self._counts: dict[str, tuple[float, int]] = {}
        self._counting: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._serves = False

    def serve(self) -> None:
        """Begin to execute the runs that the engine hands out."""
        if not self._serves:
            self._serves = True
            self._group.start_soon(self.engine.serve, self.carry, name="engine")

    def admits(self, run_id: str, attempt: int = 1, *, is_task: bool = False) -> bool:
        """Whether a run may start here at once; if so, it must, and `engine.started` is due."""
        return self.engine.admits(Leg(run_id, attempt, owner_of(run_id), is_task=is_task))

    # --- putting in line -----------------------------------------------------------------------

    async def accept(self, run: Run, goal: Goal, offer: Offer | None, *, waits: bool) -> None:
        """Store a run that has to wait, and start it when its turn comes.

        Args:
            run: Its record.
            goal: Its goal, as it may be stored.
            offer: Its caller's offer of a model.
            waits: Whether other runs of its thread come first.

        Raises:
            ThreadBusy: Its owner has too many runs in line.
            KnownRun: There is a run with its key.
            HarnessError: It cannot be stored.
        """
        await self._require_size(owner_of(run.id))
        fence = Fence(run.id, run.attempt, begins=True)
        kept = await work_apart(partial(goal.kept, run.id), goal.size)
        batch = Batch(run.thread_id, runs=[run], events=[kept], fences=[fence])
        with anyio.CancelScope(shield=True):
            await self._journal.commit(batch)
            self._turns.note(run.id, goal)
            if offer is not None:
                self._offers[run.id] = offer
                while len(self._offers) > _MOST_OFFERS:
                    del self._offers[next(iter(self._offers))]
            if not waits:
                waits = not await self._try_to_offer(run, goal.priority)
            if waits:
                self.threads.guard(run.thread_id)
        self._supervisor.changed(run.thread_id, is_new=not waits)

    async def _require_size(self, owner: str) -> None:
        until, known = self._counts.get(owner, (-math.inf, 0))
        if anyio.current_time() > until or known >= self.size:
            async with self._counting.setdefault(owner, anyio.Lock()):
                until, known = await self._count(owner)
        self._counts[owner] = until, known + 1

    async def _count(self, owner: str) -> tuple[float, int]:
        """Return how many runs of a user wait in line, and when to count again."""
        begin = anyio.current_time()
        until, known = self._counts.get(owner, (-math.inf, 0))
        if begin <= until and known < self.size:  # another task has just counted
            return until, known
        prefix = f"run_{owner}_" if owner else ""
        found = await self._journal.find_runs(status="queued", prefix=prefix, limit=self.size + 1)
        if len(found) >= self.size:
            raise _full(found, self.size)
        now = anyio.current_time()
        return now + max(_COUNTED_SECONDS, _COUNTED_TIMES * (now - begin)), len(found)

    async def _try_to_offer(self, run: Run, priority: int | None = None) -> bool:
        try:
            return await self.offer(run, priority)
        except HarnessError as error:  # it is stored, so it is offered again
            logger.warning("run %s cannot be queued now: %s", run.id, error)
            return False

    async def offer(self, run: Run, priority: int | None = None, delay: float = 0.0) -> bool:
        """Ask the engine to start or continue a run; return whether some server will.

        Raises:
            HarnessError: The engine, or the journal, cannot be used.
        """
        self.serve()
        if priority is None:
            priority = (await self._turns.of(run.id)).priority
        leg = Leg(run.id, run.attempt, owner_of(run.id), priority, delay, is_task(run))
        if await self.engine.offer(leg):
            return True
        owner = run.owner if run.status == "queued" else None
        try:  # that attempt was offered before, so offer the next one
            await self._journal.commit(taken_over(run, owner=owner))
        except Superseded:
            return False
        return await self.engine.offer(replace(leg, attempt=run.attempt + 1))

    async def go_on(self, run: Run) -> None:
        """Queue a stopped run that can continue, like an abandoned one.

        Raises:
            HarnessError: It cannot continue; nothing was stored.
        """
        batch = lined_up(run)
        with anyio.CancelScope(shield=True):  # a client that gives up must not leave it half done
            await self._journal.commit(batch)
            await self._try_to_offer(batch.runs[0])

    async def is_left(self, run: Run) -> bool:
        """Whether no server works on a running run, or no line holds a queued one."""
        if run.status != "queued":
            return await self._supervisor.is_left(run)
        if run.owner == self._supervisor.owner:
            return False
        return run.owner is None or not await self._supervisor.servers.is_alive(run.owner)

    async def withdraw(self, run_id: str) -> None:
        """Take a run out of the line."""
        self._offers.pop(run_id, None)
        try:
            await self.engine.withdraw(run_id)
        except HarnessError as error:  # the server that receives it finds that it has ended
            logger.debug("run %s stays in the queue: %s", run_id, error)

    # --- carrying ------------------------------------------------------------------------------

    async def carry(self, run_id: str) -> None:
        """Start or continue a run, and return when it has stopped here; see `Carry`."""
        while not await self._try_to_execute(run_id):
            pass
        live = self._supervisor.live.get(run_id)
        if live is not None:
            await live.finished.wait()

    async def _try_to_execute(self, run_id: str) -> bool:
        """Return whether the run was handled; if not, the journal was away: try again.

        The engine no longer knows that it gave us the run.
        """
        stops = self._supervisor.stopping.has_begun
        try:
            run = await self._journal.run(run_id)
            if run is not None and stops:
                await self._hand_back(run)
            elif run is not None:
                await self._execute(run)
        except HarnessError as error:
            logger.warning("run %s cannot be started now: %s", run_id, error)
            if isinstance(error, JournalAway) and not stops:
                await anyio.sleep(PAUSE)
                return False
        return True

    async def _hand_back(self, run: Run) -> None:
        """Pass a run that arrives during shutdown to another server."""
        if run.status not in ("queued", "running"):
            return
        await anyio.sleep(PAUSE)  # otherwise the engine might give it to us again and again
        if run.status == "running" and not await self._supervisor.is_left(run):
            return
        batch = taken_over(run, owner=None)
        await self._journal.commit(batch)
        await self._try_to_offer(batch.runs[0])

    async def _execute(self, run: Run) -> None:
        if run.status == "queued":
            await self._begin_queued(run)
        elif run.status == "running" and await self._supervisor.is_left(run):
            await self._supervisor.adopt(run, here=True)
        elif run.status == "needs_approval":
            known = await self._journal.interrupts(run.id)
            asked = [one for one in known if one.kind != "message"]
            if any(one.answered for one in asked) and not self._supervisor.goes_on(run.id):
                await self._supervisor.adopt(run, here=True)

    async def _begin_queued(self, run: Run) -> None:
        line = await self._journal.find_runs(thread_id=run.thread_id, status="queued", limit=2)
        if len(line) > 1 and (await self.threads.line(run.thread_id))[0].id != run.id:
            self.threads.guard(run.thread_id)
            return
        offer = self._offers.pop(run.id, None)
        try:
            goal = await kept_goal(self._journal, run.id)
            if goal is None:
                raise HarnessError("it was queued for too long, and its goal is no longer stored")
            await self.begin(run, goal, offer)
        except (JournalAway, ServerStopping):
            if offer is not None:  # it is tried again
                self._offers[run.id] = offer
            raise
        except HarnessError as error:
            if isinstance(error, StaleThread) or getattr(error, "run_id", None) is not None:
                self.threads.guard(run.thread_id)  # another server was faster, or it was ended
                return
            logger.warning("run %s cannot begin: %s", run.id, error)
            await self._fail(run, str(error))
        except Exception as error:
            logger.exception("run %s cannot begin", run.id)
            await self._fail(
                run,
                f"it could not begin ({type(error).__name__}: {error}), and did nothing; the "
                "server's log has the details",
            )

    async def _fail(self, run: Run, reason: str) -> None:
        await self._journal.commit(taken_over(run, status="failed", reason=reason))
        self._supervisor.changed(run.thread_id)

    # --- what is left --------------------------------------------------------------------------

    async def may_adopt(self, run: Run) -> bool:
        """Whether an abandoned run may continue here at once; otherwise it is queued.

        If it may, `engine.started` is due once it has. A run whose servers have died too often is
        given up.

        Raises:
            HarnessError: The journal, or the engine, cannot be used.
        """
        if run.status == "queued":
            await self.take(run)
            return False
        delay = 0.0
        if run.status == "running" and self._was_lost(run):
            losses = await self._losses.lost(run)
            if losses >= MOST_LOSSES:
                await self._give_up(run)
                return False
            delay = ServerLosses.delay(losses)
        if run.kind == "drive" and not delay:
            return True
        leg = Leg(run.id, run.attempt, owner_of(run.id), delay=delay, is_task=is_task(run))
        if self.engine.admits(leg):
            return True
        await self.offer(run, delay=delay)
        return False

    def _was_lost(self, run: Run) -> bool:
        """Whether the server that worked on a run was killed, perhaps by the run."""
        if run.owner is None or run.owner == self._supervisor.owner:
            return False
        return self._supervisor.servers.was_killed(run.owner)

    async def _give_up(self, run: Run) -> None:
        logger.error("run %s was given up: %s", run.id, given_up())
        batch = taken_over(run, status="failed", reason=given_up())
        batch = replace(batch, events=[self._losses.note_given_up(run)])
        try:
            await self._journal.commit(batch)
        except Superseded:
            return
        self._supervisor.changed(run.thread_id)

    async def take(self, run: Run) -> None:
        """Take over a queued run whose server has gone.

        Raises:
            HarnessError: The journal cannot be written.
        """
        with anyio.CancelScope(shield=True):  # a client that gives up must not leave it half done
            if run.owner != self._supervisor.owner:
                batch = taken_over(run, owner=self._supervisor.owner)
                try:
                    await self._journal.commit(batch)
                except Superseded:  # another server does
                    return
                run = batch.runs[0]
            if not await self._try_to_offer(run):
                self.threads.guard(run.thread_id)


def _full(found: Collection[Run], size: int) -> ThreadBusy:
    if not size:
        return ThreadBusy("this server queues no runs (--queue-size 0); nothing was started.")
    first = min(found, key=lambda one: one.created_at)
    return ThreadBusy(
        f"{len(found)} of your runs are queued, and --queue-size allows {size}; nothing was "
        f'started. Wait for one with wait(run_id="{first.id}"), or cancel one, then call again.',
        first.id,
    )
