"""Commit buffer: decides what a run stores at once, and what can wait for the next commit.

A driven call promises nothing before its answer. Its accepted input is therefore held until
something else has to be stored (a file is about to change, a question is asked, the result is
there), and is written in the same transaction, before it. So nothing happens without its input in
the journal, and a call that only changes the thread costs one commit instead of two.

Only steps can wait, depending on the run's *durability*. A run's input, a question, a mark that a
call has begun, the old content of a file that changes, and the run's end are stored before anything
continues, together with all earlier steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

import anyio

from ..._internal.concurrency import LazyEvent
from ..._internal.records import changed
from ...checkpoint.base import Batch, Checkpointer, Fence, RunEvent
from ...errors import CheckpointError, StaleThread

__all__ = ["JOURNALS", "CommitBuffer", "Durability"]

Durability: TypeAlias = Literal["sync", "async", "exit"]
"""When a step is stored: `sync` before the next one begins, `async` while the next one works,
`exit` when the run pauses or ends, or when something that depends on it has to be stored.

`async` saves time, not writes: each step is stored separately while the next one works, so at most
one finished tool call can be lost. Steps are never grouped, because after a crash all calls of a
group would run again, even those that changed the outside world.

Steps that are not stored are lost if the process dies, and repeated when the run is resumed."""


class CommitBuffer:
    """Commits the batches of one run; durability `sync`.

    Attributes:
        stored: Whether any part of this run is in the journal.
        defers: Whether a step may wait, so that it may not be stored when `step` returns.

    Args:
        checkpointer: The journal.
        thread_id: The run's thread.
        fence: The attempt of the run, which its first commit begins; None for writes without a run.
    """

    defers = False

    def __init__(
        self, checkpointer: Checkpointer, thread_id: str, fence: Fence | None = None
    ) -> None:
        self.stored = False
        self._checkpointer = checkpointer
        self._fence = fence
        self._thread_id = thread_id
        self._held: Batch | None = None
        self._storing: LazyEvent | None = None
        self._events: list[RunEvent] = []

    def hold(self, batch: Batch) -> None:
        """Hold a batch until the next commit."""
        assert self._held is None
        self._held = self._with_events(batch)

    def note(self, event: RunEvent) -> None:
        """Hold an event; it is stored with the next batch."""
        self._events.append(event)

    async def commit(self, batch: Batch) -> None:
        """Store waiting batches, then this one, in one transaction if possible.

        Raises:
            StaleThread, CheckpointError: As for `Checkpointer.commit`.
        """
        batch = self._with_events(batch)
        while self._storing is not None:
            await self._storing.wait()
        if self._held is None or not await self._store_held(self._held, batch):
            await self._send(batch)

    async def _store_held(self, held: Batch, batch: Batch) -> bool:
        """Store held batches; return whether this batch was stored with them."""
        both = _joined(held, batch)
        self._storing = storing = LazyEvent()
        try:
            await self._send(held if both is None else both)
            self._held = None
        except StaleThread:
            # What it says did not happen. But nothing is stored without the input of the run.
            if self.stored:
                self._held = None
            raise
        finally:
            self._storing = None
            storing.set()
        return both is not None

    async def _send(self, batch: Batch) -> None:
        """Store a batch under the run's fence."""
        fence = self._fence
        if fence is not None:
            batch = changed(batch, fences=(*batch.fences, fence))
        await self._checkpointer.commit(batch)
        self.stored = True
        if fence is not None and fence.begins:
            self._fence = changed(fence, begins=False)

    step = commit
    """Store a step as soon as the durability requires; also raises errors of earlier steps."""

    async def settle(self) -> None:
        """Wait until every step is stored, which is required before reading the journal.

        Raises:
            StaleThread, CheckpointError: As for `commit`.
        """

    @asynccontextmanager
    async def carrying(self) -> AsyncGenerator[None]:
        """Surround the run's work; at the end of the block, everything is stored.

        Raises:
            StaleThread, CheckpointError: As for `commit`.
        """
        yield
        if self._events and self.stored:
            with anyio.CancelScope(shield=True):
                await self.commit(Batch(self._thread_id))

    def _with_events(self, batch: Batch) -> Batch:
        if not self._events:
            return batch
        events, self._events = self._events, []
        return changed(batch, events=events)


class _Waiting:
    """A waiting batch.

    Attributes:
        batch: The batch.
        error: Why it will never be stored.
    """

    __slots__ = ("batch", "error")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.error: Exception | None = None


