"""What tokens cost: list prices by model, and how to give one's own.

Providers change prices and add models; the table below is a list of facts with a date, and an
operator's own table (`Limits.prices`) goes before it. A model that neither knows has no price:
nothing is guessed from its relatives, since a point release may cost a fraction of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from .._internal.records import record
from ..errors import HarnessError
from ..messages.message import Usage

__all__ = ["PRICES", "PRICES_AS_OF", "Price", "UnknownPrice", "price_of"]

_MILLION = 1_000_000


class UnknownPrice(HarnessError):
    """A cost limit cannot be kept, because the price of a model is not known."""


@record
class Price:
    """Prices of one model in US dollars per million tokens.

    Attributes:
        input: Tokens that neither came from nor went to the provider's prompt cache.
        output: Tokens of answers, thinking included.
        cache_read: Tokens from the prompt cache; as `input` by default.
        cache_write: Tokens that go to the prompt cache; as `input` by default. The table has the
            price for entries that live five minutes.
        long_prompt: Number of prompt tokens, cached ones included, beyond which the whole call
            costs another price, and that price.

    Raises:
        ValueError: A price is negative.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    long_prompt: tuple[int, Price] | None = None

    def __post_init__(self) -> None:
        for dollars in (self.input, self.output, self.cache_read, self.cache_write):
            if dollars is not None and not dollars >= 0:
                raise ValueError(f"a price is in US dollars and not negative; got {dollars}")

    def cost(self, usage: Usage) -> float:
        """Return what one model call costs, in US dollars."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        if self.long_prompt is not None and prompt > self.long_prompt[0]:
            return self.long_prompt[1].cost(usage)
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
        ) / _MILLION


PRICES_AS_OF = "2026-11-10"
"""When the table was last compared with the providers' published prices."""

_OPUS = Price(5, 25, 0.5, 6.25)
_SONNET_4 = Price(3, 15, 0.3, 3.75)
_FABLE_5 = Price(10, 50, 1, 12.5)
_FABLE_5_1 = Price(10, 50, 0.25, 12.5)
_LONG_HAIKU = Price(0.5, 2.5, 0.05, 0.625)

PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "claude-fable-5-2": Price(8, 40, 0.2, 10),
        "claude-fable-5-1": _FABLE_5_1,
        "claude-fable-5": _FABLE_5,
        "claude-mythos-5-1": _FABLE_5_1,
        "claude-mythos-5": _FABLE_5,
        "claude-opus-5-5": Price(4, 20, 0.2, 5),
        "claude-opus-5": _OPUS,
        "claude-opus-4-8": _OPUS,
        "claude-opus-4-7": _OPUS,
        "claude-opus-4-6": _OPUS,
        "claude-opus-4-5": _OPUS,
        "claude-sonnet-5-5": Price(2, 10, 0.1, 2.5),
        "claude-sonnet-5": Price(2, 10, 0.2, 2.5),
        "claude-sonnet-4-6": _SONNET_4,
        "claude-sonnet-4-5": _SONNET_4,
        "claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125, long_prompt=(100_000, _LONG_HAIKU)),
        "claude-haiku-4-5": Price(1, 5, 0.1, 1.25),
    }
)
"""List prices by the beginning of a model's id.

Not in them: batch, fast-mode and regional rates, and what server-side tools cost per use.
"""

_OTHER_VERSION = re.compile(r"\d|[-.]\d{1,2}(?!\d)")
"""What makes an id that begins like a known one the id of another model: `-5` and then `-2`."""


def price_of(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of a model, or None if it is not known.

    Args:
        model: Its name; a provider prefix `anthropic:` is ignored.
        prices: One's own prices by the beginning of a model's name; they go before the table.
            The longest beginning wins, and one that ends in a version covers dated snapshots of
            that version but no other version: `claude-opus-5` is not `claude-opus-5-5`.
    """
    return _longest(model, prices or {}) or _longest(model, PRICES)


def _longest(model: str, prices: Mapping[str, Price]) -> Price | None:
    name = _bare(model)
    fitting = [prefix for prefix in prices if _covers(_bare(prefix), name)]
    return prices[max(fitting, key=lambda prefix: len(_bare(prefix)))] if fitting else None


def _bare(name: str) -> str:
    return name.removeprefix("anthropic:")


def _covers(prefix: str, name: str) -> bool:
    if not name.startswith(prefix):
        return False
    return not (prefix[-1:].isdigit() and _OTHER_VERSION.match(name, len(prefix)))
