"""Globs over names, such as those of tools and models, and over paths.

The library behind them takes a fiftieth of a server's start to import, and most names are plain.

Comparing a path cannot be made to take long. The library lets each `**` try every place, so with
five of them in a pattern a deep path takes minutes. What stands between two `**` is a fixed number
of names: the first place where it fits leaves the most for the rest, so no other one has to be
tried.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fits", "settled"]

_WILD = frozenset("*?[\\")


def fits(name: str, patterns: str | Sequence[str]) -> bool:
    """Whether a name fits a glob, or one of several. Case counts."""
    return any(_fits(name, one) for one in ([patterns] if isinstance(patterns, str) else patterns))


def _fits(name: str, pattern: str) -> bool:
    start = pattern.removesuffix("*")
    if not start or _WILD & set(start):
        from wcmatch import fnmatch

        return fnmatch.fnmatch(name, pattern, flags=fnmatch.CASE)
    return name == pattern if start == pattern else name.startswith(start)


_ANY_DEPTH = r"(?:(?!(?:[/]|^)(?:\.{1,2})(?:$|[/])).)*?"
"""What `wcmatch` writes for `**` with `GLOBSTAR`, `DOTGLOB` and `FORCEUNIX`."""


def settled(expression: str) -> str:
    """Return an expression of `wcmatch.glob.translate` that tries no `**` twice."""
    first, *others = expression.split(_ANY_DEPTH)
    if len(others) < 2:
        return expression
    *middle, last = others
    return "".join([first, *(f"(?>{_ANY_DEPTH}{one})" for one in middle), _ANY_DEPTH, last])
