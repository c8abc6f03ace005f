"""The background engine protocol: carries the runs of background tasks.

The journal is the only truth: what an engine holds in memory is who is carried right now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from pydantic import JsonValue

from ..._internal.records import record
from ...checkpoint.base import Batch, Run, RunStatus
from ...loop.agent import Agent
from ...loop.run.context import RunControl
from ...loop.run_executor import RunOptions
from ...messages.message import new_id

__all__ = ["ALL", "OPEN", "AgentSource", "Behalf", "RunEngine", "accepted_run"]

OPEN: tuple[RunStatus, ...] = ("running", "paused")
"""What a run is recorded as that somebody may have left behind."""

ALL = 1_000_000
"""More runs than are ever open."""


class AgentSource(Protocol):
    """Finds subagents by name."""

    def __call__(self, name: str) -> Agent:
        """Return the agent of a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
            HarnessError: It cannot be had now.
        """
        ...


@record
class Behalf:
    """What a task takes over from the run that started it; not kept in the journal.

    Attributes:
        context: As in `RunOptions`.
        principal: Likewise.
    """

    context: Any = None
    principal: str = ""


class RunEngine(Protocol):
    """Carries runs on threads of their own."""

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """Accept input on an idle thread; return the run, which does nothing yet (`paused`).

        Raises:
            HarnessError: The input was refused; nothing was stored.
        """
        ...

    async def carry(
        self, run: Run, answers: Mapping[str, JsonValue], behalf: Behalf | None
    ) -> None:
        """Carry a run to its pause or end. What it meets is in the journal then.

        A run that another living process works on stays as it is.

        Raises:
            RunEnded: It has ended meanwhile.
            HarnessError: The run cannot go on now; nothing was stored.
        """
        ...

    async def cancel(self, run: Run, reason: str) -> Run:
        """End a run, and return its record once it has ended; one that had stays as it is.

        Raises:
            HarnessError: Another living process works on it.
        """
        ...

    async def is_left(self, run: Run) -> bool:
        """Whether a run that is recorded as `running`, or that has not begun, is nobody's."""
        ...


async def accepted_run(
    agent: Agent, name: str, thread_id: str, update: Mapping[str, Any], options: RunOptions
) -> Run:
    """Store input as the first step of a run that goes on when it is resumed.

    Args:
        agent: The agent.
        name: What it is found by, which its record keeps; an `Agent` may call itself otherwise.
        thread_id: An idle thread.
        update: The input.
        options: How the run begins.

    Raises:
        HarnessError: As for `Agent.ainvoke`; nothing was stored.
    """
    control = RunControl()
    control.drain()
    run_id = options.run_id or new_id("run")
    options = replace(options, run_id=run_id, control=control, durability="sync")
    run = (await agent.ainvoke(update, thread_id=thread_id, options=options)).run
    if run.agent != name:
        run = replace(run, agent=name)
        await agent.checkpointer.commit(Batch(thread_id, runs=[run]))
    return run
