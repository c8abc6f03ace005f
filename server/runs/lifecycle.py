"""Life cycle of a server's runs: counts starts and stops, and hands runs over at shutdown.

A server that shuts down starts nothing more. Each run finishes and stores its current step, and is
then left for the next server to continue. No tool call is interrupted.

A run whose journal cannot be used stays as it is stored, and continues when the journal is back.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from ...harness.checkpoint.base import Checkpointer, Run
from ...harness.errors import HarnessError, JournalAway
from .active_run import ActiveRun
from .contracts import Servers

__all__ = [
    "HANDED_OVER",
    "KINDS",
    "JournalWait",
    "RunFigures",
    "ServerStopping",
    "Stopping",
    "kind_of",
]

HANDED_OVER = "its server was stopped between two steps; the next server continues it"
"""Reason of a run that was handed over."""

KINDS = ("drive", "delegate")

logger = logging.getLogger(__name__)


class ServerStopping(HarnessError):
    """The server is being stopped; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "This server is stopping, so nothing was done. Send the same call again in about 10 s: "
            "the next server has all threads and continues all runs."
        )


@dataclass(slots=True)
class RunFigures:
    """Counts of runs since the server was started. A run that is resumed counts again.

    Attributes:
        started: Runs that were started or resumed, by kind.
        stopped: Runs that paused or ended, by kind and outcome: a status of runs,
            `handed_over`, or `error` for runs that could not be executed at all.
        taken_over: Runs of other servers that this one has continued.
        heard: Called with each run when it starts, and again when it has stopped; must not block.
    """

    started: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    stopped: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    taken_over: int = 0
    heard: Callable[[ActiveRun], None] = lambda _: None

    def begun(self, live: ActiveRun) -> None:
        """Count a run that begins."""
        self.started[kind_of(live)] += 1
        self.heard(live)

    def ended(self, live: ActiveRun) -> None:
        """Count a run that has paused or ended."""
        status = "error" if live.result is None else live.result.run.status
        self.stopped[kind_of(live), "handed_over" if status == "running" else status] += 1
        self.heard(live)


def kind_of(live: ActiveRun) -> str:
    """Return the kind of a run: a call of a client's model, or a goal."""
    return "drive" if live.brief else "delegate"


class Stopping:
    """The shutdown of a server: whether it has begun, and who still waits for runs.

    Args:
        live: Its working runs, by id.
        servers: This server among the others.

    Attributes:
        has_begun: Whether new work is refused.
    """

    def __init__(self, live: Mapping[str, ActiveRun], servers: Servers) -> None:
        self.has_begun = False
        self._live = live
        self._servers = servers
        self._waiting: set[anyio.CancelScope] = set()
        self._released = False

    def require_serving(self) -> None:
        """Refuse new work if the server is stopping, or if the others consider it dead.

        Raises:
            ServerStopping: It is stopping.
            JournalAway: It has not reached the journal for a while.
        """
        if self.has_begun:
            raise ServerStopping
        if not self._servers.may_work:
            raise JournalAway(
                "this server has not reached the journal for a while, so other servers take its "
                "runs over. Nothing was done; send the call again."
            )

    @contextmanager
    def waiting(self, scope: anyio.CancelScope) -> Generator[None]:
        """Cancel a scope in which a caller waits for a run, when the server's time is up."""
        if self._released:
            scope.cancel()
        self._waiting.add(scope)
        try:
            yield
        finally:
            self._waiting.discard(scope)

    def release(self) -> None:
        """End all waits, and leave the working runs as they are."""
        self.has_begun = self._released = True
        for scope in self._waiting:
            scope.cancel()
        for one in self._live.values():
            one.finished.wake()

    async def drain(self, seconds: float) -> None:
        """Let runs finish their step and hand them over, within this many seconds.

        A call of a client's own model is one step, so it ends as usual.
        """
        self.has_begun = True
        live = self._live
        if not live:
            return
        count = len(live)
        logger.warning(
            "stopping: %d runs finish their step first, within %g s. Stop the server once more "
            "to end it at once.",
            count, seconds,
        )  # fmt: skip
        for one in live.values():
            if not one.brief:
                one.control.hand_over(HANDED_OVER)
        with anyio.move_on_after(seconds):
            while live:
                await next(iter(live.values())).finished.wait()
        if live:
            logger.warning(
                "stopping: %d of %d runs have not finished their step. The next server continues "
                "with them; what their tools were doing is cut short.",
                len(live), count,
            )  # fmt: skip


_FIRST_LOOK, _LAST_LOOK = 0.25, 5.0
"""Seconds between attempts to reach the journal: the first pause, and the longest."""


class JournalWait:
    """Runs that stopped because the journal could not be used.

    Attributes:
        wait_seconds: Seconds for which they wait for it.

    Args:
        journal: The journal.
        go_on: Continues a run, if no other server does. It returns whether that is settled: whether
            the run works here, waits for its turn, or needs nothing more from this server.
        group: The task group in which they wait.
    """

    def __init__(
        self, journal: Checkpointer, go_on: Callable[[Run], Awaitable[bool]], group: TaskGroup
    ) -> None:
        self.wait_seconds = 300.0
        self._journal = journal
        self._go_on = go_on
        self._group = group
        self._waits: dict[str, object] = {}

    def __contains__(self, run_id: str) -> bool:
        """Whether a run waits for the journal."""
        return run_id in self._waits

    def forget(self, run_id: str) -> None:
        """End the wait of a run that continues."""
        self._waits.pop(run_id, None)

    def begin(self, run_id: str) -> None:
        """Continue a run when the journal is back.

        A journal that can be read but not written, such as one on a full disk, is not back yet. A
        run that has waited too long is left. The next request for it, or the next server,
        continues it.
        """
        logger.warning("run %s waits for the journal, which cannot be used", run_id)
        self._waits[run_id] = own = object()
        self._group.start_soon(self._wait, run_id, own)

    async def _wait(self, run_id: str, own: object) -> None:
        """Wait as `own`: the run may fail and wait again before an earlier wait has ended."""
        pause, deadline = _FIRST_LOOK, anyio.current_time() + self.wait_seconds
        try:
            while anyio.current_time() < deadline:
                await anyio.sleep(pause)
                if self._waits.get(run_id) is not own:
                    return
                pause = min(pause * 2, _LAST_LOOK)
                if await self._is_settled(run_id):
                    return
                self._waits.setdefault(run_id, own)  # the attempt to continue has ended the wait
            logger.error(
                "run %s was left after %.0f s: the journal cannot be used. It continues when "
                "the journal is back and somebody asks for it, or a server is started.",
                run_id, self.wait_seconds,
            )  # fmt: skip
        finally:
            if self._waits.get(run_id) is own:
                del self._waits[run_id]

    async def _is_settled(self, run_id: str) -> bool:
        try:
            run = await self._journal.run(run_id)
            return run is None or await self._go_on(run)
        except HarnessError as error:
            logger.debug("run %s still waits for the journal: %s", run_id, error)
            return False
