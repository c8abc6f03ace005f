"""Carries the runs of background tasks in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import anyio
import anyio.to_thread
from pydantic import JsonValue

from ..._internal.records import record
from ...checkpoint.base import Batch, Checkpointer, Run
from ...errors import HarnessError
from ...loop.run.context import RunControl
from ...loop.run_executor import RunOptions
from .engine import ALL, OPEN, AgentSource, Behalf, accepted_run
from .worker_locks import WorkerLock, is_worker_alive, new_worker

__all__ = ["LocalRuns"]

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10


@record
class _Carried:
    control: RunControl = field(default_factory=RunControl)
    finished: anyio.Event = field(default_factory=anyio.Event)


class LocalRuns:
    """Carries runs in this process.

    Args:
        checkpointer: The journal.
        agents: Finds the agent of a run by name.
        options: How runs are carried; their `limits` are for agents that bring none.
        is_alive: Whether another process, by the owner id in its runs, still works. By default
            those of this machine are asked, and every other counts as alive: two must never
            carry one run. What was left in good order is anybody's.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        agents: AgentSource,
        options: RunOptions,
        is_alive: Callable[[str], bool] | None = None,
    ) -> None:
        self._journal = checkpointer
        self._agents = agents
        self._owner = options.owner or new_worker()
        self._options = replace(options, owner=self._owner)
        self._is_alive = is_alive
        self._lock = WorkerLock(self._owner)
        self._unknown: set[str] = set()
        self._carried: dict[str, _Carried] = {}

    async def open(self) -> None:
        """Say that runs of this owner are being worked on.

        Raises:
            HarnessError: That cannot be said.
        """
        await anyio.to_thread.run_sync(self._lock.hold)

    async def close(self) -> None:
        """Say that they are not any more, and let others on every machine go on with them."""
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                await self._leave_all()
            except HarnessError as error:
                logger.warning("background tasks stay those of this process: %s", error)
            await anyio.to_thread.run_sync(self._lock.release)

    async def _leave_all(self) -> None:
        for status in OPEN:
            for run in await self._journal.find_runs(status=status, limit=ALL):
                if run.owner == self._owner:
                    await self._journal.commit(
                        Batch(run.thread_id, runs=[replace(run, owner=None)])
                    )

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """See `RunEngine`."""
        return await accepted_run(
            self._agents(agent), agent, thread_id, update, self._on_behalf(self._options, behalf)
        )

    async def carry(
        self, run: Run, answers: Mapping[str, JsonValue], behalf: Behalf | None
    ) -> None:
        """See `RunEngine`."""
        agent = self._agents(run.agent)
        if await self._is_anothers(await self._journal.run(run.id) or run):
            logger.info("background run %s is left to the process that works on it", run.id)
            return
        carried = self._carried[run.id] = _Carried()
        options = replace(self._options, control=carried.control)
        if agent.limits is not None:
            options = replace(options, limits=None)
        try:
            await agent.aresume(run.id, answers, options=self._on_behalf(options, behalf))
        finally:
            del self._carried[run.id]
            carried.finished.set()

    async def cancel(self, run: Run, reason: str) -> Run:
        """See `RunEngine`."""
        carried = self._carried.get(run.id)
        if carried is not None:
            carried.control.cancel(reason)
            await carried.finished.wait()
        run = await self._journal.run(run.id) or run
        if run.status in ("done", "failed", "cancelled"):
            return run
        if run.status == "running" and not await self.is_left(run):
            raise HarnessError(
                f"run {run.id} belongs to another process that is alive as far as is known, so it "
                "was not cancelled. Cancel it there; if that process is gone, say so with is_alive."
            )
        run = replace(run, status="cancelled", reason=reason)
        await self._journal.commit(Batch(run.thread_id, runs=[run]))
        return run

    async def is_left(self, run: Run) -> bool:
        """See `RunEngine`."""
        owner = run.owner
        if run.id in self._carried:
            return False
        if owner is None or owner == self._owner:
            return True
        known = await anyio.to_thread.run_sync(is_worker_alive, owner)
        if known is not None:
            return not known
        if self._is_alive is None and owner not in self._unknown:
            self._unknown.add(owner)
            text = "background run %s is left to %s, of which nothing is known here: give is_alive"
            logger.warning(text, run.id, owner)
        return self._is_alive is not None and not self._is_alive(owner)

    async def _is_anothers(self, run: Run) -> bool:
        begins = run.status == "paused" and run.attempt == 1
        return (begins or run.status == "running") and not await self.is_left(run)

    def _on_behalf(self, options: RunOptions, behalf: Behalf | None) -> RunOptions:
        if behalf is None:
            return options
        return replace(options, context=behalf.context, principal=behalf.principal)
