"""Health of a server: whether it takes work, and its metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from ...harness.checkpoint.base import Checkpointer, RunStatus
from ...harness.errors import CheckpointError
from ..mcp.requests import Services
from ..transports.health import Labels, Metric

__all__ = ["ServerHealth"]

JOURNAL_SECONDS = 2.0
"""How long the journal may take to answer; probes give up soon after."""

FRESH_SECONDS = 1.0
"""How long an answer of the journal is taken for true, however many ask."""

COUNTED_SECONDS = 15.0
"""How long the counts of open runs are; collectors ask about that often."""

MOST_COUNTED = 1_000
"""Open runs of one status that are counted."""

_OPEN: Sequence[RunStatus] = ("running", "needs_approval", "paused")

logger = logging.getLogger(__name__)


class ServerHealth:
    """Says how a server is.

    Args:
        services: Its runs and requests.
        journal: Where everybody's runs are stored.
    """

    def __init__(self, services: Services, journal: Checkpointer) -> None:
        self._runs = services.runs
        self._journal = journal
        self._services = services
        self._asking = anyio.Lock()
        self._asked: tuple[float, str | None] | None = None
        self._counted: tuple[float, Mapping[RunStatus, int]] | None = None

    async def not_ready(self) -> str | None:
        """Return why the server takes no work now; None if it does."""
        if self._runs.stopping.has_begun:
            return "the server is stopping"
        async with self._asking:
            now = anyio.current_time()
            if self._asked is None or now - self._asked[0] > FRESH_SECONDS:
                before = None if self._asked is None else self._asked[1]
                self._asked = now, await self._journal_problem(before)
            return self._asked[1]

    async def _journal_problem(self, before: str | None) -> str | None:
        why = f"no answer within {JOURNAL_SECONDS:g} s"
        with anyio.move_on_after(JOURNAL_SECONDS):
            try:
                await self._journal.run("run_of_nobody")
                return None
            except (CheckpointError, OSError) as error:
                why = str(error)
        if before is None:
            logger.warning("not ready: the journal cannot be read: %s", why)
        return "the journal cannot be reached; the server's log says why"

    async def metrics(self) -> Sequence[Metric]:
        """Return what `/metrics` shows. No name, id or caller is in it."""
        runs, figures, by_kind = self._runs, self._runs.figures, ("kind",)
        found = (
            ("draining", "1 while the server stops.", _by((), {(): runs.stopping.has_begun})),
            (
                "requests_in_flight",
                "Requests that are being answered.",
                _by((), {(): len(self._services.in_flight)}),
            ),
            ("runs_working", "Runs that this server works on.", _by(by_kind, runs.at_work)),
            (
                "runs_open",
                "Runs in the journal, of all servers; at most 1000 of a status are counted.",
                _by(("status",), await self._open_runs()),
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

    async def _open_runs(self) -> Mapping[RunStatus, int]:
        """Return how many runs have not ended; nothing while the journal cannot be read."""
        now = anyio.current_time()
        if self._counted is None or now - self._counted[0] > COUNTED_SECONDS:
            counts: dict[RunStatus, int] = {}
            with anyio.move_on_after(JOURNAL_SECONDS) as limit:
                try:
                    for one in _OPEN:
                        found = await self._journal.find_runs(status=one, limit=MOST_COUNTED)
                        counts[one] = len(found)
                except CheckpointError as error:
                    logger.warning("open runs cannot be counted: %s", error)
                    counts = {}
            self._counted = now, {} if limit.cancelled_caught else counts
        return self._counted[1]


def _by(names: Sequence[str], counts: Mapping[Any, int]) -> Mapping[Labels, float]:
    """Return counts by labels of these names."""
    keys = {key: (key,) if isinstance(key, str) else key for key in counts}
    return {tuple(zip(names, keys[key], strict=True)): float(n) for key, n in counts.items()}
