"""Token prices: list prices by model, and prices that you give yourself.

List prices come from the `genai-prices` package, so a newer version of that knows newer models. An
operator's own table (`Limits.prices`) goes before it. A model that neither knows has no price:
nothing is guessed from its relatives, since a point release may cost a fraction of the one before.
Not in list prices: batch, fast-mode and regional rates, and what server-side tools cost per use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from .._internal.records import record
from ..errors import HarnessError
from ..messages.message import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices

__all__ = ["SCRIPT", "UNLISTED", "Price", "UnknownPrice", "price_of", "window_of"]

_MILLION = 1_000_000
_Listed: TypeAlias = "Decimal | TieredPrices | None"


class UnknownPrice(HarnessError):
    """A cost limit cannot be kept, because the price of a model is not known."""


@record
class Price:
    """Prices of one model in US dollars per million tokens.

    Attributes:
        input: Tokens that neither came from nor went to the provider's prompt cache.
        output: Tokens of answers, thinking included.
        cache_read: Tokens from the prompt cache; as `input` by default.
        cache_write: Tokens that go to the prompt cache; as `input` by default. List prices are
            for entries that live five minutes.
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


_FABLE_5 = Price(10, 50, 1, 12.5)
_FABLE_5_1 = Price(10, 50, 0.25, 12.5)

UNLISTED: Mapping[str, Price] = MappingProxyType(
    {"claude-mythos-5-1": _FABLE_5_1, "claude-mythos-5": _FABLE_5}
)
"""Published prices that `genai-prices` does not have, by the beginning of a model's id."""

SCRIPT = "scripted:"
"""How names of scripted models begin. They are free."""
_FREE = Price(0, 0)

_LISTERS = {
    "openai-responses": "openai",
    "google-cloud": "google",
    "bedrock": "aws",
    "anthropic-bedrock": "aws",
    "anthropic-vertex": "anthropic",
    "xai": "x-ai",
}
"""What the list calls a vendor, where it has another name for it."""

_OTHER_VERSION = re.compile(r"\d|[-.]\d{1,2}(?!\d)")
"""What makes an id that begins like a known one the id of another model: `-5` and then `-2`."""


def price_of(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of a model, or None if it is not known. Scripts are free.

    Args:
        model: Its name, such as `openai:gpt-5.4`; `anthropic:` may be left out.
        prices: One's own prices by the beginning of a model's name; they go before list prices.
            The longest beginning wins, and one that ends in a version covers dated snapshots of
            that version but no other version: `claude-opus-5` is not `claude-opus-5-5`.
    """
    own = _longest(model, prices or {})
    if own is None and model.startswith(SCRIPT):
        return _FREE
    return own or _listed(_bare(model)) or _longest(model, UNLISTED)


@lru_cache(maxsize=256)
def window_of(model: str) -> int | None:
    """Return the input tokens that a model accepts, if the list of models says so."""
    entry = _entry(_bare(model))
    return None if entry is None else entry.context_window


def _entry(name: str) -> ModelInfo | None:
    """Return what the list has of a model. The first one takes some 70 ms of a processor."""
    vendor, colon, model = name.partition(":")
    lister = _LISTERS.get(vendor, vendor) if colon else "anthropic"
    if not colon and not name.startswith("claude"):
        return None
    from genai_prices.data_snapshot import get_snapshot  # not before a model was called

    try:
        return get_snapshot().find_provider_model(model or name, None, lister, None)[1]
    except LookupError:
        return None


@lru_cache(maxsize=256)
def _listed(name: str) -> Price | None:
    model = _entry(name)
    if model is None:
        return None
    listed = model.get_prices(datetime.now(UTC))
    kinds = (listed.input_mtok, listed.output_mtok, listed.cache_read_mtok, listed.cache_write_mtok)
    starts = {tier.start for one in kinds for tier in getattr(one, "tiers", ())}
    longer: tuple[int, Price] | None = None
    for start in sorted(starts, reverse=True):
        longer = (start, _from(start, kinds, longer))
    return _from(0, kinds, longer)


def _from(prompt: int, kinds: Sequence[_Listed], longer: tuple[int, Price] | None) -> Price:
    """Return the price of calls whose prompt is at least this long."""
    entry, output, read, write = (_dollars(one, prompt) for one in kinds)
    return Price(entry or 0, output or 0, read, write, longer)


def _dollars(price: _Listed, prompt: int) -> float | None:
    if price is None or isinstance(price, Decimal):
        return None if price is None else float(price)
    tiers = [tier.price for tier in price.tiers if tier.start <= prompt]
    return float(tiers[-1] if tiers else price.base)


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
