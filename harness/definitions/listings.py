"""Listings: what a registry found when it last read a directory of definitions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .sources import FileStat, Found, Source

__all__ = ["Entry", "Listing", "are_plain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What an entry of a source was when it was looked at.

    Attributes:
        found: The definition file it stands for, if it does.
        signature: What that is made from.
        settled: Whether an equal signature means that nothing changed.
        item: The definition, or the last good one.
        name: Its name.
        digest: Of all it holds.
        error: What is wrong, and the path of that.
        elsewhere: Whether a change of another path may concern it.
    """

    found: Found | None = None
    signature: tuple[FileStat, ...] = ()
    settled: bool = False
    item: T | None = None
    name: str = ""
    digest: str = ""
    error: tuple[str, str] | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """What a source held when it was looked at: its entries by name, and what is wrong with it."""

    source: Source
    entries: Mapping[str, Entry[T]]
    error: str | None = None


def are_plain(names: Set[str | None], listing: Listing[Any]) -> bool:
    """Whether what was told of these entries is about them, and not about where a link led."""
    for name in names:
        if not name:
            continue
        entry = listing.entries.get(name)
        if entry is not None and entry.elsewhere:
            return False
        if entry is None and not os.path.lexists(listing.source.directory / name):
            return False  # a link come and gone, or a name that is not the one it has here
    return True
