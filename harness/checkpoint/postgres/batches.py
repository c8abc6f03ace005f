"""Postgres batches as rows, which are made before their transaction begins.

They lack data that only the transaction has: numbers, and facts about stored rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..._internal.records import record
from ..admission import unstorable
from ..base import Batch, Checkpoint, FileChange, Interrupt, Run, RunEvent, StoredWrite
from ..codec import SHARED_FROM, compress, digest_of, pack
from .database import Row
from .records import as_bytes, as_json, event_body, maybe_bytes

__all__ = ["EncodedBatch", "TaskRow", "packed", "shared_body"]


_REFUSED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors from values that the types of the records forbid."""


@record
class TaskRow:
    """A task's writes as a body, and the digests of its large values."""

    step: bytes
    task_id: bytes
    index: int
    body: bytes
    digests: Sequence[bytes]


@dataclass(slots=True, eq=False)
class EncodedBatch:
    """A batch as rows.

    Attributes:
        batch: The batch.
        blobs: Bodies of its large values, by digest.
        tasks: Its tasks, by step and id; of tasks with equal ids, the first.
        checkpoints: Id, parent's id, and the columns that follow `parent`.
        snapshots: Checkpoint, schema and body.
        runs: By id, without number and thread.
        interrupts: By id, without thread and number.
        answers: Id and answer.
        changes: Run, path, content before or its digest, and digest after.
        events: By run: how many, time of the newest, and body.
    """

    batch: Batch
    blobs: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    tasks: dict[tuple[str, str], TaskRow] = field(default_factory=dict[tuple[str, str], TaskRow])
    checkpoints: list[Row] = field(default_factory=list[Row])
    snapshots: list[Row] = field(default_factory=list[Row])
    runs: dict[bytes, Row] = field(default_factory=dict[bytes, Row])
    interrupts: dict[bytes, Row] = field(default_factory=dict[bytes, Row])
    answers: list[Row] = field(default_factory=list[Row])
    changes: list[Row] = field(default_factory=list[Row])
    events: dict[bytes, Row] = field(default_factory=dict[bytes, Row])

    @classmethod
    def of(cls, batch: Batch) -> EncodedBatch:
        """Return a batch as rows. Takes as long as compressing it.

        Raises:
            CheckpointError: The batch contains data that cannot be stored.
        """
        entry = cls(batch)
        try:
            entry._fill()
        except _REFUSED as error:
            raise unstorable(batch, error) from error
        return entry

    @property
    def thread_id(self) -> str:
        """The batch's thread."""
        return self.batch.thread_id

    def numbers(self) -> int:
        """Return the most numbers that its rows need."""
        batch = self.batch
        rows = len(self.tasks) + len(batch.checkpoints) + len(self.runs) + len(self.interrupts)
        return 2 + rows + len(self.changes) + len(self.events)

    def named_runs(self) -> set[bytes]:
        """Return the ids of the runs that it stores or is fenced by."""
        return {*self.runs, *(as_bytes(one.run_id) for one in self.batch.fences)}

    def idempotency_keys(self) -> list[bytes]:
        """Return the idempotency keys of its runs."""
        return [as_bytes(run.idempotency_key) for run in self.batch.runs if run.idempotency_key]

    def _fill(self) -> None:
        for task in self.batch.writes:
            step, name = as_bytes(task.step_id), as_bytes(task.task_id)
            if (task.step_id, task.task_id) not in self.tasks:
                body, digests = packed(task.writes, self.blobs)
                row = TaskRow(step, name, _whole(task.index), body, digests)
                self.tasks[task.step_id, task.task_id] = row
        self.checkpoints = [_checkpoint_row(one) for one in self.batch.checkpoints]
        self.snapshots = [
            (as_bytes(one.checkpoint_id), as_bytes(one.schema), compress(pack(one.writes, None)))
            for one in self.batch.snapshots
        ]
        self.runs = {as_bytes(run.id): _run_row(run) for run in self.batch.runs}
        self._fill_interrupts()
        self.answers = [(as_bytes(key), as_json(one)) for key, one in self.batch.answers.items()]
        self.changes = [self._change(one) for one in self.batch.file_changes]
        by_run: dict[str, list[RunEvent]] = {}
        for event in self.batch.events:
            by_run.setdefault(event.run_id, []).append(event)
        self.events = {
            as_bytes(run_id): (
                len(events),
                max(float(one.created_at) for one in events),
                event_body(events),
            )
            for run_id, events in by_run.items()
        }

    def _fill_interrupts(self) -> None:
        for asked in self.batch.interrupts:
            key, row = as_bytes(asked.id), _interrupt_row(asked)
            known = self.interrupts.get(key)
            if known is not None and known[-1]:
                row = (*row[:-2], *known[-2:])  # the first answer counts
            self.interrupts[key] = row

    def _change(self, change: FileChange) -> Row:
        body, digest = shared_body(change.before, self.blobs)
        path, after = as_bytes(change.path), maybe_bytes(change.after_digest)
        return as_bytes(change.run_id), path, body, digest, after


def _whole(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit into 8 bytes")
    return int(value)


def _checkpoint_row(made: Checkpoint) -> Row:
    return (
        *(as_bytes(made.id), maybe_bytes(made.parent_id), _whole(made.step)),
        *map(as_bytes, (made.source, made.author, made.next)),
        *(maybe_bytes(made.run_id), float(made.created_at)),
        *(as_bytes(made.summary), _whole(made.weight)),
    )


def packed(
    writes: Sequence[StoredWrite], blobs: dict[bytes, bytes]
) -> tuple[bytes, Sequence[bytes]]:
    """Return writes as a body, and the digests of their large values.

    Args:
        writes: The writes, in order.
        blobs: Gets the bodies of large values, by digest.
    """
    digests: list[bytes] = []

    def share(value: bytes) -> int:
        digest = digest_of(value)
        if digest not in blobs:
            blobs[digest] = compress(value)
        digests.append(digest)
        return len(digests) - 1

    return compress(pack(writes, share)), digests


def shared_body(
    content: bytes | None, blobs: dict[bytes, bytes]
) -> tuple[bytes | None, bytes | None]:
    """Return content as a body, or add the body to `blobs` and return its digest."""
    if content is None:
        return None, None
    if len(content) < SHARED_FROM:
        return compress(content), None
    digest = digest_of(content)
    blobs[digest] = compress(content)
    return None, digest


def _run_row(run: Run) -> Row:
    """Return the columns of a run, without its number and thread."""
    texts = (run.id, run.kind, run.agent, run.status, run.goal)
    maybe = (run.owner, run.answer, run.reason, run.idempotency_key)
    return (
        *map(as_bytes, texts),
        *map(maybe_bytes, maybe),
        *(float(run.created_at), float(run.updated_at), _whole(run.attempt)),
        *(as_bytes(run.used), maybe_bytes(run.base)),
    )


def _interrupt_row(asked: Interrupt) -> Row:
    """Return the columns of an interrupt, without its thread and number."""
    return (
        *map(as_bytes, (asked.id, asked.ns, asked.step_id, asked.run_id, asked.kind)),
        *(as_json(list(asked.path)), as_bytes(asked.message), as_json(asked.payload)),
        *(as_json(asked.answer_schema), _whole(asked.index), as_json(asked.answer)),
        bool(asked.answered),
    )
