"""Background tasks of delegated runs: runs of the server like all others.

`wait`, `reply` and `cancel` work on a task's run id, and a task that a dead server left is
continued by the next one (`--background-subagents`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ...harness.checkpoint.base import Checkpointer, Run
from ...harness.loop.run_executor import RunOptions
from ...harness.messages.message import new_id
from ...harness.subagents.background.engine import AgentSource, Behalf, accepted_run
from ...harness.subagents.background.launcher import BackgroundSubAgents
from ..auth.caller import owner_of
from .supervisor import RunSupervisor

if TYPE_CHECKING:
    from ...harness.subagents.background.launcher import BackgroundSubAgents

__all__ = ["ServedTasks"]


class ServedTasks:
    """Lets a `RunSupervisor` carry background tasks; a `RunEngine`.

    Args:
        journal: The server's.

    Attributes:
        launcher: For the main agent; to be entered before the first run.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._agents: AgentSource
        self._carrier: RunSupervisor
        self.launcher = BackgroundSubAgents(journal, engine=self._engine)

    def _engine(self, agents: AgentSource) -> ServedTasks:
        self._agents = agents
        return self

    def attach(self, carrier: RunSupervisor) -> None:
        """Say who carries the runs."""
        self._carrier = carrier
        carrier.tasks = self.launcher

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """See `RunEngine`. A task belongs to whom its caller's thread belongs to."""
        owner = owner_of(thread_id)
        options = RunOptions(
            run_id=new_id(f"run_{owner}" if owner else "run"),
            owner=self._carrier.owner,
            log_events=True,
            context=behalf.context if behalf else None,
            principal=behalf.principal if behalf else "",
        )
        return await accepted_run(self._agents(agent), agent, thread_id, update, options)

    async def carry(
        self, run: Run, answers: Mapping[str, JsonValue], behalf: Behalf | None
    ) -> None:
        """See `RunEngine`."""
        await self._carrier.carry_on(run, answers)

    async def cancel(self, run: Run, reason: str) -> Run:
        """See `RunEngine`."""
        return await self._carrier.end(run, reason)

    async def is_left(self, run: Run) -> bool:
        """See `RunEngine`."""
        if run.status == "paused" and run.owner == self._carrier.owner:
            return True  # it waits for its turn here, or has lost it
        return await self._carrier.is_left(run)
