"""Keeping threads below a size, in any journal."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Checkpointer

__all__ = ["prune_to_size"]

_PAGE = 500


async def prune_to_size(journal: Checkpointer, max_bytes: int, thread_id: str | None = None) -> int:
    """Remove a thread's oldest checkpoints until its values take no more than so many bytes.

    About a quarter of what is left goes at a time, so a little more may go than must. States that
    stay are whole: a thread never becomes smaller than its newest state, with files that its
    last checkpoint can put back; of one that is larger than the limit nothing else stays.

    Args:
        journal: Where.
        max_bytes: For each thread, as `Checkpointer.thread_size` counts.
        thread_id: The thread; by default all.

    Returns:
        How many checkpoints were removed.

    Raises:
        ValueError: `max_bytes` is negative.
    """
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}, but it must be 0 or more; nothing was removed")
    names = [thread_id] if thread_id is not None else await _threads(journal)
    removed = 0
    for name in names:
        keep = await _longest(journal, name)
        while keep > 1 and await journal.thread_size(name) > max_bytes:
            keep = keep * 3 // 4
            removed += await journal.prune(name, keep_latest=keep)
    return removed


async def _threads(journal: Checkpointer) -> Sequence[str]:
    found: list[str] = []
    before: float | None = None
    while page := await journal.threads(limit=_PAGE, before=before):
        found += [one.thread_id for one in page]
        before = page[-1].updated_at
    return found


async def _longest(journal: Checkpointer, thread_id: str) -> int:
    """Return how many checkpoints the namespace has that has most."""
    most = 0
    for ns in await journal.namespaces(thread_id):
        count, before = 0, None
        while page := await journal.history(thread_id, ns, before=before, limit=_PAGE):
            count, before = count + len(page), page[-1].id
        most = max(most, count)
    return most
