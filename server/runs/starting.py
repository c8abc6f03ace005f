"""Run starter: accepts goals, which start at once or wait in the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from ...harness.checkpoint.base import Run
from ...harness.errors import KnownRun, ThreadBusy
from ..auth.caller import current_caller
from ..sampling.queue import Offer
from ..settings.setting_types import is_sampling
from .active_run import ActiveRun
from .driving import CallDriver
from .goals import Goal

__all__ = ["Began", "OnBusy", "RunStarter"]

OnBusy: TypeAlias = Literal["refuse", "queue", "interrupt"]
"""What to do with a goal whose thread is in use."""

Began: TypeAlias = Callable[[str], None]
"""Called with the id of a run as soon as it is started."""

_ASK_TO_WAIT = 'To wait for the thread, call task again with on_busy="queue".'
_NO_QUEUE = "This server queues no runs (--queue-size 0), so on_busy must be 'refuse'."


class RunStarter(CallDriver):
    """Starts runs, and knows those of this process; see `CallDriver` for the arguments."""

    async def start(
        self,
        goal: Goal | str,
        *,
        thread_id: str | None = None,
        begins: bool = False,
        key: str | None = None,
        offer: Offer | None = None,
        began: Began | None = None,
        on_busy: OnBusy = "refuse",
    ) -> str:
        """Accept a goal, and return its run's id once the run is in the journal.

        The run starts at once if it may, and waits in line otherwise.

        Args:
            goal: What to do.
            thread_id: The thread to continue; a new one by default.
            begins: Whether to create the thread if no thread has that id.
            key: An idempotency key: a second start with the same key finds the first one's run.
            offer: The client's offer of its model; None if unknown.
            began: Called with the run's id if this call starts it, before its input is stored.
            on_busy: What to do if the thread is in use: refuse the goal, queue it, or end the
                working run and start the goal next.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: The thread is in use, or too many runs of the caller wait in line.
            HarnessError: The input was refused; nothing was stored.
        """
        caller = current_caller.get()
        key = caller.key(key)
        goal = Goal(goal) if isinstance(goal, str) else goal
        await self._require_owned(thread_id)
        run_id = caller.new_id("run", thread_id)
        live = ActiveRun(run_id, thread_id or caller.new_id("thr"), offer=offer)
        if key is not None and (known := await self._started_before(key, live)) is not None:
            return known
        try:
            waits = await self._waits(live, thread_id is None, begins, on_busy)
            if began is not None:
                began(run_id)
            if waits is None:
                waits = await self._begin(live, goal, key, on_busy)
            if waits is not None:
                interrupts = on_busy == "interrupt" and waits
                await self._put_in_line(live, replace(goal, interrupts=interrupts), key, waits)
        except KnownRun as error:  # another process was faster
            if not caller.owns(error.run_id):
                raise
            return error.run_id
        finally:
            self._queue.engine.started(run_id)
            if key is not None:
                self._release(key, live)
        return run_id

    async def _begin(
        self, live: ActiveRun, goal: Goal, key: str | None, on_busy: OnBusy
    ) -> bool | None:
        """Start a run that holds its thread's gate; return whether it has to wait after all.

        Raises:
            HarnessError: It cannot start; nothing was stored.
        """
        self._supervisor.spawn(live, self._work(goal, live), key=key, is_new=live.is_new)
        await live.control.accepted.wait()
        if isinstance(live.error, ThreadBusy):  # another server was faster
            self._require_waiting(live.error, on_busy)
            return True
        if live.error is not None:
            raise live.error
        return None

    async def _waits(
        self, live: ActiveRun, is_new: bool, begins: bool, on_busy: OnBusy
    ) -> bool | None:
        """Return what a run waits for: runs on its thread, or a place; None if it may start.

        If it may start, it holds the gate of its thread.

        Raises:
            UnknownThread, ThreadBusy: As for `start`.
            HarnessError: The agent cannot be built.
        """
        lent = self._works_with_its_client(live)  # first: on an error, it must hold no gate
        try:
            live.is_new = await self._enter(live, known_idle=is_new, begins=begins) or is_new
        except ThreadBusy as error:
            self._require_waiting(error, on_busy)
            return True
        if self._queue.admits(live.run_id) or lent:
            return None
        self._supervisor.leave_gate(live)
        if not self._queue.size:
            self._refuse_for_want_of_room(live.run_id)
        return False

    def _require_waiting(self, error: ThreadBusy, on_busy: OnBusy) -> None:
        """Check that a goal whose thread is in use may wait in line.

        Raises:
            ThreadBusy: It may not.
        """
        if on_busy == "refuse":
            advice = f" {_ASK_TO_WAIT}" if self._queue.size else ""
            raise ThreadBusy(f"{error}{advice}", error.run_id) from error
        if not self._queue.size:
            raise ThreadBusy(f"{error} {_NO_QUEUE}", error.run_id) from error

    def _works_with_its_client(self, live: ActiveRun) -> bool:
        """Whether a run wants the model of the client that starts it, which is connected here."""
        if live.offer != "tools" or not self._queue.engine.is_shared:
            return False
        return any(is_sampling(one.name) for one in self._agent(live.run_id).definition.models)

    async def _put_in_line(self, live: ActiveRun, goal: Goal, key: str | None, waits: bool) -> None:
        """Store a run that starts later.

        Raises:
            ThreadBusy: Too many of its owner's runs wait.
            HarnessError: It cannot be stored.
        """
        self._supervisor.stopping.require_serving()
        if self._agent.prepares:
            await self._agent.prepare(live.run_id)
        main = self._agent(live.run_id)
        kept = goal.screened(main)
        run = Run(
            live.run_id,
            live.thread_id,
            kept.kind,
            main.name,
            "queued",
            kept.text[:500],
            self._supervisor.owner,
            idempotency_key=key,
        )
        await self._queue.accept(run, kept, live.offer, waits=waits)
        self._supervisor.figures.heard(live)  # it may end before it works
        live.control.accepted.set()

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
        if live.run_id not in self._supervisor.live:
            live.control.accepted.set()  # nothing was started, so let the next caller try
        if live.control.accepted.is_set():
            self._starting.pop(key, None)
        else:  # the request was cancelled, and the key does not find its run yet
            self._group.start_soon(self._release_once_stored, key, live)

    async def _release_once_stored(self, key: str, live: ActiveRun) -> None:
        await live.control.accepted.wait()
        self._starting.pop(key, None)
