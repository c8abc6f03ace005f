"""Life cycle of a server's runs: counts starts and stops, and hands runs over when it ends.

A server that ends begins nothing more. Each run finishes the step it works on, which is stored, and
then belongs to nobody, so that the next server goes on with it. No tool is cut in the middle.

A run whose journal cannot be reached is left as it is stored, and goes on when the journal is back.
Of a run that another server works on, those who wait here hear what is stored of its events.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

import anyio

from ...harness.checkpoint.base import Checkpointer, Run, RunEvent
from ...harness.errors import HarnessError, JournalAway
from ...harness.loop.run.events import Emit, Event, StreamMode
from .active_run import MAX_UNHEARD, ActiveRun
from .contracts import Servers

__all__ = [
    "HANDED_OVER",
    "KINDS",
    "FarEvents",
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
        started: Runs that began or went on, by kind.
        stopped: Runs that paused or ended, by kind and what they are then: a status of runs,
            `handed_over`, or `error` for what could not be carried at all.
        taken_over: Runs of other servers that this one has gone on with.
        heard: Told of each run that begins, and again when it has stopped; must not block.
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
    """Return what a run is: a call of a client's model, or a goal."""
    return "drive" if live.brief else "delegate"


class Stopping:
    """Whether a server stops, and who waits for its runs meanwhile.

    Args:
        live: Its runs at work, by id.
        servers: This server among the others.

    Attributes:
        has_begun: Whether nothing more is begun.
    """

    def __init__(self, live: Mapping[str, ActiveRun], servers: Servers) -> None:
        self.has_begun = False
        self._live = live
        self._servers = servers
        self._waiting: set[anyio.CancelScope] = set()
        self._released = False

    def require_serving(self) -> None:
        """Refuse to begin something once the server stops, or the others take it for dead.

        Raises:
            ServerStopping: It stops.
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
        """Cancel a scope, in which somebody waits for a run, when the server has no more time."""
        if self._released:
            scope.cancel()
        self._waiting.add(scope)
        try:
            yield
        finally:
            self._waiting.discard(scope)

    def release(self) -> None:
        """End all waits: what is still at work is left as it is."""
        self.has_begun = self._released = True
        for scope in self._waiting:
            scope.cancel()
        for one in self._live.values():
            one.finished.wake()

    async def drain(self, seconds: float) -> None:
        """Let runs finish their step and hand them over, for so many seconds at most.

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


_PAGE = 200


class FarEvents:
    """Events of a run that another server works on, as far as it has stored them.

    Args:
        journal: The journal.
        run_id: The run.
        emit: Receives them; None for nobody.
    """

    def __init__(self, journal: Checkpointer, run_id: str, emit: Emit | None) -> None:
        self._journal = journal
        self._run_id = run_id
        self._emit = emit
        self._newest: int | None = None

    async def pass_on(self) -> None:
        """Pass on what was stored since the last call; the first one only sees what there is.

        Whoever begins to wait has seen what there is, also when a run is taken over. While the
        journal cannot be reached, nothing is passed on.
        """
        if self._emit is not None:
            with suppress(JournalAway):
                await self._pass_on(self._emit)

    async def _pass_on(self, emit: Emit) -> None:
        unheard: deque[RunEvent] = deque(maxlen=MAX_UNHEARD)
        is_first, newest = self._newest is None, self._newest or 0
        while page := await self._journal.events(self._run_id, after=newest, limit=_PAGE):
            newest = page[-1].seq
            unheard += page
            if len(page) < _PAGE:
                break
        self._newest = newest
        for one in () if is_first else unheard:
            mode = cast("StreamMode", one.mode)
            emit(Event(mode, one.data, "", one.run_id, one.seq, one.path))


_FIRST_LOOK, _LAST_LOOK = 0.25, 5.0
"""Seconds after which a journal that cannot be reached is tried again, at first and later."""


class JournalWait:
    """Runs that were left while the journal could not be reached.

    Attributes:
        wait_seconds: Seconds for which they wait for it.
        run_ids: The runs. Whoever waits for one, or goes on with it, says so here at once.

    Args:
        journal: The journal.
        go_on: Goes on with a run, if nobody else does.
    """

    def __init__(self, journal: Checkpointer, go_on: Callable[[Run], Awaitable[None]]) -> None:
        self.wait_seconds = 300.0
        self.run_ids: set[str] = set()
        self._journal = journal
        self._go_on = go_on

    async def wait(self, run_id: str) -> None:
        """Continue a run when the journal is back.

        A run that has waited too long stays left: whoever asks for it, or starts a server, goes on.
        """
        logger.warning("run %s waits for the journal, which cannot be reached", run_id)
        pause, deadline = _FIRST_LOOK, anyio.current_time() + self.wait_seconds
        try:
            while anyio.current_time() < deadline:
                await anyio.sleep(pause)
                if run_id not in self.run_ids:
                    return
                pause = min(pause * 2, _LAST_LOOK)
                try:
                    run = await self._journal.run(run_id)
                except JournalAway:
                    continue
                if run is not None:
                    await self._go_on(run)
                return
            logger.error(
                "run %s was left after %.0f s: the journal cannot be reached. It continues when "
                "the journal is back and somebody asks for it, or a server is started.",
                run_id, self.wait_seconds,
            )  # fmt: skip
        finally:
            self.run_ids.discard(run_id)
