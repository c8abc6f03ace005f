"""Engines: decide which server executes which run, how many at once, and in which order.

A *leg* is the part of a run from its current step to its next pause or end. An engine decides when
and on which server a leg starts. Only the journal knows what a run is: an engine knows ids, and
every leg is checked against the journal before it starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from ...harness._internal.records import record

__all__ = ["USUAL_PRIORITY", "Bounds", "Carry", "Leg", "MakeEngine", "RunEngine", "Working"]

USUAL_PRIORITY = 5
"""Priority of owners that have none of their own; smaller numbers go first."""


@record
class Leg:
    """A run to execute from its current step.

    Attributes:
        run_id: The run.
        attempt: The attempt in its record. A leg is offered once per attempt.
        owner: Its owner, as in the run's id; empty for the local user.
        priority: Its priority among the legs of its owner; 1 goes first.
        delay: Seconds before it may start.
        is_task: Whether it is a background task. Tasks have as many places as runs, in addition:
            otherwise a run that waits for a task could keep it from starting.
    """

    run_id: str
    attempt: int
    owner: str = ""
    priority: int = USUAL_PRIORITY
    delay: float = 0.0
    is_task: bool = False


@record
class Bounds:
    """Limits of what may be executed at once.

    Attributes:
        workers: Runs that a server executes at once, and as many tasks; None for no limit.
        max_runs: Runs of one owner at once, and as many tasks. If replicas share the engine, on
            all replicas together.
        per_minute: Runs of one owner that may start within a minute; None for no limit.
        priorities: Priorities by owner, for owners that have one of their own.
        has_tasks: Whether there are background tasks.
    """

    workers: int | None = None
    max_runs: int = 32
    per_minute: int | None = None
    priorities: Mapping[str, int] = field(default_factory=dict[str, int])
    has_tasks: bool = False

    def priority_of(self, owner: str) -> int:
        """Return the priority of an owner's runs among all runs."""
        return self.priorities.get(owner, USUAL_PRIORITY)


Carry: TypeAlias = Callable[[str], Awaitable[None]]
"""Executes a run by its id; returns once it has paused or ended, or needs no execution."""


class Working(Protocol):
    """The runs that a server executes now."""

    def working(self, owner: str | None = None, *, tasks: bool = False) -> Collection[str]:
        """Return the runs or background tasks that count towards limits, of one owner or all."""
        ...


class RunEngine(Protocol):
    """A queue of legs.

    Attributes:
        is_shared: Whether another server may execute a leg that is offered here.
    """

    is_shared: bool

    def admits(self, leg: Leg) -> bool:
        """Whether a leg may start on this server at once, without being offered.

        Its place is taken until `started` is called, however long it needs to start.
        """
        ...

    def started(self, run_id: str) -> None:
        """Note that an admitted leg is being executed now, or could not start."""
        ...

    async def offer(self, leg: Leg) -> bool:
        """Put a leg in line. A leg that is already in line keeps its place.

        Returns:
            Whether it is in line. If it was executed before, it is not: offer the next attempt.

        Raises:
            HarnessError: The engine cannot be reached. The leg will be offered again.
        """
        ...

    async def withdraw(self, run_id: str) -> None:
        """Remove a run from the line; a run that is being executed continues."""
        ...

    async def serve(self, carry: Carry) -> None:
        """Execute legs when their turn comes; never returns."""
        ...

    def room_changed(self) -> None:
        """Check whether another run may start here, as after one has stopped."""
        ...

    async def drain(self) -> None:
        """Start nothing more on this server."""
        ...

    async def offered(self, legs: Sequence[Leg]) -> set[str]:
        """Return the runs whose legs are in line, or executed by a server that is alive.

        It also frees the places that dead servers held.

        Raises:
            HarnessError: The engine cannot be reached.
        """
        ...


class MakeEngine(Protocol):
    """Makes the engine of a server."""

    def __call__(self, bounds: Callable[[], Bounds], at_work: Working) -> RunEngine:
        """Return an engine with these limits, and this view of the executed runs."""
        ...
