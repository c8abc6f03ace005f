"""Turns of queued goals: what decides which goal starts next."""

from __future__ import annotations

from typing import Any, cast

from ....harness._internal.records import record
from ....harness.checkpoint.base import Checkpointer
from ...engine import USUAL_PRIORITY
from ..goals import QUEUED, Goal

__all__ = ["Turn", "Turns"]

_MOST = 10_000


@record
class Turn:
    """What decides when a queued goal starts; see `Goal`."""

    priority: int = USUAL_PRIORITY
    interrupts: bool = False


class Turns:
    """Finds the turn of each queued goal, and remembers it.

    A goal may have megabytes of files, and does not change while it is queued. So it is read once.

    Args:
        journal: Where the goals are.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._journal = journal
        self._known: dict[str, Turn] = {}

    def note(self, run_id: str, goal: Goal) -> None:
        """Remember the turn of a goal that was just queued."""
        self._keep(run_id, Turn(goal.priority, goal.interrupts))

    async def of(self, run_id: str) -> Turn:
        """Return the turn of a run; the usual one if its goal is not stored.

        Raises:
            HarnessError: The journal cannot be read.
        """
        known = self._known.get(run_id)
        if known is not None:
            return known
        found = await self._journal.events(run_id, limit=1)
        turn = Turn()
        if found and found[0].mode == QUEUED:
            data = cast("dict[str, Any]", found[0].data)
            turn = Turn(data.get("priority", USUAL_PRIORITY), data.get("interrupts", False))
        self._keep(run_id, turn)
        return turn

    def _keep(self, run_id: str, turn: Turn) -> None:
        self._known[run_id] = turn
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
