"""Token prices: list prices by model, and your own prices.

List prices come from the `genai-prices` package; update it to get newer models. Your own table
(`Limits.prices`) takes precedence. A model in neither table has no price. Prices of related models
are not used, because a point release may cost a fraction of its predecessor. List prices do not
cover batch, fast-mode and regional rates, or fees for server-side tools.
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
    """A cost limit cannot be enforced, because the price of a model is unknown."""


@record
class Price:
    """Prices of one model in US dollars per million tokens.

    Attributes:
        input: Price of input tokens that are neither read from nor written to the prompt cache.
        output: Price of output tokens, thinking included.
        cache_read: Price of tokens read from the prompt cache; by default the same as `input`.
        cache_write: Price of tokens written to the prompt cache; by default the same as `input`.
            List prices are for entries with a lifetime of five minutes.
        long_prompt: A number of prompt tokens (cached ones included), and the price of the whole
            call if its prompt is longer.

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
        """Return the cost of one model call in US dollars."""
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
"""Published prices that `genai-prices` lacks, by prefix of the model's id."""

SCRIPT = "scripted:"
"""Prefix of the names of scripted models, which are free."""
_FREE = Price(0, 0)

_LISTERS = {
    "openai-responses": "openai",
    "google-cloud": "google",
    "bedrock": "aws",
    "anthropic-bedrock": "aws",
    "anthropic-vertex": "anthropic",
    "xai": "x-ai",
}
"""Provider names in `genai-prices`, where they differ from ours."""

_OTHER_VERSION = re.compile(r"\d|[-.]\d{1,2}(?!\d)")
"""A suffix of a known id that makes it another version: `claude-opus-5` and then `-5`."""


def price_of(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of a model, or None if it is not known. Scripts are free.

    Args:
        model: Name of the model, such as `openai:gpt-5.4`; `anthropic:` may be left out.
        prices: Your own prices by prefix of the model's name; they take precedence over list
            prices. The longest prefix wins. A prefix that ends in a version covers dated
            snapshots of that version but no other version: `claude-opus-5` does not cover
            `claude-opus-5-5`.
    """
    own = _longest(model, prices or {})
    if own is None and model.startswith(SCRIPT):
        return _FREE
    return own or _listed(_bare(model)) or _longest(model, UNLISTED)


@lru_cache(maxsize=256)
def window_of(model: str) -> int | None:
    """Return the maximum number of input tokens of a model, or None if it is unknown."""
    entry = _entry(_bare(model))
    return None if entry is None else entry.context_window


def _entry(name: str) -> ModelInfo | None:
    """Return the `genai-prices` entry of a model. The first call takes about 70 ms CPU time."""
    vendor, colon, model = name.partition(":")
    lister = _LISTERS.get(vendor, vendor) if colon else "anthropic"
    if not colon and not name.startswith("claude"):
        return None
    from genai_prices.data_snapshot import get_snapshot  # slow to import

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
    """Return the price of calls with a prompt of at least this many tokens."""
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
