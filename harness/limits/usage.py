"""Usage of a run tree, its limits, and texts about both.

A ledger counts the tokens of a whole run tree by agent and model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from typing import Literal, TypeAlias, cast, get_args

from pydantic import JsonValue, TypeAdapter

from .._internal.records import changed, record
from ..errors import HarnessError
from ..messages.message import Usage
from .prices import Price, UnknownPrice, price_of

__all__ = [
    "BUDGETS",
    "THREAD",
    "UNITS",
    "Budget",
    "Ledger",
    "LedgerLine",
    "LimitName",
    "LimitReached",
    "Limits",
    "Remaining",
    "UnknownUsage",
    "Used",
    "budgets_of",
    "check_measurable",
    "counted",
    "limit_met",
    "shown",
]


@record
class LedgerLine:
    """Line of a ledger: usage of one model by one agent.

    Attributes:
        agent: Path of the agent: the names from the root agent down, joined by `/`.
        model: Full name of the model that answered.
        calls: Number of answers.
        usage: Tokens, as far as the model reported them.
        cost: Cost in US dollars of all answers with a known price.
    """

    agent: str
    model: str
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0

    @property
    def cache_hit_rate(self) -> float:
        """Share of prompt tokens that came from the provider's cache, from 0 to 1."""
        prompt = (
            self.usage.input_tokens + self.usage.cache_read_tokens + self.usage.cache_write_tokens
        )
        return self.usage.cache_read_tokens / prompt if prompt else 0.0

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON data."""
        return {
            "agent": self.agent,
            "model": self.model,
            "calls": self.calls,
            "usage": self.usage.to_json(),
            "cost": self.cost,
        }


class Ledger:
    """Ledger of a run tree: usage by agent and model.

    Args:
        lines: Earlier usage.
    """

    __slots__ = ("_lines",)

    def __init__(self, lines: Iterable[LedgerLine] = ()) -> None:
        self._lines = {(one.agent, one.model): one for one in lines}

    def add(self, agent: str, model: str, usage: Usage, cost: float) -> None:
        """Add an answer."""
        key = (agent, model)
        line = self._lines.get(key) or LedgerLine(agent, model)
        self._lines[key] = changed(
            line, calls=line.calls + 1, usage=line.usage + usage, cost=line.cost + cost
        )

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """All lines, in the order of their first answer."""
        return tuple(self._lines.values())


LimitName: TypeAlias = Literal[
    "model_calls",
    "tool_calls",
    "depth",
    "fan_out",
    "tokens",
    "cost",
    "seconds",
    "thread_tokens",
    "thread_cost",
    "thread_model_calls",
    "repeat",
]
"""A field of `Limits`, or `repeat`: the same calls with the same results again and again."""

Budget: TypeAlias = Literal[
    "tokens", "cost", "seconds", "thread_tokens", "thread_cost", "thread_model_calls"
]
"""A limit on usage that is known only after a call."""

BUDGETS: tuple[Budget, ...] = get_args(Budget)
THREAD = "thread_"
"""Prefix of the names of limits that apply to all runs of a thread."""

UNITS: Mapping[LimitName, str] = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "tokens": "tokens",
    "cost": "US dollars",
    "seconds": "seconds",
    "thread_tokens": "tokens on the thread",
    "thread_cost": "US dollars on the thread",
    "thread_model_calls": "model calls on the thread",
}


class LimitReached(Exception):
    """A limit of the run tree was reached; the run ends with a typed reason.

    Attributes:
        limit: Name of the limit.
        ns: Namespace of the subagent if it is the subagent's own limit; None for the whole tree.
    """

    def __init__(self, limit: LimitName, text: str, ns: str | None = None) -> None:
        super().__init__(f"limit: {text}")
        self.limit: LimitName = limit
        self.ns = ns


class UnknownUsage(HarnessError):
    """A budget cannot be enforced, because a model does not report its tokens."""


@record
class Limits:
    """Limits of one run, including all of its subagents.

    Attributes:
        model_calls: Maximum number of model calls.
        tool_calls: Maximum number of started tool calls.
        depth: Maximum levels of subagents below the main agent; 0 for none.
        fan_out: Maximum number of subagents that one answer may start.
        parallel_tool_calls: Maximum number of calls of one answer that run at the same time; the
            others wait.
        tokens: Maximum tokens: input, output, and prompt cache reads and writes. None for no
            limit, also for `cost` and `seconds`.
        cost: Maximum cost in US dollars, by list prices (`harness.limits.prices`).
        seconds: Maximum working time; time spent waiting for a person's answers does not count.
        prices: Prices by prefix of the model's name; they override list prices.
        thread_tokens: Maximum tokens of all runs of the thread, including this one and its
            subagents, as recorded in the journal. None for no limit, also for the next two.
        thread_cost: Maximum cost in US dollars of all runs of the thread.
        thread_model_calls: Maximum number of model calls of all runs of the thread.

    Raises:
        ValueError: A limit is not positive (`depth` may be 0).
    """

    model_calls: int = 200
    tool_calls: int = 1_000
    depth: int = 3
    fan_out: int = 32
    parallel_tool_calls: int = 16
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price], hash=False)
    thread_tokens: int | None = None
    thread_cost: float | None = None
    thread_model_calls: int | None = None

    @property
    def for_thread(self) -> bool:
        """Whether any limit applies to all runs of the thread."""
        return not (
            self.thread_tokens is None
            and self.thread_cost is None
            and self.thread_model_calls is None
        )

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"Limits.depth must be 0 or more; got {self.depth}")
        for name in ("model_calls", "tool_calls", "fan_out", "parallel_tool_calls", *BUDGETS):
            value = cast("float | None", getattr(self, name))
            if value is not None and not value > 0:
                raise ValueError(f"Limits.{name} must be positive; got {value}")


@record
class Used:
    """Usage of a run tree; stored with a paused run so that counting can continue.

    Attributes:
        model_calls: Number of started model calls.
        tool_calls: Number of started tool calls.
        usage: Tokens used.
        cost: Cost in US dollars of all calls with a known price.
        seconds: Wall time, pauses excluded.
        unpriced_calls: Model calls that are missing from `cost`: price or tokens are unknown.
        ledger: Tokens and cost by agent and model.
        children: Usage of unfinished subagents with their own limits, by namespace.
        thread: Usage of earlier runs of the thread, if it was counted. The next run reads it
            instead of all earlier records.
    """

    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    seconds: float = 0.0
    unpriced_calls: int = 0
    ledger: tuple[LedgerLine, ...] = ()
    children: Mapping[str, Used] = field(default_factory=dict[str, "Used"])
    thread: Used | None = None

    @property
    def tokens(self) -> int:
        """Total number of tokens, counted the same way as `Limits.tokens`."""
        return self.usage.total

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON data."""
        data: dict[str, JsonValue] = {
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "usage": self.usage.to_json(),
            "cost": self.cost,
            "seconds": self.seconds,
            "unpriced_calls": self.unpriced_calls,
            "ledger": [line.to_json() for line in self.ledger],
        }
        if self.children:
            data["children"] = {ns: one.to_json() for ns, one in self.children.items()}
        if self.thread is not None:
            data["thread"] = self.thread.to_json()
        return data

    def __add__(self, other: Used) -> Used:
        """Return the total usage of two runs, without a ledger."""
        return Used(
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.usage + other.usage,
            self.cost + other.cost,
            self.seconds + other.seconds,
            self.unpriced_calls + other.unpriced_calls,
        )

    @staticmethod
    def from_json(data: Mapping[str, JsonValue]) -> Used:
        """Return the usage from the data of `to_json`; missing keys count as unused.

        Raises:
            ValueError: The data has another shape.
        """
        return _used_adapter().validate_python(data)


