"""Names of threads: what callers may say in place of an id.

The id of a named thread is made from its owner and its name, and ends with the name. So no table is
needed: for its caller, a name means the same thread in every call, on every replica, after a
restart; and another caller's thread of that name has another id.
"""

from __future__ import annotations

import re

from ..auth.caller import Caller, JournalReader, current_caller

__all__ = ["NAMES", "NEW", "id_of_thread", "named_thread"]

NEW = "new"
"""Stands for a thread that does not exist yet, so nothing can have that name."""

NAMES = "up to 48 letters, digits, - and _"
"""What names are, in words."""

_NAME = re.compile(r"(?!thr_|run_|new$)[a-z0-9][a-z0-9_-]{0,47}")


async def id_of_thread(journal: JournalReader, said: str) -> str:
    """Return the id of a thread that the caller says by its id or by its name.

    Ids are returned as they are, and so is what is neither: it is the id of no thread. Threads that
    programs have made may have any id, which goes before a name.

    Args:
        journal: Where the caller's threads are.
        said: An id or a name; case makes no difference in a name.
    """
    named = named_thread(current_caller.get(), said)
    if named is None or await journal.history(said, limit=1):
        return said
    return named


def named_thread(caller: Caller, name: str) -> str | None:
    """Return the id of a caller's thread of some name; None if that is no name."""
    name = name.lower()
    return caller.fixed_thread(f"name {name}", name) if _NAME.fullmatch(name) else None
