"""Limits of subagents, and limits of a thread over several runs.

A subagent's usage counts against its own limits and against those of the tree. At its own limit the
subagent ends, with a result for its caller; at a limit of the tree the whole run ends. Two sets of
limits combine to the lower limit of each kind. Usage of a thread's earlier runs is read from the
journal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, ClassVar

from pydantic_core import to_json

from .._internal.records import changed
from ..checkpoint.base import Checkpointer, Run
from ..errors import CheckpointError
from ..messages.message import Usage
from .limits import LimitName, LimitReached, Limits, Meter, Remaining, Used, counted

__all__ = ["ChildMeter", "bounds", "narrowed", "noted", "used_before", "used_by"]


def bounds(**given: Any) -> Limits:
    """Return limits without defaults: only the given ones apply.

    Raises:
        TypeError: There is no such limit.
        ValueError: A limit is not positive.
    """
    counts = ("model_calls", "tool_calls", "depth", "fan_out", "parallel_tool_calls")
    wanted: dict[str, Any] = {**dict.fromkeys(counts, sys.maxsize), **given}
    return Limits(**wanted)


class ChildMeter(Meter):
    """Meter of one subagent and the agents below it; usage also counts for its caller's meter.

    Args:
        limits: Limits of the subagent. `depth` counts from the subagent: 0 for no subagents.
        above: The caller's meter.
        ns: Namespace of the subagent.
        depth: Level of the subagent; direct subagents of the main agent are at 1.
    """

    __slots__ = ("_above", "_depth", "_ns")

    what: ClassVar[str] = "task"

    def __init__(self, limits: Limits, above: Meter, ns: str, depth: int) -> None:
        limits = replace(  # the tree's meter enforces the thread's limits
            limits,
            thread_tokens=None,
            thread_cost=None,
            thread_model_calls=None,
            parallel_tool_calls=min(limits.parallel_tool_calls, above.limits.parallel_tool_calls),
            prices={**above.limits.prices, **limits.prices},
        )
        super().__init__(limits, above.left_by(ns), clock=above._clock)
        self._above = above
        self._ns = ns
        self._depth = depth
        above.enter(ns, self)

    # --- counting: nothing is counted unless both allow it -----------------------------------

    def before_model_call(self, model: str | None = None, depth: int = 0) -> None:
        """See `Meter`; at the subagent's own limit, `LimitReached` has its namespace."""
        super().before_model_call(model, depth)
        try:
            self._above.before_model_call(model, depth)
        except BaseException:
            self.model_calls -= 1
            raise

    def take_back_model_call(self) -> None:
        """See `Meter`."""
        super().take_back_model_call()
        self._above.take_back_model_call()

    def before_tool_call(self) -> None:
        """See `Meter`."""
        super().before_tool_call()
        try:
            self._above.before_tool_call()
        except BaseException:
            self.tool_calls -= 1
            raise

    def before_subagents(self, count: int, depth: int = 1) -> None:
        """See `Meter`."""
        super().before_subagents(count, depth - self._depth)
        self._above.before_subagents(count, depth)

    def add(self, usage: Usage | None, model: str, asked: str = "", *, agent: str = "") -> float:
        """See `Meter`."""
        cost = self._above.add(usage, model, asked, agent=agent)
        super().add(usage, model, asked, agent=agent)
        return cost

    # --- reading -----------------------------------------------------------------------------

    def remaining(self) -> Remaining:
        """Return the remaining budget: the smaller of its own and its caller's."""
        own, above = super().remaining(), self._above.remaining()
        return Remaining(
            min(own.model_calls, above.model_calls),
            min(own.tool_calls, above.tool_calls),
            _less(own.tokens, above.tokens),
            _less(own.cost, above.cost),
            _less(own.seconds, above.seconds),
        )

    def reached(self, depth: int = 0) -> LimitReached | None:
        """Return the limit that a model call would exceed; the subagent's own limits come first."""
        own = super().reached(depth - self._depth)
        return own or self._above.reached(depth)

    @property
    def seconds_left(self) -> float | None:
        """Seconds left of the subagent's own time limit; None without one."""
        return super().remaining().seconds

    def wrap_up(self, depth: int = 0) -> str | None:
        """Return why to give the final answer now, or None; see `Meter`."""
        return super().wrap_up(depth - self._depth) or self._above.wrap_up(depth)

    def warning(self, depth: int = 0) -> str | None:
        """Return how much is left, or None; see `Meter`."""
        return super().warning(depth - self._depth) or self._above.warning(depth)

    def used(self) -> Used:
        """Return the usage so far, without a ledger: only the tree has one."""
        return changed(super().used(), ledger=())

    def _met(self, limit: LimitName, allowed: float, used: float, note: str = "") -> LimitReached:
        text = f"{counted(limit, allowed, used)} for one task of this subagent"
        return LimitReached(limit, text, self._ns)


def _less(one: float | None, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


_FEW_RUNS = 10
_ALL_RUNS = 1_000_000


def noted(meter: Meter) -> str:
    """Return a run's usage so far as JSON text for its record."""
    return to_json(meter.used().to_json()).decode()


def used_by(run: Run) -> Used | None:
    """Return the usage in a run's record; None if there is none.

    Raises:
        CheckpointError: The record is damaged.
    """
    try:
        return Used.from_json(json.loads(run.used)) if run.used else None
    except ValueError as error:
        raise CheckpointError(
            f"The journal is damaged where it says what run {run.id} has used of its limits. "
            "Nothing was changed. `deep-agent-mcp journal check` says what else is damaged; start "
            "a new run on the thread."
        ) from error


async def used_before(run: Run, journal: Checkpointer) -> Used:
    """Return the usage of the thread's other runs, for limits of the thread.

    A run that counted it also stored the total of all runs before it, so usually only a few records
    are read.
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
    """Return the usage of runs, given newest first, and whether it covers all earlier runs."""
    total = Used()
    for run in runs:
        used = used_by(run)
        if used is not None:
            total += used
            if used.thread is not None:
                return total + used.thread, True
    return total, False


def narrowed(limits: Limits, other: Limits | None) -> Limits:
    """Return the lower limit of each kind; None means no limit.

    Args:
        limits: The first limits. Its prices take precedence.
        other: The second limits, or None.
    """
    if other is None:
        return limits
    lower: dict[str, object] = {"prices": {**other.prices, **limits.prices}}
    for name in (one.name for one in fields(Limits) if one.name not in lower):
        bounds = [one for one in (getattr(limits, name), getattr(other, name)) if one is not None]
        lower[name] = min(bounds, default=None)
    return Limits(**lower)  # pyright: ignore[reportArgumentType]
