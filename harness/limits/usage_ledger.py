"""Usage ledger: tokens by agent and model, for a whole run tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from pydantic import JsonValue

from .._internal.records import changed, record
from ..messages.message import Usage

__all__ = ["Ledger", "LedgerLine"]


@record
class LedgerLine:
    """What one agent has used of one model.

    Attributes:
        agent: Names of the agents from the root to it, joined by `/`.
        model: Full name of the model that answered.
        calls: Its answers.
        usage: Their tokens, as far as the model said.
        cost: US dollars of the answers whose price is known.
    """

    agent: str
    model: str
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0

    @property
    def cache_hit_rate(self) -> float:
        """Part of the prompt tokens that came from the provider's cache; 0 without any."""
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
    """The lines of one run tree.

    Args:
        lines: What it had used before.
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
    def lines(self) -> Sequence[LedgerLine]:
        """All lines, in the order in which they began."""
        return tuple(self._lines.values())