class CommitAtExit(CommitBuffer):
    """Stores steps when the run pauses or ends; durability `exit`."""

    defers = True

    def __init__(
        self, checkpointer: Checkpointer, thread_id: str, fence: Fence | None = None
    ) -> None:
        super().__init__(checkpointer, thread_id, fence)
        self._turn = anyio.Lock()
        self._line: list[_Waiting] = []

    def hold(self, batch: Batch) -> None:
        """Hold a batch until something has to be stored at once."""
        self._line.append(_Waiting(self._with_events(batch)))

    async def commit(self, batch: Batch) -> None:
        """Store waiting batches, then this one; see `CommitBuffer.commit`."""
        waiting = _Waiting(self._with_events(batch))
        self._line.append(waiting)
        try:
            await self.settle()
        except CheckpointError:
            if waiting in self._line:  # its caller gets the error: it is not stored
                self._line.remove(waiting)
            raise
        if waiting.error is not None:  # another task has tried, and got the error
            raise waiting.error

    async def step(self, batch: Batch) -> None:
        """Hold a step until something has to be stored at once."""
        self.hold(batch)

    async def settle(self) -> None:
        """Store all steps; see `CommitBuffer.settle`.

        After a disk error they wait for the next attempt. If another process has changed the
        thread, they are dropped.
        """
        with anyio.CancelScope(shield=True):
            async with self._turn:
                line, self._line = self._line, []
                left = _together(line)
                try:
                    while left:
                        await self._send(left[0][0])
                        del left[0]
                except BaseException as error:
                    lost = [one for _, those in left for one in those]
                    if isinstance(error, CheckpointError) and not isinstance(error, StaleThread):
                        self._line = [*lost, *self._line]
                    else:
                        told = error if isinstance(error, Exception) else _cut_off()
                        for one in lost:
                            one.error = told
                    raise

    @asynccontextmanager
    async def carrying(self) -> AsyncGenerator[None]:
        """Surround the run's work; see `CommitBuffer.carrying`."""
        async with super().carrying():
            try:
                yield
            finally:
                if self.stored:  # else nothing has happened yet, and nothing shall have
                    await self.settle()


class OverlappingCommits(CommitAtExit):
    """Stores steps while the run works on; durability `async`."""

    def __init__(
        self, checkpointer: Checkpointer, thread_id: str, fence: Fence | None = None
    ) -> None:
        super().__init__(checkpointer, thread_id, fence)
        self._wake = anyio.Event()
        self._done = False
        self._error: Exception | None = None

    async def step(self, batch: Batch) -> None:
        """Store a step in the background; waits while the previous step is being stored."""
        await self.settle()
        self.hold(batch)
        self._wake.set()

    async def settle(self) -> None:
        """Store all steps; see `CommitBuffer.settle`. Raises an error of the background once."""
        await super().settle()
        # Steps that waited after a disk error are stored now.
        error, self._error = self._error, None
        if error is not None:
            raise error

    @asynccontextmanager
    async def carrying(self) -> AsyncGenerator[None]:
        """Surround the run's work; see `CommitBuffer.carrying`."""
        raised: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._store_steps)
            try:
                async with super().carrying():
                    yield
            except Exception as error:  # noqa: BLE001 - a task group would wrap it; raised below
                raised = error
            finally:
                self._done = True
                self._wake.set()
        if raised is not None:
            raise raised

    async def _store_steps(self) -> None:
        while not self._done:
            await self._wake.wait()
            self._wake = anyio.Event()
            try:
                await super().settle()
            except Exception as error:  # noqa: BLE001 - raised by whoever settles next
                if isinstance(error, StaleThread) or not isinstance(error, CheckpointError):
                    self._error = error  # otherwise it waits for the next attempt


JOURNALS: Mapping[Durability, Callable[[Checkpointer, str, Fence], CommitBuffer]] = {
    "sync": CommitBuffer,
    "async": OverlappingCommits,
    "exit": CommitAtExit,
}
"""The class that commits the batches of a run, by durability."""


def _cut_off() -> CheckpointError:
    return CheckpointError(
        "a commit was cut off; whether it was stored is not known. Load the thread, and continue "
        "from "
        "what is there."
    )


def _together(line: Sequence[_Waiting]) -> list[tuple[Batch, list[_Waiting]]]:
    """Combine waiting batches into as few as possible, each with its parts."""
    made: list[tuple[Batch, list[_Waiting]]] = []
    for one in line:
        both = _joined(made[-1][0], one.batch) if made else None
        if both is None:
            made.append((one.batch, [one]))
        else:
            made[-1] = (both, [*made[-1][1], one])
    return made


def _joined(first: Batch, second: Batch) -> Batch | None:
    """Combine two batches, or return None if they belong to different namespaces."""
    if first.ns != second.ns and (second.writes or second.checkpoints):
        return None
    renewed = {run.id for run in second.runs}
    return changed(
        first,
        writes=[*first.writes, *second.writes],
        checkpoints=[*first.checkpoints, *second.checkpoints],
        runs=[*(run for run in first.runs if run.id not in renewed), *second.runs],
        interrupts=[*first.interrupts, *second.interrupts],
        answers={**first.answers, **second.answers},
        file_changes=[*first.file_changes, *second.file_changes],
        snapshots=[*first.snapshots, *second.snapshots],
        events=[*first.events, *second.events],
        fences=[*first.fences, *second.fences],
        synced=first.synced or second.synced,
    )
