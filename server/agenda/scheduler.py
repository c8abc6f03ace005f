"""Scheduler: starts the runs of schedules when their time has come."""

from __future__ import annotations

import logging
from typing import Final, Protocol

import anyio

from ...harness.errors import HarnessError, JournalAway, ThreadBusy
from ..runs.lifecycle import ServerStopping
from .schedules import Claim, Schedule, ScheduleBook, Work

__all__ = ["NotAllowed", "Scheduler", "StartRun"]

LOOK_SECONDS: Final = 2.0
"""How soon a schedule is noticed that a command has added."""

BUSY_SECONDS: Final = 30.0
"""After how long a schedule is tried again whose thread was in use."""

logger = logging.getLogger(__name__)


class NotAllowed(HarnessError):
    """The principal of a schedule may not start runs any more."""


class StartRun(Protocol):
    """Starts the run of a schedule."""

    async def __call__(self, work: Work, key: str) -> tuple[str, str]:
        """Start it, unless that was done under this key; return the run and its thread.

        Raises:
            NotAllowed: Its principal may not any more.
            HarnessError: It cannot be started now.
        """
        ...


class Scheduler:
    """Fires schedules, one after the other.

    Args:
        book: The schedules.
        start: Starts their runs.
    """

    def __init__(self, book: ScheduleBook, start: StartRun) -> None:
        self._book = book
        self._start = start

    async def work(self) -> None:
        """Fire schedules until it is cancelled."""
        while True:
            pause = LOOK_SECONDS
            try:
                await self.fire_due()
                following = await self._book.seconds_to_next()
                pause = LOOK_SECONDS if following is None else min(LOOK_SECONDS, following)
            except HarnessError as error:
                logger.warning("schedules cannot be read now: %s", error)
            await anyio.sleep(max(0.01, pause))

    async def fire_due(self) -> None:
        """Fire every schedule whose time has come.

        Raises:
            HarnessError: They cannot be read.
        """
        while (claim := await self._book.claim()) is not None:
            await self._fire(claim)

    async def _fire(self, claim: Claim) -> None:
        schedule, book = claim.schedule, self._book
        if schedule.work is None:
            logger.error("schedule %r is paused: %s", schedule.name, schedule.last_error)
            await book.give_up(claim)
            return
        try:
            run_id, thread_id = await self._start(schedule.work, claim.key)
        except (JournalAway, ServerStopping) as error:
            await book.postpone(claim, LOOK_SECONDS, str(error))
        except ThreadBusy as error:
            await book.postpone(claim, BUSY_SECONDS, str(error))
        except NotAllowed as error:
            _warn(schedule, error)
            await book.settle(claim, "", error=str(error), ends=True)
        except HarnessError as error:
            _warn(schedule, error)
            await book.settle(claim, "", error=str(error))
        else:
            await book.settle(claim, run_id, thread_id)


def _warn(schedule: Schedule, error: HarnessError) -> None:
    logger.warning("schedule %r started no run: %s", schedule.name, error)
