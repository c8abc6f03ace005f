"""Health of a server: whether it accepts work, and its metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from ...harness.checkpoint.base import UNFINISHED, Checkpointer
from ...harness.errors import HarnessError
from ..mcp.requests import Services
from ..transports.health import Labels, Metric

__all__ = ["OwnWork", "ServerHealth"]

JOURNAL_SECONDS = 2.0
"""Seconds the journal may take to answer; probes give up soon after."""

FRESH_SECONDS = 1.0
"""Seconds for which an answer of the journal is reused for other probes."""

COUNTED_SECONDS = 15.0
"""Seconds for which counts of open runs are reused, about the interval of collectors."""

MOST_COUNTED = 1_000
"""The most open runs of one status that are counted."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Others(Protocol):
    """The servers that share the journal; see `Fleet`."""

    @property
    def living(self) -> int:
        """How many servers there are, this one included."""
        ...

    @property
    def superseded(self) -> int:
        """How many commits of this server were refused because another had taken over the run."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether the others can see that this server is alive."""
        ...


class OwnWork(Protocol):
    """Schedules and webhooks of a server; see `Agenda`."""

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Counts, by the name of a metric and by result."""
        ...

    async def waiting(self) -> int:
        """Return how many deliveries of webhooks wait, of all servers."""
        ...


_AGENDA = {
    "schedule_times_total": "Times of schedules that this server fired, missed or failed to fire.",
    "webhook_tries_total": "Tries of this server to call webhooks.",
    "webhooks_waiting": "Calls of webhooks that are still to be made, of all servers.",
}


class ServerHealth:
    """The health and the metrics of a server.

    Args:
        services: Its runs and requests.
        journal: The journal with all users' runs.
        group: The task group in which the journal is read.
        others: The servers that share the journal; None if it is not shared.
        agenda: Its schedules and webhooks; None without them.
    """

    def __init__(
        self,
        services: Services,
        journal: Checkpointer,
        group: TaskGroup,
        others: Others | None,
        agenda: OwnWork | None,
    ) -> None:
        self._others = others
        self._agenda = agenda
        self._services = services
        self._journal = journal
        self._problem = _Look(group, self._find_problem, lambda: FRESH_SECONDS)
        self._open_runs = _Look(group, self._count_open_runs, lambda: COUNTED_SECONDS)
        self._waiting = _Look(group, self._count_waiting, lambda: COUNTED_SECONDS)
        self._is_away = False

    async def not_ready(self) -> str | None:
        """Return why the server accepts no work now; None if it does."""
        if self._services.runs.stopping.has_begun:
            return "the server is stopping"
        if self._others is not None and not self._others.is_there:
            return "the server has not reached the journal for a while"
        problem = await self._problem.result(f"it did not answer within {JOURNAL_SECONDS:g} s")
        if problem and not self._is_away:
            logger.warning("not ready: the journal cannot be read: %s", problem)
        self._is_away = bool(problem)
        return "the journal cannot be reached; the server's log says why" if problem else None

    async def _find_problem(self) -> str:
        try:
            await self._journal.run("run_of_nobody")
        except (HarnessError, OSError) as error:
            return str(error)
        return ""

    async def metrics(self) -> Sequence[Metric]:
        """Return the text of `/metrics`. It contains no name, id or caller."""
        runs, in_flight = self._services.runs, self._services.in_flight
        figures, by_kind = runs.figures, ("kind",)
        found = (
            ("draining", "1 while the server stops.", _by((), {(): runs.stopping.has_begun})),
            ("requests_in_flight", "Requests at work.", _by((), {(): in_flight.calls})),
            ("listen_streams", "Open listen streams.", _by((), {(): in_flight.streams})),
            ("runs_working", "Runs that this server works on.", _by(by_kind, runs.at_work)),
            (
                "runs_open",
                "Runs in the journal, of all servers; at most 1000 of a status are counted.",
                _by(("status",), await self._open_runs.result({})),
            ),
            (
                "runs_started_total",
                "Runs that this server began or went on with.",
                _by(by_kind, figures.started),
            ),
            (
                "runs_stopped_total",
                "Runs that paused or ended in this server.",
                _by((*by_kind, "status"), figures.stopped),
            ),
            (
                "runs_taken_over_total",
                "Runs of other servers that this one went on with.",
                _by((), {(): figures.taken_over}),
            ),
            *self._of_others(),
            *await self._of_agenda(),
        )
        return [
            Metric(
                f"deep_agent_{name}",
                "counter" if name.endswith("_total") else "gauge",
                about,
                values,
            )
            for name, about, values in found
        ]

    def _of_others(self) -> Sequence[tuple[str, str, Mapping[Labels, float]]]:
        if self._others is None:
            return ()
        return (
            ("replicas", "Servers that share the journal.", _by((), {(): self._others.living})),
            (
                "commits_superseded_total",
                "Commits that were refused because another server had taken the run over.",
                _by((), {(): self._others.superseded}),
            ),
        )

    async def _of_agenda(self) -> Sequence[tuple[str, str, Mapping[Labels, float]]]:
        if self._agenda is None:
            return ()
        found = [
            (name, _AGENDA[name], _by(("result",), counts))
            for name, counts in self._agenda.counts.items()
        ]
        waiting = await self._waiting.result({})
        return [*found, ("webhooks_waiting", _AGENDA["webhooks_waiting"], _by((), waiting))]

    async def _count_waiting(self) -> Mapping[tuple[()], int]:
        """Return how many deliveries of webhooks wait; empty while they cannot be read."""
        try:
            return {} if self._agenda is None else {(): await self._agenda.waiting()}
        except (HarnessError, OSError) as error:
            logger.warning("waiting webhooks cannot be counted: %s", error)
            return {}

    async def _count_open_runs(self) -> Mapping[str, int]:
        """Return how many runs have not ended; empty while the journal cannot be read."""
        counts: dict[str, int] = {}
        try:
            for one in UNFINISHED:
                counts[one] = len(await self._journal.find_runs(status=one, limit=MOST_COUNTED))
        except (HarnessError, OSError) as error:
            logger.warning("open runs cannot be counted: %s", error)
            return {}
        return counts


class _Look(Generic[T]):
    """Reads the journal once at a time, for all callers together.

    A read of a journal that is away cannot be cancelled, so callers wait for a limited time.
    """

    def __init__(
        self, group: TaskGroup, look: Callable[[], Awaitable[T]], fresh: Callable[[], float]
    ) -> None:
        self._group = group
        self._look = look
        self._fresh = fresh
        self._found: tuple[float, T] | None = None
        self._looking: anyio.Event | None = None

    async def result(self, unanswered: T) -> T:
        """Return the newest result, or `unanswered` if reading takes too long."""
        if self._looking is None and not self._is_fresh():
            self._looking = anyio.Event()
            self._group.start_soon(self._run, self._looking)
        if self._looking is not None:
            with anyio.move_on_after(JOURNAL_SECONDS):
                await self._looking.wait()
        return self._found[1] if self._looking is None and self._found else unanswered

    def _is_fresh(self) -> bool:
        return self._found is not None and anyio.current_time() - self._found[0] < self._fresh()

    async def _run(self, done: anyio.Event) -> None:
        try:
            found = await self._look()
            self._found = anyio.current_time(), found
        finally:
            self._looking = None
            done.set()


def _by(names: Sequence[str], counts: Mapping[Any, int]) -> Mapping[Labels, float]:
    """Return counts as metrics with these labels."""
    keys = {key: (key,) if isinstance(key, str) else key for key in counts}
    return {tuple(zip(names, keys[key], strict=True)): float(n) for key, n in counts.items()}
