"""A journal that tells the other replicas of each commit, and counts those that were refused."""

from __future__ import annotations

from collections.abc import Callable

from ...harness.checkpoint.base import Batch, Checkpointer
from ...harness.errors import Superseded

__all__ = ["AnnouncedCheckpointer"]


class AnnouncedCheckpointer:
    """A `Checkpointer` that calls a function after each commit. Stand it outermost.

    Args:
        journal: Where it is stored.
        stored: Given each batch that was stored; must not block.

    Attributes:
        superseded: How many commits were refused because another server carries the run.
    """

    def __init__(self, journal: Checkpointer, stored: Callable[[Batch], None]) -> None:
        self._journal = journal
        self._stored = stored
        self.superseded = 0
        self.load = journal.load
        self.history = journal.history
        self.namespaces = journal.namespaces
        self.threads = journal.threads
        self.run = journal.run
        self.find_runs = journal.find_runs
        self.interrupts = journal.interrupts
        self.file_changes = journal.file_changes
        self.events = journal.events
        self.delete_thread = journal.delete_thread
        self.copy_thread = journal.copy_thread
        self.prune = journal.prune
        self.delete_for_runs = journal.delete_for_runs
        self.thread_size = journal.thread_size
        self.rewrite = journal.rewrite
        self.vacuum = journal.vacuum
        self.close = journal.close

    async def commit(self, batch: Batch) -> None:
        """Store a batch; see `Checkpointer.commit`."""
        try:
            await self._journal.commit(batch)
        except Superseded:
            self.superseded += 1
            raise
        self._stored(batch)
