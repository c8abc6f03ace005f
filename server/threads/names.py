"""Threads by id or by name, as callers and operators say them."""

from __future__ import annotations

from ...harness.checkpoint.base import Checkpointer
from ...harness.errors import UnknownThread
from ..auth.caller import JournalReader, current_caller
from ..auth.thread_names import named_as, named_thread

__all__ = ["id_among_all", "id_of_thread"]


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
