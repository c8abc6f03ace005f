"""The tool `schedule`, by which an agent asks for a schedule; a person has to approve each."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...harness.errors import HarnessError, ToolError
from ...harness.loop.hooks.middleware import AgentMiddleware
from ...harness.tools.tool import ToolRuntime, tool
from ..results import moment
from .schedules import ScheduleBook, Work

__all__ = ["SCHEDULE_TOOL", "ScheduleMiddleware"]

SCHEDULE_TOOL = "schedule"


class ScheduleMiddleware(AgentMiddleware):
    """Brings the tool `schedule`.

    Args:
        book: Where schedules are stored; None for an agent that is only looked at.
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
        # The call may come again after a crash.
        known = {one.name: one for one in await book.all(work.owner)}
        if name not in known or known[name].work != work:
            raise ToolError(str(error)) from error
        made = known[name]
    at = "" if made.next_at is None else f" It fires next at {moment(made.next_at)}."
    return f"Schedule {name} is stored.{at}"
