"""Names of threads: what callers may say in place of an id.

The id of a named thread is made from its owner and its name, and ends with the name. So no table is
needed: for its caller, a name means the same thread in every call, on every replica, after a
restart; and another caller's thread of that name has another id.
"""

from __future__ import annotations

import re

from .caller import Caller

__all__ = ["NAMES", "NEW", "named_as", "named_thread"]

NEW = "new"
"""Stands for a thread that does not exist yet, so nothing can have that name."""

NAMES = "up to 48 letters, digits, - and _"
"""What names are, in words."""

_NAME = re.compile(r"(?!thr_|run_|new$)[a-z0-9][a-z0-9_-]{0,47}")
_NAMED = re.compile(r"thr_(?:[0-9a-f]{16}_)?[0-9a-f]{16}-([a-z0-9][a-z0-9_-]{0,47})")


def named_thread(caller: Caller, name: str) -> str | None:
    """Return the id of a caller's thread of some name; None if that is no name.

    Case makes no difference.
    """
    name = name.lower()
    return caller.fixed_thread(f"name {name}", name) if _NAME.fullmatch(name) else None


def named_as(thread_id: str) -> str:
    """Return the name in the id of a thread; empty if it has none."""
    found = _NAMED.fullmatch(thread_id)
    return "" if found is None else found[1]
