"""Retry requests: ask the servers of a state directory to continue runs.

Only servers execute runs. So a command writes a small file, as it does to cancel a run. A server
that finds it continues the run, or writes a file that says why it cannot.
"""

from __future__ import annotations

import logging

import anyio
import anyio.to_thread

from ...harness.checkpoint.base import Checkpointer, Run
from ...harness.errors import HarnessError, ThreadBusy
from ..runs.contracts import CancelRequest
from ..runs.runs import RunManager
from ..runs.server_processes import CancelRequests, ServerProcesses
from ..settings.state_dir import StateDir

__all__ = ["RetryRequests", "take_retries"]

LOOK_SECONDS = 2.0
"""Seconds between two checks for requests."""

logger = logging.getLogger(__name__)


class RetryRequests:
    """Requests of the commands that share a state directory with servers. All methods block.

    Args:
        state: The state directory.
    """

    def __init__(self, state: StateDir) -> None:
        self._asked = CancelRequests(state.path / "retry-requests")
        self._refused = CancelRequests(state.path / "retry-refusals")

    def store(self, run: Run) -> None:
        """Request that a run continues.

        Raises:
            OSError: The request cannot be written.
        """
        self._refused.discard(run.id)
        self._asked.store(CancelRequest(run.id, run.attempt, "retry"))

    def ids(self) -> list[str]:
        """Return the runs that were requested to continue."""
        return [one.run_id for one in self._asked.all()]

    def is_for(self, run: Run) -> bool:
        """Whether the request is about the attempt that a run's record shows."""
        return self._asked.of(run) is not None

    def discard(self, run_id: str) -> None:
        """Delete a request."""
        self._asked.discard(run_id)

    def refuse(self, run: Run, why: str) -> None:
        """Store why a run cannot continue.

        Raises:
            OSError: It cannot be written.
        """
        self._refused.store(CancelRequest(run.id, run.attempt, why))

    def refusal(self, run: Run) -> str | None:
        """Return why a run cannot continue, and delete the note; None without one."""
        found = self._refused.of(run)
        if found is not None:
            self._refused.discard(run.id)
        return None if found is None else found.reason


async def take_retries(
    runs: RunManager, journal: Checkpointer, state: StateDir, owner: str
) -> None:
    """Continue runs when commands request it; returns when the server stops.

    Args:
        runs: Continues them.
        journal: The journal that they are in.
        state: The state directory.
        owner: Id of this server in it.
    """
    requests, processes = RetryRequests(state), ServerProcesses(state)
    while not runs.stopping.has_begun:
        try:
            asked = await anyio.to_thread.run_sync(requests.ids)
        except OSError as error:
            asked = []
            logger.warning("requests to continue runs cannot be read: %s", error)
        for run_id in asked:
            try:
                await _look(runs, journal, run_id, requests, processes, owner)
            except (OSError, HarnessError) as error:  # only this run; the others need not wait
                logger.warning("run %s does not continue: %s", run_id, error)
        await anyio.sleep(LOOK_SECONDS)


async def _look(
    runs: RunManager,
    journal: Checkpointer,
    run_id: str,
    requests: RetryRequests,
    processes: ServerProcesses,
    owner: str,
) -> None:
    """Continue a run if it is this server's turn."""
    run = await journal.run(run_id)
    if run is None or not await anyio.to_thread.run_sync(requests.is_for, run):
        await anyio.to_thread.run_sync(requests.discard, run_id)  # nothing is left to do
    elif run.status != "running" and runs.supervisor.goes_on(run_id):
        return  # it stops just now, or continues by itself; the next check sees which
    elif run.owner in (None, owner) or not await processes.is_alive(run.owner):
        await _retry(runs, run, requests)  # else its last server continues it


async def _retry(runs: RunManager, run: Run, requests: RetryRequests) -> None:
    await anyio.to_thread.run_sync(requests.discard, run.id)
    try:
        await runs.go_on(run, {})
    except HarnessError as error:
        if isinstance(error, ThreadBusy) and error.run_id == run.id:
            await anyio.to_thread.run_sync(requests.store, run)
            return  # it is about to stop, or to continue by itself; the next check sees which
        logger.warning("run %s does not continue: %s", run.id, error)
        await anyio.to_thread.run_sync(requests.refuse, run, str(error))
