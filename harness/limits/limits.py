"""Limits of a whole run tree: the agent, its subagents and theirs.

Before a limit is reached, an agent can be warned how much is left (`Meter.warning`). Near it, each
agent is asked for its final answer (`Meter.wrap_up`). At the limit, no further call begins
(`LimitReached`). Tokens, dollars and seconds are checked before each model call, so they are
exceeded by at most the call in progress: one for each agent that is working at that moment.
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
"""Share of a budget after which the main agent shall finish; one power more for each level below
it, so that a subagent that wraps up leaves enough for those that wait for it."""

_WARN = 0.75
"""Share of a limit after which the main agent is warned how much is left; also for subagents."""

_NOTHING = Used()


class Meter:
    """Meter of a run tree: counts usage so far, and is shared by all of its agents.

    Args:
        limits: The bounds.
        used: What the run had used before it paused.
        earlier: What other runs of the thread have used, for bounds of the thread.
        clock: Seconds that only grow.

    Attributes:
        limits: The bounds.
        model_calls: Model calls that began.
        tool_calls: Tool calls that began.
        usage: Tokens.
        cost: US dollars of the calls whose price is known.
        unpriced_calls: Model calls that `cost` lacks.
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
    """What its bounds are of, in texts for models."""

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
            model: Its full name. With a cost limit, a model without a known price is refused
                before it costs anything.
            depth: Levels between the agent that asks and the main one, which is at 0. A subagent
                does not get the last calls: one stays for each agent above it.

        Raises:
            LimitReached: A limit was met; the call must not begin.
            UnknownPrice: There is a cost limit and the price is unknown; likewise.
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
        """Count a model call no more that has ended before any model was asked."""
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
        """Check that an answer may start one more subagent.

        Args:
            count: Subagents the answer has started, with this one.
            depth: Levels between the new subagent and the main agent.

        Raises:
            LimitReached: `depth` or `fan_out`. Nothing is used up, so the run can go on: the text
                tells the model what to do instead.
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
        """Add the tokens of a model call and what they cost.

        Args:
            usage: The tokens, or None if the model does not say. Do not add an answer that came
                from a cache.
            model: Full name of the model that answered.
            asked: Name of the model that was asked; its price counts if `model` has none.
            agent: Who asked, for the ledger.

        Returns:
            What it cost in US dollars; 0 if that is not known.
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
        """Whether a run that continues has to know what was used."""
        if self.model_calls or self.usage is not _NOTHING.usage:
            return True
        return any(name.startswith(THREAD) for name, _ in self._budgets)

    @property
    def tokens(self) -> int:
        """All tokens together."""
        return self.usage.total

    @property
    def seconds(self) -> float:
        """Wall time used, pauses excluded."""
        return self._seconds_before + self._clock() - self._started

    def _met(self, limit: LimitName, allowed: float, used: float, note: str = "") -> LimitReached:
        return limit_met(limit, allowed, used, note)

    def used(self) -> Used:
        """Return what the tree has used by now."""
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
        """Keep what a subagent has used beside what the tree has, until it leaves."""
        self._left.pop(ns, None)
        self._children[ns] = meter

    def leave(self, ns: str, *, unfinished: bool) -> None:
        """Stop to count for a subagent; one that is unfinished continues from there later."""
        meter = self._children.pop(ns, None)
        if unfinished and meter is not None:
            self._left[ns] = meter.used()

    def left_by(self, ns: str) -> Used | None:
        """Return what a subagent had used when it stopped unfinished."""
        return self._left.get(ns)

    def remaining(self) -> Remaining:
        """Return what the tree may still use; never less than 0.

        Of tokens and cost it is what the run or the thread may, whichever is less.
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
        """Return the limit that a model call of an agent at this depth would meet, if any."""
        allowed = self.limits.model_calls
        if allowed - self.model_calls <= depth:
            kept = "" if depth == 0 else "; the rest is kept for the agents above this one"
            return self._met("model_calls", allowed, self.model_calls, kept)
        for name, bound in self._budgets:
            if self._amount(name) >= bound:
                return self._met(name, bound, self._amount(name))
        return None

    def out_of_time(self) -> LimitReached:
        """Return the limit of a run whose time is over, whatever else it has used up."""
        return self._met("seconds", self.limits.seconds or 0.0, self.seconds)

    def wrap_up(self, depth: int = 0) -> str | None:
        """Say why an agent should give its final answer now, or None while there is enough left.

        Ask before `before_model_call`. That is the agent's last model call, tool calls are used
        up, or 90 % of a budget is (81 % for a subagent, and so on: its parent needs a turn too).

        Args:
            depth: Levels between the agent and the main one, which is at 0.

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
        """Say how much an agent has left, once three quarters of some limit are used up.

        For a subagent it is a tenth less for each level, as its wrap-up comes earlier too. Nothing
        is said any more when it is time for that.

        Args:
            depth: Levels between the agent and the main one, which is at 0.

        Returns:
            A text for the model, about every bound that is near; None while there is enough left.
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
        """Yield every limit with what is used of it."""
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