@lru_cache(maxsize=256)
def budgets_of(limits: Limits) -> Sequence[tuple[Budget, float]]:
    """Return all budgets that are set, as name and limit."""
    bounds: Mapping[Budget, float | None] = {name: getattr(limits, name) for name in BUDGETS}
    return [(name, bound) for name, bound in bounds.items() if bound is not None]


@cache
def _used_adapter() -> TypeAdapter[Used]:
    """Return the parser for `Used`; creating it takes milliseconds, so it is cached."""
    return TypeAdapter(Used)


@record
class Remaining:
    """Remaining budget of a run tree, in the units of `Limits`; None where there is no limit."""

    model_calls: int
    tool_calls: int
    tokens: int | None
    cost: float | None
    seconds: float | None


def counted(limit: LimitName, allowed: float, used: float) -> str:
    """Return a text about a limit and its usage: `5 model calls allowed, 3 used`."""
    return f"{shown(allowed)} {UNITS[limit]} allowed, {shown(used)} used"


def shown(amount: float) -> str:
    """Return an amount with thousands separators, and fractions rounded to four digits."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"


def limit_met(limit: LimitName, allowed: float, used: float, note: str = "") -> LimitReached:
    """Return the error for a run that has reached a limit."""
    instead = "in a new thread" if limit.startswith(THREAD) else "with a smaller goal"
    return LimitReached(
        limit,
        f"{counted(limit, allowed, used)}{note}. What was done is kept. Continue with a "
        f"higher limit {limit}, or {instead}.",
    )


def check_measurable(
    limits: Limits, model: str | None, silent: str | None, unpriced: int, earlier: int
) -> None:
    """Refuse a model call if limits on tokens or cost could not be enforced.

    Args:
        limits: The limits.
        model: Full name of the model to call; None if it is unknown.
        silent: A model that did not report its tokens; None if all did.
        unpriced: Number of calls of the run with unknown cost.
        earlier: Number of calls of earlier runs of the thread with unknown cost.

    Raises:
        UnknownPrice: There is a cost limit, and a price is unknown.
        UnknownUsage: There is a token or cost limit, and the tokens of a call are unknown.
    """
    costs = limits.cost is not None or limits.thread_cost is not None
    tokens = limits.tokens is not None or limits.thread_tokens is not None
    if silent is not None and (tokens or costs):
        raise UnknownUsage(
            f"no model was called: {silent} does not report its tokens, so a limit on "
            "tokens or cost cannot be kept. Use a limit on model_calls or seconds instead."
        )
    if not costs:
        return
    if model is not None and price_of(model, limits.prices) is None:
        raise UnknownPrice(
            f"no model was called: the price of {model} is not known, so the cost limit "
            f"cannot be kept. Give its price, Limits(prices={{{model!r}: Price(input=…, "
            "output=…)}) in US dollars per million tokens, or use a limit on tokens."
        )
    earlier = 0 if limits.thread_cost is None else earlier
    if unpriced or earlier:
        raise UnknownPrice(
            f"no model was called: the cost of {unpriced + earlier} earlier model "
            f"calls of this {'thread' if earlier else 'run'} is not known, so the cost limit "
            "cannot be kept. Use a limit on tokens."
        )
