"""DBOS engine: a queue of runs in a database that several servers share.

Only this module and `dbos_database` import `dbos`, and they use only the queue. A leg is one
workflow without steps, `<run id>:<attempt>`, whose only argument is the run's id. DBOS limits how
many legs of one owner work at once on all servers, and assigns each leg to a server. The journal
knows what a run is and whether a leg is still needed, so losing these tables does no harm.

If a server dies, DBOS still counts its legs as working, so they keep a place of their owner. DBOS
does not detect dead servers, so `offered` ends these legs. DBOS recovers nothing by itself, because
each process has a new name, under which DBOS has no workflows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from dbos import (
    DBOS,
    EnqueueOptions,
    WorkflowStatus,
    error,
)
from sqlalchemy.exc import SQLAlchemyError

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from . import Bounds, Carry, Leg, Working
from .dbos_database import KEPT_SECONDS, PAGE, Place, close, forget_old, launch, queue_of, tune

__all__ = ["DbosEngine", "EngineAway"]

_VERSION = "legs-1"
"""Changes when the meaning of a leg changes. Servers with the same value share legs."""

_ANSWER_SECONDS = 10.0
_RELAUNCH_SECONDS = 1.0

_OTHERS_SECONDS = 30.0
"""Seconds that a leg waits for a server of the version that offered it."""

_LOOK_SECONDS = 5.0
_CLOSE_SECONDS = 3.0
_WORKING = ("ENQUEUED", "DELAYED", "PENDING")

T = TypeVar("T")

logger = logging.getLogger(__name__)


class EngineAway(HarnessError):
    """The engine's tables cannot be used now; the run will be offered again later."""


@record
class _Given:
    """A leg that DBOS has given to us.

    Attributes:
        run_id: The run.
        lane: The priority of its owner.
        is_task: Whether it takes a place of background tasks.
        over: Set when it is no longer executed.
    """

    run_id: str
    lane: int
    is_task: bool
    over: concurrent.futures.Future[None]


