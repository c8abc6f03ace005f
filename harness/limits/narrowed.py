"""Two limits as one: the lower bound of each kind."""

from __future__ import annotations

from dataclasses import fields

from .records import Limits

__all__ = ["narrowed"]


def narrowed(limits: Limits, other: Limits | None) -> Limits:
    """Return the lower bound of each kind; None is no bound.

    Args:
        limits: Some limits. Its prices go before the other's.
        other: Further ones, or None for none.
    """
    if other is None:
        return limits
    lower: dict[str, object] = {"prices": {**other.prices, **limits.prices}}
    for name in (one.name for one in fields(Limits) if one.name not in lower):
        bounds = [one for one in (getattr(limits, name), getattr(other, name)) if one is not None]
        lower[name] = min(bounds, default=None)
    return Limits(**lower)  # pyright: ignore[reportArgumentType]
