"""Losses: how often the server of a run died without progress.

A run can kill its server, by using up its memory or crashing native code. So each further server
waits a little longer, and after five the run is given up. Every loss is an event of the run that
names the newest checkpoint. If the run has made progress since, counting starts again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from ....harness.checkpoint.base import Batch, Checkpointer, Fence, Run, RunEvent
from ....harness.errors import Superseded

__all__ = ["MOST_LOSSES", "ServerLosses", "given_up"]

MOST_LOSSES = 5
"""How many servers a run may lose without a new checkpoint."""

BACKOFF = (0.0, 5.0, 30.0, 120.0)
"""Seconds before the next server takes a run over, by the number of lost servers."""

_MODE = "carriers"
_LOST, _GIVEN_UP = "carrier_lost", "given_up"
_PAGE = 200
_REMEMBERED = 10_000


def given_up() -> str:
    """Return why a run was given up."""
    return (
        f"{MOST_LOSSES} servers died while they worked on this run, and it made no progress. Check "
        "its last step and the servers' logs before you retry it"
    )


class ServerLosses:
    """Counts losses.

    Args:
        journal: Where runs and their events are.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._journal = journal
        self._known: OrderedDict[tuple[str, int], int] = OrderedDict()

    async def lost(self, run: Run) -> int:
        """Return how many servers a run has lost since its last progress, the newest one included.

        Args:
            run: Its record, which shows the attempt of the server that died.

        Raises:
            HarnessError: The journal cannot be used.
        """
        key = run.id, run.attempt
        if key not in self._known:
            self._known[key] = await self._count(run)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key]

    @staticmethod
    def delay(losses: int) -> float:
        """Return for how many seconds a run waits after a loss."""
        return BACKOFF[min(losses, len(BACKOFF)) - 1]

    def note_given_up(self, run: Run) -> RunEvent:
        """Return the event that restarts the count of losses."""
        return RunEvent(run.id, _MODE, (run.agent,), {"event": _GIVEN_UP})

    async def _count(self, run: Run) -> int:
        place = await self._place(run.thread_id)
        events = await self._events(run.id)
        attempts: set[int] = set()
        for one in events:
            if one.data.get("event") == _GIVEN_UP:
                attempts.clear()
            elif one.data.get("place") == place:
                attempts.add(int(str(one.data.get("attempt"))))
        if run.attempt not in attempts:
            attempts.add(run.attempt)
            event = RunEvent(
                run.id,
                _MODE,
                (run.agent,),
                {"event": _LOST, "attempt": run.attempt, "place": place, "losses": len(attempts)},
            )
            fence = Fence(run.id, run.attempt)
            with suppress(Superseded):  # another server continues it already
                await self._journal.commit(Batch(run.thread_id, events=[event], fences=[fence]))
        return len(attempts)

    async def _place(self, thread_id: str) -> str:
        """Return a value that changes whenever a thread, or its subagent, makes progress."""
        newest: list[str] = []
        for ns in {"": None, **dict.fromkeys([*await self._journal.namespaces(thread_id)][-1:])}:
            newest += [one.id for one in await self._journal.history(thread_id, ns, limit=1)]
        return " ".join(newest)

    async def _events(self, run_id: str) -> Sequence[RunEvent]:
        found: list[RunEvent] = []
        after = 0
        while page := await self._journal.events(run_id, after=after, limit=_PAGE):
            after = page[-1].seq
            found += [one for one in page if one.mode == _MODE]
        return found
