"""Background tasks of delegated runs: runs of the server like all others.

A task is accepted as a run that nobody works on, and offered to the engine, so that any server may
carry it. `wait`, `reply` and `cancel` work on a task's run id, and whoever goes on with other runs
of dead servers goes on with a task, too (`--background-subagents`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import anyio

from ...harness.checkpoint.base import Checkpointer, Run
from ...harness.loop.run_executor import RunOptions
from ...harness.messages.message import new_id
from ...harness.subagents.background.engine import ALL, AgentSource, Behalf, accepted_run
from ...harness.subagents.background.launcher import BackgroundSubAgents
from ..auth.caller import owner_of
from ..settings.setting_types import is_sampling
from .contracts import RunWatch
from .supervisor import RunSupervisor
from .thread_queues import LOOK_SECONDS

__all__ = ["ServedTasks"]

_WAITS = "it waits for a free place"


class ServedTasks:
    """Lets a `RunSupervisor` execute background tasks; a `RunEngine`.

    Args:
        journal: The server's.

    Attributes:
        launcher: For the main agent; to be entered before the first run.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._journal = journal
        self._agents: AgentSource
        self._supervisor: RunSupervisor
        # How many work at a time is for the engine to say.
        self.launcher = BackgroundSubAgents(journal, engine=self._engine, max_running=ALL)

    def _engine(self, agents: AgentSource) -> ServedTasks:
        self._agents = agents
        return self

    def attach(self, supervisor: RunSupervisor) -> None:
        """Say who executes the runs."""
        self._supervisor = supervisor
        supervisor.tasks = self.launcher

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """See `RunEngine`. A task belongs to whom its caller's thread belongs to."""
        owner = owner_of(thread_id)
        options = RunOptions(
            run_id=new_id(f"run_{owner}" if owner else "run"),
            owner=self._supervisor.owner,
            log_events=True,
            context=behalf.context if behalf else None,
            principal=behalf.principal if behalf else "",
        )
        return await accepted_run(
            self._agents(agent), agent, thread_id, update, options, for_anybody=_WAITS
        )

    async def carry(self, run: Run, behalf: Behalf | None) -> None:
        """See `RunEngine`. Whoever has room executes it; it is waited for wherever it is.

        A task that asks a client's model works where its caller does.
        """
        models = self._agents(run.agent).definition.models
        here = any(is_sampling(one.name) for one in models)
        run = await self._journal.run(run.id) or run
        if run.status != "running" and not here:
            await self._supervisor.queue.go_on(run)
        elif here and (run.status != "running" or await self.is_left(run)):
            await self._supervisor.resume(run, {})
        with self._supervisor.servers.run_changes.watching(run.id) as watch:
            await self._until_stopped(run.id, watch)

    async def _until_stopped(self, run_id: str, watch: RunWatch) -> None:
        """Return when a run has paused or ended; see to it meanwhile that somebody continues."""
        supervisor, offered = self._supervisor, -math.inf
        while (run := await self._journal.run(run_id)) and run.status == "running":
            live = supervisor.live.get(run_id)
            is_due = anyio.current_time() - offered >= LOOK_SECONDS
            if live is not None:
                await live.finished.wait()
            elif supervisor.stopping.has_begun:
                return  # the next server goes on
            elif is_due and await self.is_left(run):
                offered = anyio.current_time()
                await supervisor.adopt(run)
            else:
                with anyio.move_on_after(LOOK_SECONDS):
                    await watch.next(run)

    async def cancel(self, run: Run, reason: str) -> Run:
        """See `RunEngine`."""
        return await self._supervisor.cancellation.end(run, reason)

    async def is_left(self, run: Run) -> bool:
        """See `RunEngine`."""
        return await self._supervisor.is_left(run)
