"""Names of threads: what callers may say in place of an id.

The id of a named thread is made from its owner and its name, and ends with the name. So no table is
needed: for its caller, a name means the same thread in every call, on every replica, after a
restart; and another caller's thread of that name has another id.
"""

from __future__ import annotations

import re

from ...harness.checkpoint.base import Checkpointer
from ...harness.errors import UnknownThread
from .caller import Caller, JournalReader, current_caller

__all__ = ["NAMES", "NEW", "id_among_all", "id_of_thread"]

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


async def id_among_all(journal: Checkpointer, said: str) -> str:
    """Return the id of anybody's thread that an operator says by its id or by its name.

    Args:
        journal: With everybody's threads.
        said: An id or a name; of the local user's threads, and of the 1,000 changed last.

    Raises:
        UnknownThread: Threads of several callers have that name.
    """
    local = await id_of_thread(journal, said)
    if local == said or await journal.history(local, limit=1):
        return local
    ids = [row.thread_id for row in await journal.threads(limit=1_000)]
    found = [one for one in ids if named_as(one) == said.lower()]
    if len(found) > 1:
        raise UnknownThread(
            f"{len(found)} users have a thread {said!r}: {', '.join(found)}. Nothing was done. Say "
            "the id of one."
        )
    return found[0] if found else said
