"""Cancellation: ends runs of this process, of other processes, and abandoned ones."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from ...harness.checkpoint.base import ENDED, Checkpointer, Run, taken_over
from ...harness.errors import (
    CheckpointError,
    HarnessError,
    RunEnded,
    StaleThread,
    Superseded,
    ThreadBusy,
)
from .active_run import ActiveRun
from .contracts import CancelRequest, Servers

__all__ = ["Cancellation"]


_ALIVE_SECONDS = 0.5
"""Seconds between checks that a process which was asked to end a run is still alive."""

CANCEL_SECONDS = 20.0
"""How long to wait for another process to end a run: middleware has 10 s to stop what it runs."""

logger = logging.getLogger(__name__)


class Cancellation:
    """Ends runs: those of this process, those of other processes, and abandoned ones.

    Args:
        journal: The journal.
        servers: The processes that share it.
        live: The runs this process works on.
        is_left: Says whether nobody works on a run that is recorded as `running`.
        ended: Called with each run that was ended while nobody worked on it.
    """

    def __init__(
        self,
        journal: Checkpointer,
        servers: Servers,
        live: Mapping[str, ActiveRun],
        is_left: Callable[[Run], Awaitable[bool]],
        ended: Callable[[Run], None],
    ) -> None:
        self._journal = journal
        self._servers = servers
        self._requests = servers.cancel_requests
        self._live = live
        self._is_left = is_left
        self._ended = ended
        self._looks = False
        self._unrecorded: dict[str, str] = {}

    async def end(self, run: Run, reason: str) -> Run:
        """End a run; its committed steps stay. A run that has ended is returned as it is.

        Raises:
            ThreadBusy: Another process works on it and has not ended it within 20 s. The request
                is stored: that process, or one that takes over the run, will still end it.
            CheckpointError: The journal cannot be written. A run of this process has stopped, and
                its end is recorded as soon as that is possible.
            HarnessError: The request to another process cannot be stored.
        """
        asked = False
        while True:
            live = self._live.get(run.id)
            if live is not None:
                self._stop(live, reason)
                await live.finished.wait()
            run = await self._journal.run(run.id) or replace(run, status="cancelled")
            if run.status in ENDED:
                break
            if not await self._is_anothers(run):
                with self._telling_that_it_stopped(run.id):
                    await self._end_left(run, reason)
            elif run.id not in self._live:
                asked = True
                await self._have_ended(run, reason)
        self._unrecorded.pop(run.id, None)
        if asked:
            await self._requests.discard(run.id)
        return run

    def _stop(self, live: ActiveRun, reason: str) -> None:
        """Stop a run of this process, and remember this until its end is recorded."""
        self._unrecorded[live.run_id] = reason
        live.control.cancel(reason)

    async def _is_anothers(self, run: Run) -> bool:
        return run.status == "running" and not await self._is_left(run)

    @contextmanager
    def _telling_that_it_stopped(self, run_id: str) -> Generator[None]:
        """Add to an error that this process has stopped the run all the same, if it has."""
        try:
            yield
        except StaleThread:
            raise
        except HarnessError as error:
            if run_id not in self._unrecorded:
                raise
            raise CheckpointError(
                f"Run {run_id} was stopped, but that is not recorded yet: {error} This server "
                "does not continue the run, and records its end as soon as it can. If the "
                "server ends before that, the run continues."
            ) from error

    async def _end_left(self, run: Run, reason: str) -> None:
        """Record the end of a waiting or abandoned run, unless it is continued just now."""
        async with self._servers.takeover():
            now = await self._journal.run(run.id)
            if now is None or now.status in ENDED or await self._is_anothers(now):
                return
            await self._record(now, reason)

    async def _record(self, run: Run, reason: str) -> None:
        try:
            await self._journal.commit(taken_over(run, status="cancelled", reason=reason))
        except Superseded:
            return  # it was just continued or ended: check again
        self._unrecorded.pop(run.id, None)
        self._ended(run)

    async def _have_ended(self, run: Run, reason: str) -> None:
        """Ask the process that works on a run to end it, and wait until it has.

        Raises:
            ThreadBusy: It takes too long.
            HarnessError: The request cannot be stored.
        """
        request = CancelRequest(run.id, run.attempt, reason)
        try:
            await self._requests.store(request)
        except OSError as error:
            raise HarnessError(
                f"Run {run.id} is not cancelled: another server process works on it, and the "
                f"request to end it could not be stored: {error}. Nothing was changed. Check the "
                "disk and the permissions of the state directory, then try again; or cancel the "
                "run through the server that works on it."
            ) from error
        with (
            anyio.move_on_after(CANCEL_SECONDS),
            self._servers.run_changes.watching(run.id) as watch,
        ):
            now: Run | None = await self._journal.run(run.id)
            while now is not None and now.attempt == run.attempt and await self._is_anothers(now):
                with anyio.move_on_after(_ALIVE_SECONDS):  # who works on it may die
                    await watch.next(now)
                now = await self._journal.run(run.id)
            return
        raise ThreadBusy(
            f"Run {run.id} is not cancelled yet: another server process works on it, and has not "
            f"ended it within {CANCEL_SECONDS:.0f} s. The request is stored. That process ends "
            "the run as soon as it can; if it dies, the run is not started again. See where it "
            f'stands with wait(run_id="{run.id}").'
        )

    # --- what other processes ask of this one ------------------------------------------------

    def look_out(self, group: TaskGroup) -> None:
        """Check for requests while this process works on runs.

        Also retry to record the ends of runs that could not be recorded.
        """
        if not self._looks:
            self._looks = True
            group.start_soon(self._look_out)

    async def _look_out(self) -> None:
        try:
            while self._live or self._unrecorded:
                await anyio.sleep(self._requests.look_seconds)
                await self.look()
                for run_id, reason in [*self._unrecorded.items()]:
                    await self._try_to_record(run_id, reason)
        finally:
            self._looks = False

    async def look(self) -> None:
        """End the runs of this process that other processes asked to end."""
        try:
            await self._look()
        except (OSError, HarnessError) as error:
            logger.warning("cancel requests of other servers cannot be read: %s", error)

    async def _look(self) -> None:
        ids = [*self._live]
        for run_id in await self._requests.asked_for(ids) if ids else ():
            run = await self._journal.run(run_id)
            request = None if run is None else await self._request(run)
            live = self._live.get(run_id)
            if request is not None and live is not None:
                self._stop(live, request.reason)

    async def _try_to_record(self, run_id: str, reason: str) -> None:
        """Record the end of a stopped run, unless that is done or not possible yet."""
        if run_id in self._live:
            return
        try:
            run = await self._journal.run(run_id)
            if run is not None and run.status not in ENDED:
                await self._end_left(run, reason)
        except HarnessError as error:  # the caller has its answer; the next check retries
            logger.debug("the end of run %s cannot be recorded: %s", run_id, error)
        else:
            self._unrecorded.pop(run_id, None)

    async def _request(self, run: Run) -> CancelRequest | None:
        """Return the request to end a run that is recorded as `running`."""
        if run.status != "running":
            return None
        if run.id in self._unrecorded:
            return CancelRequest(run.id, run.attempt, self._unrecorded[run.id])
        return await self._requests.of(run)

    async def require_unasked(self, run: Run) -> None:
        """End an abandoned run if its process died before it noticed the request to end it.

        Call it only while no other process can resume the run.

        Raises:
            RunEnded: There was a request; the run is ended now.
        """
        request = await self._request(run)
        if request is None:
            return
        with self._telling_that_it_stopped(run.id):
            await self._record(run, request.reason)
        await self._requests.discard(run.id)
        raise RunEnded(f"Run {run.id} is cancelled: {request.reason}.")

    async def forget_settled(self) -> None:
        """Discard requests for runs that have since ended or been resumed."""
        for request in await self._requests.all():
            run = await self._journal.run(request.run_id)
            if run is None or run.status != "running" or run.attempt != request.attempt:
                await self._requests.discard(request.run_id)
