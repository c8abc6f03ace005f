"""Local engine: each server executes the runs it has accepted, with a queue in memory.

Nothing is stored: after a crash the journal knows which runs wait. Legs of one owner start by
priority, then in the order of their arrival. Among owners, the better priority goes first, then the
owner who has waited longest since their last turn. Background tasks have lines and places of their
own.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import anyio

from . import Bounds, Carry, Leg, Working

__all__ = ["LocalEngine"]

_MINUTE = 60.0


@dataclass(slots=True)
class _Line:
    """The line of one owner's runs, or of their background tasks.

    Attributes:
        owner: The owner.
        tasks: Whether the line is for tasks.
        legs: The legs, by priority, then by arrival.
        served: The number of the owner's last turn.
        begun: Start times within the last minute, if there is a limit per minute.
    """

    owner: str
    tasks: bool
    legs: list[tuple[int, int, Leg]] = field(default_factory=list[tuple[int, int, Leg]])
    served: int = 0
    begun: deque[float] = field(default_factory=deque[float])


class LocalEngine:
    """A `RunEngine` for one server.

    Args:
        bounds: Returns the current limits.
        at_work: The runs that this server executes, including those that were never offered.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        at_work: Working,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_shared = False
        self._bounds = bounds
        self._at_work = at_work
        self._clock = clock
        self._lines: dict[tuple[str, bool], _Line] = {}
        self._later: list[tuple[float, int, Leg]] = []
        self._legs: dict[str, Leg] = {}
        self._carried: dict[str, Leg] = {}
        self._admitted: dict[str, Leg] = {}
        self._again: dict[str, Leg] = {}
        self._numbers = count(1)
        self._changed = anyio.Event()
        self._draining = False

    def admits(self, leg: Leg) -> bool:
        """Whether there is room for a leg, and nothing of its owner is in line before it."""
        line = self._line(leg)
        carried = self._carried.get(leg.run_id)
        known = leg.run_id in self._legs or leg.run_id in self._admitted
        known = known or (carried is not None and leg.attempt <= carried.attempt)
        if self._draining or leg.delay > 0 or known or line.legs or not self._has_room(line):
            return False
        self._note_begin(line)
        self._admitted[leg.run_id] = leg
        return True

    def started(self, run_id: str) -> None:
        """Note that an admitted leg is being executed now, or could not start."""
        if self._admitted.pop(run_id, None) is not None:
            self.room_changed()

    async def offer(self, leg: Leg) -> bool:
        """Put a leg in line, unless its run is in line or being executed; always returns True.

        A later attempt of a run that is being executed is put in line as soon as that ends.
        """
        carried = self._carried.get(leg.run_id)
        if carried is not None and leg.attempt > carried.attempt:
            self._again[leg.run_id] = leg
        elif carried is None and leg.run_id not in self._legs:
            self._legs[leg.run_id] = leg
            due = self._clock() + leg.delay
            heapq.heappush(self._later, (due, next(self._numbers), leg))
            self.room_changed()
        return True

    async def withdraw(self, run_id: str) -> None:
        """Remove a run from the line."""
        self._legs.pop(run_id, None)
        self._again.pop(run_id, None)

    def room_changed(self) -> None:
        """Check again whether a leg may start."""
        self._changed.set()

    async def drain(self) -> None:
        """Start nothing more."""
        self._draining = True

    async def offered(self, legs: Sequence[Leg]) -> set[str]:
        """Return the runs among these that are in line or executed here."""
        return {one.run_id for one in legs if one.run_id in self._legs.keys() | self._carried}

    async def serve(self, carry: Carry) -> None:
        """Execute legs while there is room; never returns."""
        async with anyio.create_task_group() as group:
            while True:
                self._changed = anyio.Event()
                while (leg := self._next()) is not None:
                    self._carried[leg.run_id] = leg
                    group.start_soon(self._carry, carry, leg)
                with anyio.move_on_after(self._pause()):
                    await self._changed.wait()

    async def _carry(self, carry: Carry, leg: Leg) -> None:
        try:
            await carry(leg.run_id)
        finally:
            del self._carried[leg.run_id]
            again = self._again.pop(leg.run_id, None)
            if again is not None:
                await self.offer(again)
            self.room_changed()

    def _next(self) -> Leg | None:
        """Remove the legs from the line that may start now."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            _, number, leg = heapq.heappop(self._later)
            heapq.heappush(self._line(leg).legs, (leg.priority, number, leg))
        if self._draining:
            return None
        for line in self._lines.values():
            while line.legs and self._legs.get(line.legs[0][2].run_id) is not line.legs[0][2]:
                heapq.heappop(line.legs)  # it was withdrawn
        bounds = self._bounds()
        ready = [
            (bounds.priority_of(line.owner), line.served, key)
            for key, line in self._lines.items()
            if line.legs and self._has_room(line)
        ]
        if not ready:
            return None
        line = self._lines[min(ready)[2]]
        _, _, leg = heapq.heappop(line.legs)
        del self._legs[leg.run_id]
        line.served = next(self._numbers)
        self._note_begin(line)
        return leg

    def _line(self, leg: Leg) -> _Line:
        return self._lines.setdefault((leg.owner, leg.is_task), _Line(leg.owner, leg.is_task))

    def _has_room(self, line: _Line) -> bool:
        bounds = self._bounds()
        if bounds.workers is not None and len(self._busy(line.tasks)) >= bounds.workers:
            return False
        if not line.owner and not line.tasks:  # the local user has no limit but the machine
            return True
        if len(self._busy(line.tasks, line.owner)) >= bounds.max_runs:
            return False
        return bounds.per_minute is None or len(self._begun(line)) < bounds.per_minute

    def _busy(self, tasks: bool, owner: str | None = None) -> set[str]:
        """Return the runs that are executed, of one owner or all."""
        given = {
            leg.run_id
            for leg in (*self._carried.values(), *self._admitted.values())
            if leg.is_task == tasks and owner in (None, leg.owner)
        }
        return given.union(self._at_work.working(owner, tasks=tasks))

    def _begun(self, line: _Line) -> deque[float]:
        begun, since = line.begun, self._clock() - _MINUTE
        while begun and begun[0] <= since:
            begun.popleft()
        return begun

    def _note_begin(self, line: _Line) -> None:
        counts = line.owner and not line.tasks
        if counts and self._bounds().per_minute is not None:
            self._begun(line).append(self._clock())

    def _pause(self) -> float:
        """Return the seconds until something can change without an event."""
        due = [self._later[0][0]] if self._later else []
        due += [
            begun[0] + _MINUTE
            for line in self._lines.values()
            if line.legs and (begun := self._begun(line))
        ]
        return max(0.0, min(due) - self._clock()) if due else math.inf
