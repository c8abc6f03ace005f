"""Background tasks of delegated runs, which are runs of the server like all others.

A task is stored as a run that nobody works on yet, and offered to the engine, so any server may
execute it. `wait`, `reply` and `cancel` take a task's run id. If its server dies, another server
continues the task like any other run (`--background-subagents`).
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
from .queue import WAITS
from .queue.thread_queues import LOOK_SECONDS
from .supervisor import RunSupervisor

__all__ = ["ServedTasks"]


class ServedTasks:
    """Lets a `RunSupervisor` execute background tasks; a `TaskEngine`.

    Args:
        journal: The server's.
        replicas: Whether other replicas may take runs that wait for a place.

    Attributes:
        launcher: The main agent's launcher; enter it before the first run.
    """

    def __init__(self, journal: Checkpointer, *, replicas: bool = False) -> None:
        self._journal = journal
        self._replicas = replicas
        self._agents: AgentSource
        self._supervisor: RunSupervisor
        # The engine decides how many work at a time.
        self.launcher = BackgroundSubAgents(journal, engine=self._engine, max_running=ALL)

    def _engine(self, agents: AgentSource) -> ServedTasks:
        self._agents = agents
        return self

    def attach(self, supervisor: RunSupervisor) -> None:
        """Set the supervisor that executes the runs."""
        self._supervisor = supervisor
        supervisor.tasks = self.launcher

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """See `TaskEngine`. A task belongs to the owner of its caller's thread."""
        owner = owner_of(thread_id)
        options = RunOptions(
            run_id=new_id(f"run_{owner}" if owner else "run"),
            owner=self._supervisor.owner,
            log_events=True,
            context=behalf.context if behalf else None,
            principal=behalf.principal if behalf else "",
        )
        return await accepted_run(
            self._agents(agent), agent, thread_id, update, options, for_anybody=WAITS
        )

    async def carry(self, run: Run, behalf: Behalf | None) -> None:
        """See `TaskEngine`. Any server with room executes it, and it can be waited for on all.

        A task that uses a client's model works on the same server as its caller. Among replicas,
        it starts at once, because another one could take it while it waits for a place.
        """
        models = self._agents(run.agent).definition.models
        here = self._replicas and any(is_sampling(one.name) for one in models)
        run = await self._journal.run(run.id) or run
        if run.status != "running" and not here:
            await self._supervisor.queue.go_on(run)
        elif here and (run.status != "running" or await self.is_left(run)):
            await self._supervisor.resume(run, {})
        with self._supervisor.servers.run_changes.watching(run.id) as watch:
            await self._until_stopped(run.id, watch)

    async def _until_stopped(self, run_id: str, watch: RunWatch) -> None:
        """Wait until a run has paused or ended, and make sure meanwhile that it continues."""
        supervisor, offered = self._supervisor, -math.inf
        while (run := await self._journal.run(run_id)) and run.status == "running":
            live = supervisor.live.get(run_id)
            is_due = anyio.current_time() - offered >= LOOK_SECONDS
            if live is not None:
                await live.finished.wait()
            elif supervisor.stopping.has_begun:
                return  # the next server continues
            elif is_due and await self.is_left(run):
                offered = anyio.current_time()
                await supervisor.adopt(run)
            else:
                with anyio.move_on_after(LOOK_SECONDS):
                    await watch.next(run)

    async def cancel(self, run: Run, reason: str) -> Run:
        """See `TaskEngine`."""
        return await self._supervisor.cancellation.end(run, reason)

    async def is_left(self, run: Run) -> bool:
        """See `TaskEngine`."""
        return await self._supervisor.is_left(run)