class DbosEngine:
    """A `RunEngine` on DBOS. A process can have one at a time.

    Args:
        place: The place of its tables.
        owner: Our id, which no other process has ever had.
        is_alive: Tells whether the server with an id is alive.
        bounds: Returns the current limits.
        at_work: The runs that this server executes.

    Attributes:
        tuned: The limits in force; None before the first are set.
    """

    def __init__(
        self,
        place: Place,
        owner: str,
        is_alive: Callable[[str], Awaitable[bool]],
        bounds: Callable[[], Bounds],
        at_work: Working,
    ) -> None:
        self.is_shared = True
        self._place = place
        self._owner = owner
        self._is_alive = is_alive
        self._bounds = bounds
        self._ready = anyio.Event()
        self._changed = anyio.Event()
        self._calls = anyio.CapacityLimiter(4)
        self._waiting: dict[bool, list[tuple[int, int, _Given]]] = {False: [], True: []}
        self._carried: dict[bool, set[str]] = {False: set(), True: set()}
        self._numbers = count()
        self._lost = False
        self._later: dict[str, tuple[float, Leg]] = {}
        self._others: dict[str, float] = {}
        self.tuned: Bounds | None = None

    def admits(self, leg: Leg) -> bool:
        """Never: all servers take their legs from the queue."""
        return False

    def started(self, run_id: str) -> None:
        """Do nothing: none was admitted."""

    def room_changed(self) -> None:
        """Check whether the limits have changed."""
        self._changed.set()

    async def drain(self) -> None:
        """Do nothing: a leg that arrives during shutdown is handed back when it is executed."""

    # --- the queue -----------------------------------------------------------------------------

    async def offer(self, leg: Leg) -> bool:
        """Put a leg in the queue, unless it is there or was executed.

        A leg with a delay is added when it is due. Until then only this server knows it, because
        DBOS would compare the clocks of several machines.
        """
        if leg.delay:
            due = anyio.current_time() + leg.delay
            self._later.setdefault(_name(leg), (due, replace(leg, delay=0.0)))
            self._changed.set()
            return True
        return await self._call(partial(self._offer, leg)) or bool(await self.offered([leg]))

    def _offer(self, leg: Leg) -> bool:
        """Store a leg; return whether it is new."""
        lane = self._bounds().priority_of(leg.owner)
        options: EnqueueOptions = {
            "workflow_name": "leg",
            "queue_name": queue_of(lane, tasks=leg.is_task),
            "workflow_id": _name(leg),
            "workflow_id_reuse_policy": "reject",
            "app_version": _VERSION,
            "queue_partition_key": leg.owner or "local",
            "priority": leg.priority,
        }
        try:
            DBOS.enqueue_workflow_with_options(options, leg.run_id, lane, leg.is_task)
        except error.DBOSWorkflowIDInUseError:
            return False
        return True

    async def withdraw(self, run_id: str) -> None:
        """Remove the legs of a run from the queue; a leg that is being executed frees its place."""
        for name in [one for one in self._later if one.rpartition(":")[0] == run_id]:
            del self._later[name]
        await self._call(partial(self._withdraw, run_id))

    def _withdraw(self, run_id: str) -> None:
        found = self._list(workflow_id_prefix=f"{run_id}:", status=[*_WORKING])
        if found:
            DBOS.cancel_workflows([one.workflow_id for one in found])

    async def offered(self, legs: Sequence[Leg]) -> set[str]:
        """Return the runs whose legs are in the queue, or executed by a server that is alive."""
        await self._free_dead()
        found = {one.run_id for one in legs if _name(one) in self._later}
        for start in range(0, len(legs), PAGE):
            page = [_name(one) for one in legs[start : start + PAGE]]
            rows = await self._call(partial(self._list, workflow_ids=page, status=[*_WORKING]))
            left = [one.workflow_id for one in rows if self._is_left_by_others(one)]
            if left:
                await self._call(partial(DBOS.cancel_workflows, left))
            found.update(
                one.workflow_id.rpartition(":")[0] for one in rows if one.workflow_id not in left
            )
        return found

    def _is_left_by_others(self, leg: WorkflowStatus) -> bool:
        """Whether a leg has waited too long for a server of the version that offered it.

        That server may just be busy. If so, our version executes the leg, which does no harm.
        """
        if leg.status == "PENDING" or leg.app_version in (None, _VERSION):
            return False
        now = anyio.current_time()
        return now - self._others.setdefault(leg.workflow_id, now) >= _OTHERS_SECONDS

    async def _free_dead(self) -> None:
        """End the legs of dead servers, because they hold places of their owners."""
        rows = await self._call(partial(self._list, status="PENDING"))
        living: dict[str, bool] = {}
        for one in rows:
            executor = one.executor_id or ""
            if executor not in living:
                living[executor] = executor == self._owner or await self._is_alive(executor)
        dead = [one.workflow_id for one in rows if not living[one.executor_id or ""]]
        if dead:
            await self._call(partial(DBOS.cancel_workflows, dead))

    @staticmethod
    def _list(**chosen: Any) -> list[WorkflowStatus]:
        return DBOS.list_workflows(name="leg", load_input=False, load_output=False, **chosen)

    async def _call(self, work: Callable[[], T]) -> T:
        """Call DBOS in a thread.

        Raises:
            EngineAway: DBOS cannot be used now.
        """
        try:
            with anyio.fail_after(_ANSWER_SECONDS):
                await self._ready.wait()
                return await anyio.to_thread.run_sync(
                    work, abandon_on_cancel=True, limiter=self._calls
                )
        except TimeoutError as failed:
            raise EngineAway("the engine's database did not answer") from failed
        except (SQLAlchemyError, error.DBOSException) as failed:
            self._note_loss(failed)
            raise EngineAway(
                f"the engine's tables cannot be used: {_first_line(failed)}"
            ) from failed

    def _note_loss(self, failed: Exception) -> None:
        """Have the tables created again if they are gone."""
        text = str(failed)
        if "does not exist" in text or "no such table" in text or "not found" in text:
            self._lost = True
            self._changed.set()

    # --- carrying ------------------------------------------------------------------------------

    async def serve(self, carry: Carry) -> None:
        """Execute legs as DBOS assigns them to us; never returns."""
        loop = asyncio.get_running_loop()
        send, receive = anyio.create_memory_object_stream[_Given](math.inf)

        async def leg(run_id: str, lane: int, is_task: bool = False) -> None:
            given = _Given(run_id, lane, is_task, concurrent.futures.Future())
            loop.call_soon_threadsafe(send.send_nowait, given)
            await asyncio.wrap_future(given.over)

        try:
            async with send, receive, anyio.create_task_group() as group:
                group.start_soon(self._keep, leg)
                async for given in receive:
                    entry = given.lane, next(self._numbers), given
                    heapq.heappush(self._waiting[given.is_task], entry)
                    self._begin(group, carry, given.is_task)
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await anyio.to_thread.run_sync(close, abandon_on_cancel=True)

    def _begin(self, group: TaskGroup, carry: Carry, tasks: bool) -> None:
        """Execute as many legs as there is room for, by the priority of their owners.

        Each priority of owners has a queue of its own, and DBOS may assign as many legs from each
        queue as we have room for in all.
        """
        workers = self._bounds().workers
        waiting, carried = self._waiting[tasks], self._carried[tasks]
        while waiting and (workers is None or len(carried) < workers):
            _, _, given = heapq.heappop(waiting)
            carried.add(given.run_id)
            group.start_soon(self._carry, group, carry, given)

    async def _carry(self, group: TaskGroup, carry: Carry, given: _Given) -> None:
        try:
            await carry(given.run_id)
        finally:
            self._carried[given.is_task].discard(given.run_id)
            if not given.over.done():
                given.over.set_result(None)
            self._begin(group, carry, given.is_task)

    async def _keep(self, leg: Callable[[str, int, bool], Awaitable[None]]) -> None:
        """Keep DBOS running with existing tables and current limits; never returns."""
        said = ""
        while True:
            try:
                await anyio.to_thread.run_sync(self._launch, leg, abandon_on_cancel=True)
                self._lost, said = False, ""
                await self._look_after()
            except (SQLAlchemyError, error.DBOSException, OSError) as failed:
                if said != _first_line(failed):
                    logger.warning("the engine cannot be used now: %s", _first_line(failed))
                said = _first_line(failed)
            self._ready = anyio.Event()
            await anyio.sleep(_RELAUNCH_SECONDS)

    async def _look_after(self) -> None:
        """Wait until the tables are lost."""
        swept = -KEPT_SECONDS
        while not self._lost:
            self._changed = anyio.Event()
            bounds = self._bounds()
            if bounds != self.tuned:
                await anyio.to_thread.run_sync(tune, bounds)
                self.tuned = bounds
                self._ready.set()
            if anyio.current_time() - swept >= KEPT_SECONDS / 4:
                swept = anyio.current_time()
                await anyio.to_thread.run_sync(forget_old)
            now = anyio.current_time()
            for name, (due, leg) in [*self._later.items()]:
                if due <= now:
                    await anyio.to_thread.run_sync(self._offer, leg)
                    self._later.pop(name, None)
            pause = min((due - now for due, _ in self._later.values()), default=_LOOK_SECONDS)
            with anyio.move_on_after(min(max(0.0, pause), _LOOK_SECONDS)):
                await self._changed.wait()

    def _launch(self, leg: Callable[[str, int, bool], Awaitable[None]]) -> None:
        close()
        self.tuned = None
        launch(self._place, self._owner, _VERSION, leg, takes=self._bounds().workers != 0)


def _first_line(failed: Exception) -> str:
    """Return the message of an error, without SQL statements and their parameters."""
    return (str(failed).splitlines() or [type(failed).__name__])[0]


def _name(leg: Leg) -> str:
    return f"{leg.run_id}:{leg.attempt}"
