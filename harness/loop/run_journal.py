"""The journal as one run writes to it: the input of a driven call may wait for the first act.

A driven call has nobody to promise anything to before its answer. Its accepted input is therefore
held until something else is to be stored (a file is about to change, a question is asked, the
result is there) and goes to disk in the same transaction, before it. Nothing happens without its
input in the journal, and a call that only touches the thread costs one commit instead of two.
"""

from __future__ import annotations

from dataclasses import replace

from harness.checkpoint.base import Batch, Checkpointer

__all__ = ["RunJournal"]


class RunJournal:
    """Commits the batches of one run.

    Attributes:
        stored: Whether anything of this run is in the journal.
    """

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.stored = False
        self._checkpointer = checkpointer
        self._held: Batch | None = None

    def hold(self, batch: Batch) -> None:
        """Keep a batch back until the next commit."""
        assert self._held is None
        self._held = batch

    async def commit(self, batch: Batch) -> None:
        """Store what is held, then the batch, in one transaction if they allow it.

        Raises:
            StaleThread, CheckpointError: As for `Checkpointer.commit`.
        """
        held, self._held = self._held, None
        if held is not None:
            joined = _joined(held, batch)
            if joined is not None:
                batch = joined
            else:
                await self._checkpointer.commit(held)
        await self._checkpointer.commit(batch)
        self.stored = True


def _joined(first: Batch, second: Batch) -> Batch | None:
    """Return both as one batch, or None when they belong to different namespaces."""
    if first.ns != second.ns and (second.writes or second.checkpoints):
        return None
    renewed = {run.id for run in second.runs}
    return replace(
        first,
        writes=[*first.writes, *second.writes],
        checkpoints=[*first.checkpoints, *second.checkpoints],
        runs=[*(run for run in first.runs if run.id not in renewed), *second.runs],
        interrupts=[*first.interrupts, *second.interrupts],
        answers={**first.answers, **second.answers},
        file_changes=[*first.file_changes, *second.file_changes],
        snapshots=[*first.snapshots, *second.snapshots],
        synced=first.synced or second.synced,
    )
