"""Helpers that any room may use and that know none of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module

__all__ = ["count_of", "importable"]


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 run`, `2,000 runs`.

    Args:
        number: How many.
        thing: One of them; its plural ends in `s`.
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def importable(package: str, names: Sequence[str], optional: Collection[str]) -> list[str]:
    """Return the names that `from package import *` gives: all whose extra is installed.

    Asked for by its name, one that is left out raises the `ImportError` that says what to install.

    Args:
        package: The package; it loads a name when it is asked for.
        names: Its public names.
        optional: Those of them that need an extra.
    """
    return [one for one in names if one not in optional or _is_there(package, one)]


def _is_there(package: str, name: str) -> bool:
    try:
        getattr(import_module(package), name)
    except ImportError:
        return False
    return True
