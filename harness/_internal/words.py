"""Words of messages."""

from __future__ import annotations

__all__ = ["count_of"]


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 run`, `2,000 runs`.

    Args:
        number: How many.
        thing: One of them; its plural ends in `s`.
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
