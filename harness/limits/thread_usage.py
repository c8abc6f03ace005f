"""Thread usage: what the earlier runs of a thread have used, from the journal."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic_core import to_json

from ..checkpoint.base import Checkpointer, Run
from .limits import Meter, Used

__all__ = ["noted", "used_before", "used_by"]

_FEW_RUNS = 10
_ALL_RUNS = 1_000_000


def noted(meter: Meter) -> str:
    """Return what a run has used by now as its record keeps it."""
    return to_json(meter.used().to_json()).decode()


def used_by(run: Run) -> Used | None:
    """Return what a run has used; None if nothing is known of it."""
    return Used.from_json(json.loads(run.used)) if run.used else None


async def used_before(run: Run, journal: Checkpointer) -> Used:
    """Return what other runs of the thread have used, for the limits that ask for it.

    A run that counted this knows all before it, so usually a few records are read.
    """
    own = used_by(run)
    if own is not None and own.thread is not None:
        return own.thread
    total = Used()
    for limit in (_FEW_RUNS, _ALL_RUNS):
        runs = await journal.find_runs(thread_id=run.thread_id, limit=limit)
        total, is_all = _sum_of(one for one in runs if one.id != run.id)
        if is_all or len(runs) < limit:
            break
    return total


def _sum_of(runs: Iterable[Run]) -> tuple[Used, bool]:
    """Return what runs of a thread have used, newest first, and whether one knows all before it."""
    total = Used()
    for run in runs:
        used = used_by(run)
        if used is not None:
            total += used
            if used.thread is not None:
                return total + used.thread, True
    return total, False
