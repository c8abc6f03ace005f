"""Who carries the runs of background tasks: the seam, and the way inside this process.

A background task is a run of its own on a thread of its own, in the same journal. The journal is
the only truth: what an engine holds in memory is who is carried right now.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import anyio
from pydantic import JsonValue

from harness.checkpoint.base import Batch, Checkpointer, Run
from harness.errors import HarnessError, RunEnded
from harness.loop.agent import Agent
from harness.loop.carrier import RunOptions
from harness.loop.run_context import RunControl
from harness.messages import new_id

__all__ = ["Behalf", "LocalRuns", "RunEngine", "accepted_run", "parent_thread", "task_thread"]

logger = logging.getLogger(__name__)

_TASK_THREAD = re.compile(r"(.+)\.(task-[0-9a-f]{8})")

_LIVING: set[str] = set()
"""Owners of runs in this process that are at work."""

Agents: TypeAlias = Callable[[str], Agent]
"""Returns the agent of a name, ready for background runs.

Raises:
    HarnessError: There is none.
"""


def task_thread(thread_id: str, task_id: str) -> str:
    """Return the thread of a task of a thread."""
    return f"{thread_id}.{task_id}"


def parent_thread(thread_id: str) -> str | None:
    """Return the thread a task's thread belongs to; None if it is none of a task."""
    found = _TASK_THREAD.fullmatch(thread_id)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Behalf:
    """What a task takes over from the run that started it; not kept in the journal.

    Attributes:
        context: As in `RunOptions`.
        principal: Likewise.
    """

    context: Any = None
    principal: str = ""


class RunEngine(Protocol):
    """Carries runs on threads of their own (DESIGN: beyond one machine)."""

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

        A run that ended meanwhile, or that another living process works on, stays as it is.

        Raises:
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


@dataclass(frozen=True, slots=True)
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
            nobody but this process does.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        agents: Agents,
        options: RunOptions,
        is_alive: Callable[[str], bool] | None = None,
    ) -> None:
        self._journal = checkpointer
        self._agents = agents
        self._owner = options.owner or f"background-{os.getpid()}-{secrets.token_hex(4)}"
        self._options = replace(options, owner=self._owner)
        self._is_alive = is_alive
        self._carried: dict[str, _Carried] = {}

    def open(self) -> None:
        """Say that runs of this owner are being worked on."""
        _LIVING.add(self._owner)

    def close(self) -> None:
        """Say that they are not any more."""
        _LIVING.discard(self._owner)

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
        except RunEnded as error:
            logger.info("background run %s was not continued: %s", run.id, error)
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
                f"run {run.id} belongs to another process that is alive, so it was not cancelled"
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
        return owner not in _LIVING and (self._is_alive is None or not self._is_alive(owner))

    async def _is_anothers(self, run: Run) -> bool:
        begins = run.status == "paused" and run.attempt == 1
        return (begins or run.status == "running") and not await self.is_left(run)

    def _on_behalf(self, options: RunOptions, behalf: Behalf | None) -> RunOptions:
        if behalf is None:
            return options
        return replace(options, context=behalf.context, principal=behalf.principal)
