"""Globs over names, such as those of tools and models.

The library behind them takes a fiftieth of a server's start to import, and most names are plain.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fits"]

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
