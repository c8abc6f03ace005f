"""Reconciler: finds runs of dead replicas, and continues them.

All replicas check every few seconds, and as soon as one of them dies. For each run, one replica is
first in line; the others take the run a little later if it is still there. If two try at the same
time, the journal allows one of them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b

import anyio

from ...harness._internal.concurrency import raising_one
from ...harness.checkpoint.base import Checkpointer
from ...harness.checkpoint.postgres.survey import JournalSurvey
from ...harness.errors import HarnessError
from ..engine import Leg
from ..replicas.presence import Presence
from ..runs.runs import RunManager

__all__ = ["Reconciler"]

LOOK_SECONDS = 5.0

YIELD_SECONDS = 1.5
"""Seconds for which a run is left to the replica that is first in line."""

_AT_ONCE = 8
"""How many runs are taken over at the same time; each reads its thread."""

_PAGE = 200

logger = logging.getLogger(__name__)


class Reconciler:
    """Continues the runs that other replicas have left.

    Args:
        runs: Our runs.
        journal: The journal with all runs.
        survey: Finds them.
        presence: Says which replicas are alive.
    """

    def __init__(
        self,
        runs: RunManager,
        journal: Checkpointer,
        survey: JournalSurvey,
        presence: Presence,
    ) -> None:
        self._runs = runs
        self._journal = journal
        self._survey = survey
        self._presence = presence
        self._wake = anyio.Event()
        self._yielded: dict[str, float] = {}
        self._pages: dict[str | None, str] = {}

    def wake(self) -> None:
        """Check at once."""
        self._wake.set()

    async def work(self) -> None:
        """Check again and again; returns when the server stops."""
        while not self._runs.stopping.has_begun:
            try:
                await self.sweep()
            except HarnessError as error:
                logger.warning("runs that nobody works on cannot be found now: %s", error)
            pause = LOOK_SECONDS * random.uniform(0.8, 1.2)
            with anyio.move_on_after(min(pause, YIELD_SECONDS) if self._yielded else pause):
                await self._wake.wait()
            self._wake = anyio.Event()

    async def sweep(self) -> None:
        """Continue every abandoned run for which it is our turn.

        Raises:
            HarnessError: The journal cannot be read.
        """
        if not self._presence.may_work:
            return
        found: set[str] = set()
        await self._refill()
        async with raising_one(), anyio.create_task_group() as group:
            room = anyio.CapacityLimiter(_AT_ONCE)
            async for run_id, is_left in self._all():
                found.add(run_id)
                if run_id in self._runs.supervisor.live or not self._is_ours(run_id, is_left):
                    continue
                self._yielded.pop(run_id, None)
                group.start_soon(self._take, run_id, is_left, room)
        self._yielded = {key: at for key, at in self._yielded.items() if key in found}

    async def _all(self) -> AsyncGenerator[tuple[str, bool]]:
        """Yield each run that seems abandoned, and whether it was running."""
        supervisor = self._runs.supervisor
        for owner in await self._survey.owners():
            if owner in (None, supervisor.owner) or not await supervisor.servers.is_alive(owner):
                if owner not in (None, supervisor.owner):
                    await self._survey.cut_off(owner)
                async for page in _paged(partial(self._survey.running, owner)):
                    for run_id in await self._not_offered(page):
                        yield run_id, True
        async for page in _paged(self._survey.answered):
            for run_id in await self._not_offered(page):
                yield run_id, False

    async def _not_offered(self, run_ids: Sequence[str]) -> list[str]:
        """Return the runs among these that are not in the queue.

        Raises:
            HarnessError: The journal, or the engine, cannot be read.
        """
        marks = await self._survey.marks(run_ids)
        legs = [Leg(run_id, marks[run_id].attempt) for run_id in run_ids if run_id in marks]
        offered = await self._runs.queue.engine.offered(legs)
        return [one.run_id for one in legs if one.run_id not in offered]

    async def _refill(self) -> None:
        """Put runs back in line that are missing there.

        They belonged to servers that died, or the engine has lost its tables. Each time, one page
        of runs is checked, and all pages as soon as one run is missing.
        """
        supervisor = self._runs.supervisor
        for owner in await self._survey.queued_owners():
            ours = owner == supervisor.owner
            if not ours and owner is not None and await supervisor.servers.is_alive(owner):
                continue
            read = partial(self._survey.queued, owner, ready=ours)
            after = self._pages.pop(owner, "")
            while page := await read(after=after, limit=_PAGE):
                missing = await self._not_offered(page)
                for run_id in missing:
                    run = await self._journal.run(run_id)
                    if run is not None and run.status == "queued":
                        await self._runs.queue.take(run)
                after = page[-1]
                if len(page) < _PAGE:
                    break
                if not missing:
                    self._pages[owner] = after
                    break

    def _is_ours(self, run_id: str, is_left: bool) -> bool:
        """Whether we are first in line for a run, or the first replica has had its time.

        For an answered run, the replica that stored the last answer is first.
        """
        others = [one.id for one in self._presence.census.living if not one.draining]
        first = max(others, key=lambda one: _weight(one, run_id), default=None)
        if is_left and first in (None, self._presence.owner):
            return True
        now = anyio.current_time()
        return now - self._yielded.setdefault(run_id, now) >= YIELD_SECONDS

    async def _take(self, run_id: str, is_left: bool, room: anyio.CapacityLimiter) -> None:
        supervisor = self._runs.supervisor
        async with room:
            try:
                run = await self._journal.run(run_id)
                if run is None:
                    return
                if is_left:
                    wanted = run.status == "running" and await supervisor.is_left(run)
                else:
                    wanted = run.status == "needs_approval" and not supervisor.goes_on(run_id)
                if wanted:
                    await supervisor.adopt(run)
            except HarnessError as error:
                logger.warning("run %s cannot be taken over now: %s", run_id, error)


async def _paged(page: Callable[..., Awaitable[list[str]]]) -> AsyncGenerator[list[str]]:
    """Yield all pages of ids."""
    after = ""
    while found := await page(after=after, limit=_PAGE):
        yield found
        if len(found) < _PAGE:
            return
        after = found[-1]


def _weight(replica: str, run_id: str) -> bytes:
    return blake2b(f"{replica}\0{run_id}".encode(), digest_size=8).digest()
