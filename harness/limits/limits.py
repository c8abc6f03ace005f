"""Limits of a whole run tree: the agent, its subagents and theirs.

Well before a limit, an agent is told how much is left (`Meter.warning`). Near the limit, each agent
is asked for its final answer (`Meter.wrap_up`). At the limit, no further call starts
(`LimitReached`). Tokens, dollars and seconds are checked before each model call, so a run can
exceed them only by the calls in progress: one for each agent that is working at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar, cast

from ..messages.message import Usage
from .prices import SCRIPT, price_of
from .usage import (
    THREAD,
    UNITS,
    Budget,
    Ledger,
    LimitName,
    LimitReached,
    Limits,
    Remaining,
    UnknownUsage,
    Used,
    budgets_of,
    check_measurable,
    counted,
    limit_met,
    shown,
)

__all__ = [
    "LimitName",
    "LimitReached",
    "Limits",
    "Meter",
    "Remaining",
    "UnknownUsage",
    "Used",
    "counted",
]

_SOFT = 0.9
"""Share of a budget after which the main agent should finish. For subagents it is raised to one
more power per level, so that a subagent leaves enough for the agents that wait for it."""

_WARN = 0.75
"""Share of a limit after which the main agent is warned; for subagents see `Meter.warning`."""

_NOTHING = Used()


class Meter:
    """Meter of a run tree: counts usage and checks limits; all agents of the tree share it.

    Args:
        limits: The limits.
        used: Usage of the run before it paused.
        earlier: Usage of other runs of the thread, for limits of the thread.
        clock: Monotonic clock, in seconds.

    Attributes:
        limits: The limits.
        model_calls: Number of started model calls.
        tool_calls: Number of started tool calls.
        usage: Tokens used.
        cost: Cost in US dollars of all calls with a known price.
        unpriced_calls: Number of model calls that are missing from `cost`.
    """

    __slots__ = (
        "__weakref__",
        "_budgets",
        "_children",
        "_clock",
        "_earlier",
        "_ledger",
        "_left",
        "_seconds_before",
        "_silent",
        "_started",
        "_used_before",
        "cost",
        "limits",
        "model_calls",
        "tool_calls",
        "unpriced_calls",
        "usage",
    )

    what: ClassVar[str] = "run"
    """What the limits apply to, in texts for models."""

    def __init__(
        self,
        limits: Limits,
        used: Used | None = None,
        *,
        earlier: Used | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        used = used or _NOTHING
        self.limits = limits
        self._earlier = earlier or _NOTHING
        self._children: dict[str, Meter] = {}
        self._left = dict(used.children)
        self.model_calls = used.model_calls
        self.tool_calls = used.tool_calls
        self.usage = used.usage
        self.cost = used.cost
        self.unpriced_calls = used.unpriced_calls
        self._used_before = used
        self._ledger: Ledger | None = None
        self._budgets = budgets_of(limits)
        self._silent: str | None = None
        self._seconds_before = used.seconds
        self._clock = clock
        self._started = clock()

    # --- counting --------------------------------------------------------------------------

    def before_model_call(self, model: str | None = None, depth: int = 0) -> None:
        """Count a model call.

        Args:
            model: Full name of the model. With a cost limit, a model without a known price is
                refused before it costs anything.
            depth: Level of the calling agent; the main agent is at 0. A subagent cannot use the
                last calls: one is reserved for each agent above it.

        Raises:
            LimitReached: A limit was reached; the call must not start.
            UnknownPrice: There is a cost limit and the price is unknown; the call must not start.
            UnknownUsage: There is a token or cost limit and a model did not report its tokens.
        """
        reached = self.reached(depth)
        if reached is not None:
            raise reached
        check_measurable(
            self.limits, model, self._silent, self.unpriced_calls, self._earlier.unpriced_calls
        )
        self.model_calls += 1

    def take_back_model_call(self) -> None:
        """Undo the count of a model call that ended before a model was called."""
        self.model_calls -= 1

    def before_tool_call(self) -> None:
        """Count a tool call, or raise `LimitReached`."""
        if self.tool_calls >= self.limits.tool_calls:
            raise self._met("tool_calls", self.limits.tool_calls, self.tool_calls)
        seconds = self.limits.seconds
        if seconds is not None and self.seconds >= seconds:
            raise self._met("seconds", seconds, self.seconds)
        self.tool_calls += 1

    def before_subagents(self, count: int, depth: int = 1) -> None:
        """Check that a model's answer may start one more subagent.

        Args:
            count: Number of subagents that the answer has started, including this one.
            depth: Levels between the new subagent and the main agent.

        Raises:
            LimitReached: `depth` or `fan_out`. The run can continue: the text tells the model what
                to do instead.
        """
        limits = self.limits
        if depth > limits.depth:
            raise LimitReached(
                "depth",
                f"subagents may be nested {limits.depth} deep and this would be one more, so it "
                "was not started. Do the work here.",
            )
        if count > limits.fan_out:
            raise LimitReached(
                "fan_out",
                f"one answer may start {limits.fan_out} subagents and this would be one more, so "
                "it was not started. Start it once the others are done.",
            )

    def add(self, usage: Usage | None, model: str, asked: str = "", *, agent: str = "") -> float:
        """Add the tokens and the cost of a model call.

        Args:
            usage: The tokens, or None if the model did not report them. Do not add answers from a
                cache.
            model: Full name of the model that answered.
            asked: Name of the requested model; its price is used if `model` has none.
            agent: Calling agent, for the ledger.

        Returns:
            Cost in US dollars; 0 if it is unknown.
        """
        if usage is None and model.startswith(SCRIPT):
            usage = Usage()
        if usage is None:
            self._silent = asked or model
            self.unpriced_calls += 1
            self._note(agent, model, Usage(), 0.0)
            return 0.0
        self.usage += usage
        prices = self.limits.prices
        price = price_of(model, prices) or price_of(asked, prices)
        cost = 0.0 if price is None else price.cost(usage)
        self.unpriced_calls += price is None
        self.cost += cost
        self._note(agent, model, usage, cost)
        return cost

    def _note(self, agent: str, model: str, usage: Usage, cost: float) -> None:
        if self._ledger is None:
            self._ledger = Ledger(self._used_before.ledger)
        self._ledger.add(agent, model, usage, cost)

    # --- reading ---------------------------------------------------------------------------

    @property
    def is_worth_noting(self) -> bool:
        """Whether any usage has to be stored for a run that continues later."""
        if self.model_calls or self.usage is not _NOTHING.usage:
            return True
        return any(name.startswith(THREAD) for name, _ in self._budgets)

    @property
    def tokens(self) -> int:
        """Total number of tokens."""
        return self.usage.total

    @property
    def seconds(self) -> float:
        """Wall time used, pauses excluded."""
        return self._seconds_before + self._clock() - self._started

    def _met(self, limit: LimitName, allowed: float, used: float, note: str = "") -> LimitReached:
        return limit_met(limit, allowed, used, note)

    def used(self) -> Used:
        """Return the usage of the tree so far."""
        return Used(
            self.model_calls,
            self.tool_calls,
            self.usage,
            self.cost,
            self._seconds_before + self._clock() - self._started,
            self.unpriced_calls,
            self._used_before.ledger if self._ledger is None else self._ledger.lines,
            {**self._left, **{ns: one.used() for ns, one in self._children.items()}},
            None if self._earlier is _NOTHING else self._earlier,
        )

    # --- subagents with bounds of their own ------------------------------------------------

    def enter(self, ns: str, meter: Meter) -> None:
        """Register the meter of a subagent until `leave`; its usage is stored with the tree's."""
        self._left.pop(ns, None)
        self._children[ns] = meter

    def leave(self, ns: str, *, unfinished: bool) -> None:
        """Remove a subagent's meter; keep its usage if it is unfinished and may continue later."""
        meter = self._children.pop(ns, None)
        if unfinished and meter is not None:
            self._left[ns] = meter.used()

    def left_by(self, ns: str) -> Used | None:
        """Return the usage of a subagent that stopped unfinished."""
        return self._left.get(ns)

    def remaining(self) -> Remaining:
        """Return the remaining budget of the tree; never less than 0.

        For tokens and cost, this is the smaller of the run's and the thread's remaining budget.
        """
        limits = self.limits
        return Remaining(
            model_calls=max(0, limits.model_calls - self.model_calls),
            tool_calls=max(0, limits.tool_calls - self.tool_calls),
            tokens=cast("int | None", self._left_of("tokens", "thread_tokens")),
            cost=self._left_of("cost", "thread_cost"),
            seconds=None if limits.seconds is None else max(0.0, limits.seconds - self.seconds),
        )

    def reached(self, depth: int = 0) -> LimitReached | None:
        """Return the limit that a model call of an agent at this depth would exceed, if any."""
        allowed = self.limits.model_calls
        if allowed - self.model_calls <= depth:
            kept = "" if depth == 0 else "; the rest is kept for the agents above this one"
            return self._met("model_calls", allowed, self.model_calls, kept)
        for name, bound in self._budgets:
            if self._amount(name) >= bound:
                return self._met(name, bound, self._amount(name))
        return None

    def out_of_time(self) -> LimitReached:
        """Return the error for a run whose time is up, even if it reached other limits too."""
        return self._met("seconds", self.limits.seconds or 0.0, self.seconds)

    def wrap_up(self, depth: int = 0) -> str | None:
        """Return why an agent should give its final answer now, or None if enough is left.

        Call it before `before_model_call`. The reasons: this is the agent's last model call, no
        tool calls are left, or 90 % of a budget is used (81 % for a subagent, and so on, because
        its parent needs a turn, too).

        Args:
            depth: Level of the agent; the main agent is at 0.

        Returns:
            A text for the model.
        """
        scarce = self._scarce(depth)
        if scarce is None:
            return None
        return (
            f"{scarce} Give your final answer now and call no more tools: say what is done, what "
            "is not, and what should be done next."
        )

    def warning(self, depth: int = 0) -> str | None:
        """Return how much an agent has left, once three quarters of a limit are used.

        For a subagent the share is a tenth lower per level, because its wrap-up is earlier, too.
        Once the wrap-up is due, there is no warning.

        Args:
            depth: Level of the agent; the main agent is at 0.

        Returns:
            A text for the model about every limit that is near; None if enough is left.
        """
        if self._scarce(depth) is not None:
            return None
        near = [
            f"{int(100 * used / bound)} % of {self._bound(name, bound)}"
            for name, bound, used in self._used_up()
            if used >= bound * _WARN * _SOFT**depth
        ]
        if not near:
            return None
        return (
            f"This {self.what} has used {' and '.join(near)}. Plan for what is left: do what "
            "matters most first, and keep enough for your final answer."
        )

    def _used_up(self) -> Iterator[tuple[LimitName, float, float]]:
        """Yield the name, limit and usage of every budget."""
        yield "model_calls", self.limits.model_calls, self.model_calls
        yield "tool_calls", self.limits.tool_calls, self.tool_calls
        for name, bound in self._budgets:
            yield name, bound, self._amount(name)

    def _scarce(self, depth: int) -> str | None:
        left = self.limits.model_calls - self.model_calls
        if left <= depth + 1:
            return f"This is your last turn: the {self.what}'s model calls are almost used up."
        if self.tool_calls >= self.limits.tool_calls:
            return f"All {self.limits.tool_calls:,} tool calls of this {self.what} are used up."
        for name, bound in self._budgets:
            if self._amount(name) >= bound * _SOFT ** (depth + 1):
                percent = int(100 * self._amount(name) / bound)
                whose = "the" if name.startswith(THREAD) else f"this {self.what}'s"
                return f"{percent} % of {whose} {shown(bound)} {UNITS[name]} are used up."
        return None

    def _bound(self, name: LimitName, bound: float) -> str:
        whose = "the " if name.startswith(THREAD) else ""
        earlier = ", used by it and the runs before it," if whose else ""
        return f"{whose}{shown(bound)} {UNITS[name]}{earlier}"

    def _amount(self, name: Budget) -> float:
        own = name.removeprefix(THREAD)
        earlier = 0 if own == name else cast("float", getattr(self._earlier, own))
        return earlier + cast("float", getattr(self, own))

    def _left_of(self, *names: Budget) -> float | None:
        left = [max(0, bound - self._amount(one)) for one, bound in self._budgets if one in names]
        return min(left, default=None)
