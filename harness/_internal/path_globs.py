"""Globs over paths whose comparison cannot be made to take long.

The library behind them lets each `**` try every place, so with five of them in a pattern a deep
path takes minutes. What stands between two `**` is a fixed number of names: the first place where
it fits leaves the most for the rest, so no other one has to be tried.
"""

from __future__ import annotations

__all__ = ["settled"]

_ANY_DEPTH = r"(?:(?!(?:[/]|^)(?:\.{1,2})(?:$|[/])).)*?"
"""What `wcmatch` writes for `**` with `GLOBSTAR`, `DOTGLOB` and `FORCEUNIX`."""


def settled(expression: str) -> str:
    """Return an expression of `wcmatch.glob.translate` that tries no `**` twice."""
    first, *others = expression.split(_ANY_DEPTH)
    if len(others) < 2:
        return expression
    *middle, last = others
    return "".join([first, *(f"(?>{_ANY_DEPTH}{one})" for one in middle), _ANY_DEPTH, last])
