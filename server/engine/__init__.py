"""Engines: decide which server executes which run, how many at once, and whose first.

A *leg* is what is carried at once: a run from where it stands to its next pause or end. An engine
decides when a leg begins and on which server. The journal alone says what a run is: an engine knows
ids, and every leg is checked against the journal before anything is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from ...harness._internal.records import record

__all__ = ["USUAL_PRIORITY", "Bounds", "Carry", "Leg", "MakeEngine", "RunEngine", "Working"]

USUAL_PRIORITY = 5
"""Priority of who has none of their own; smaller ones go first."""


@record
class Leg:
    """A run, to be executed from where it stands.

    Attributes:
        run_id: The run.
        attempt: The attempt that its record shows. A leg is offered once per attempt.
        owner: Whose it is, as it stands in the run's id; empty for the local user.
        priority: Among the legs of its owner; 1 goes first.
        delay: Seconds before it may begin.
        is_task: Whether it is a background task. Tasks have places of their own, as many as runs
            have: whoever waits for a task would otherwise keep it from beginning.
    """

    run_id: str
    attempt: int
    owner: str = ""
    priority: int = USUAL_PRIORITY
    delay: float = 0.0
    is_task: bool = False


@record
class Bounds:
    """How much may be executed.

    Attributes:
        workers: Runs that a server carries at once, and tasks besides; None for any number.
        max_runs: Runs of one owner at once, and tasks besides. With an engine that replicas share,
            over all of them.
        per_minute: Runs of one owner that may begin within a minute; None for any number.
        priorities: Of owners that have one of their own, by owner.
        has_tasks: Whether there are background tasks.
    """

    workers: int | None = None
    max_runs: int = 32
    per_minute: int | None = None
    priorities: Mapping[str, int] = field(default_factory=dict[str, int])
    has_tasks: bool = False

    def priority_of(self, owner: str) -> int:
        """Return the priority of somebody's runs among those of all."""
        return self.priorities.get(owner, USUAL_PRIORITY)


Carry: TypeAlias = Callable[[str], Awaitable[None]]
"""Carries a run by its id, and returns when it has paused or ended, or need not be carried."""


class Working(Protocol):
    """Which runs a server executes right now."""

    def working(self, owner: str | None = None, *, tasks: bool = False) -> Collection[str]:
        """Return the runs, or the background tasks, of somebody or all, as far as they count."""
        ...


class RunEngine(Protocol):
    """A queue of legs.

    Attributes:
        is_shared: Whether a leg that is offered here may be carried by another server.
    """

    is_shared: bool

    def admits(self, leg: Leg) -> bool:
        """Whether a leg may begin on this server at once, without being offered."""
        ...

    async def offer(self, leg: Leg) -> bool:
        """Put a leg in line. One that is there already stays where it is.

        Returns:
            Whether it is in line. It is not if it was carried before: offer the next attempt.

        Raises:
            HarnessError: The engine cannot be reached. Whoever looks after runs offers it again.
        """
        ...

    async def withdraw(self, run_id: str) -> None:
        """Take a run out of the line, if it is there; one that is executed continues."""
        ...

    async def serve(self, carry: Carry) -> None:
        """Execute legs as they may begin; returns never."""
        ...

    def stirred(self) -> None:
        """Note that a run has stopped here, so that another one may begin."""
        ...

    async def drain(self) -> None:
        """Begin nothing more on this server."""
        ...

    async def offered(self, legs: Sequence[Leg]) -> set[str]:
        """Return the runs whose legs are in line, or executed by a server that lives.

        What servers that died have held is free afterwards.

        Raises:
            HarnessError: The engine cannot be reached.
        """
        ...


class MakeEngine(Protocol):
    """Makes the engine of a server."""

    def __call__(self, bounds: Callable[[], Bounds], at_work: Working) -> RunEngine:
        """Return one that is given how much may be executed, and what is."""
        ...
