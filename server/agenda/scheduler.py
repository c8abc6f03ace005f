"""Scheduler: starts the runs of schedules, and the tool with which agents request a schedule."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Annotated, Final, Protocol

import anyio
from pydantic import Field

from ...harness.errors import HarnessError, JournalAway, ThreadBusy, ToolError
from ...harness.loop.hooks.middleware import AgentMiddleware
from ...harness.tools.tool import ToolRuntime, tool
from ..results import moment
from ..runs.lifecycle import ServerStopping
from .schedules import Claim, ScheduleBook, Work

__all__ = ["SCHEDULE_TOOL", "NotAllowed", "ScheduleMiddleware", "Scheduler"]

LOOK_SECONDS: Final = 2.0
"""Seconds until a schedule that a command added is noticed."""

BUSY_SECONDS: Final = 30.0
"""Seconds until a schedule is tried again if its thread was in use."""

logger = logging.getLogger(__name__)


class NotAllowed(HarnessError):
    """The principal of a schedule may not start runs any more."""


class StartRun(Protocol):
    """Starts the run of a schedule."""

    async def __call__(self, work: Work, key: str) -> tuple[str, str]:
        """Start it, unless that was done under this key; return the run and its thread.

        Raises:
            NotAllowed: Its principal may not start runs any more.
            HarnessError: It cannot be started now.
        """
        ...


class Scheduler:
    """Fires schedules, one after the other.

    Args:
        book: The schedules.
        start: Starts their runs.

    Attributes:
        counts: Counts since the server was started: `fired` times started a run, `missed` times
            passed while no server fired them, `failed` times could not start a run.
    """

    def __init__(self, book: ScheduleBook, start: StartRun) -> None:
        self._book = book
        self._start = start
        self.counts = Counter(fired=0, missed=0, failed=0)

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
        """Fire every schedule that is due.

        Raises:
            HarnessError: They cannot be read.
        """
        while (claim := await self._book.claim()) is not None:
            await self._fire(claim)

    async def _fire(self, claim: Claim) -> None:
        schedule, book = claim.schedule, self._book
        if schedule.work is None:
            logger.error("schedule %r is paused: %s", schedule.name, schedule.last_error)
            await book.pause(schedule)  # it cannot be decrypted
            self.counts["failed"] += 1
            return
        try:
            run_id, thread_id = await self._start(schedule.work, claim.key)
        except (JournalAway, ServerStopping) as error:
            await book.postpone(claim, LOOK_SECONDS, str(error))
        except ThreadBusy as error:
            await book.postpone(claim, BUSY_SECONDS, str(error))
        except HarnessError as error:
            logger.warning("schedule %r started no run: %s", schedule.name, error)
            await book.settle(claim, "", error=str(error), ends=isinstance(error, NotAllowed))
            self.counts.update(failed=1, missed=claim.missed)
        else:
            await book.settle(claim, run_id, thread_id)
            self.counts.update(fired=1, missed=claim.missed)


SCHEDULE_TOOL = "schedule"


class ScheduleMiddleware(AgentMiddleware):
    """Provides the tool `schedule`.

    Args:
        book: The stored schedules; None for an agent that is only inspected.
    """

    def __init__(self, book: ScheduleBook | None) -> None:
        @tool(name=SCHEDULE_TOOL)
        async def schedule(
            runtime: ToolRuntime,
            name: Annotated[str, Field(min_length=1, max_length=100, description="A short name")],
            goal: Annotated[str, Field(min_length=1, description="What to do each time")],
            cron: Annotated[str, Field(description="Five fields, such as 0 7 * * MON-FRI")],
            timezone: Annotated[str, Field(description="Such as Europe/Berlin")] = "UTC",
        ) -> str:
            """Have a goal given to you at set times, each in a thread of its own.

            Use it only if the user asks for something to be done regularly. A person approves it.
            """
            if book is None:
                raise ToolError("this server stores no schedules; nothing was stored")
            return await _add(book, name, Work(runtime.principal, cron, timezone, goal))

        self.tools = (schedule,)


async def _add(book: ScheduleBook, name: str, work: Work) -> str:
    try:
        made = await book.add(name, work)
    except HarnessError as error:
        # The call may be repeated after a crash.
        known = {one.name: one for one in await book.all(work.owner)}
        if name not in known or known[name].work != work:
            raise ToolError(str(error)) from error
        made = known[name]
    at = "" if made.next_at is None else f" It fires next at {moment(made.next_at)}."
    return f"Schedule {name} is stored.{at}"
