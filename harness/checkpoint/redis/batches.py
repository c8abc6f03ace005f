"""Redis batches: encodes a batch for the script, and decodes its refusals."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from typing import Any

from ...errors import CheckpointError, NewerDatabase
from ..admission import check_checkpoint, late_write, run_elsewhere, unknown_snapshot, unstorable
from ..base import Batch, EventLimits
from ..codec import compress
from .records import (
    change_row,
    checkpoint_row,
    event_row,
    interrupt_row,
    json_bytes,
    run_row,
)
from .scripts import Argument
from .tasks import (
    Blobs,
    entry_of,
    field_of,
    maybe,
    snapshot_body,
    thread_key,
)

__all__ = ["VERSION", "batch_arguments", "newer", "refusal"]

VERSION = 1
"""Of the layout that `scripts` describes."""

_UNFIT = (ValueError, TypeError, OverflowError, RecursionError, struct.error)
_MOST_BYTES = 500_000_000
"""A little less than Redis takes as one value."""


def batch_arguments(prefix: str, batch: Batch, limits: EventLimits) -> list[Argument]:
    """Return the arguments of the script that commits a batch.

    Raises:
        CheckpointError: Something in it cannot be stored.
    """
    try:
        arguments = _arguments(prefix, batch, limits)
    except _UNFIT as error:
        raise unstorable(batch, error) from error
    size = sum(len(one) for one in arguments if isinstance(one, bytes))
    if size > _MOST_BYTES:
        raise CheckpointError(
            f"a batch of thread {batch.thread_id!r} has {size:,} bytes, and Redis takes at most "
            f"{_MOST_BYTES:,} at once. Nothing was stored; commit it in parts."
        )
    return arguments


def refusal(batch: Batch, reply: Sequence[Any]) -> CheckpointError:
    """Return the error for what the script answered instead of `stored`."""
    match reply:
        case [b"late", bytes(step), bytes(task)]:
            return late_write(batch.thread_id, step.decode(), task.decode())
        case [b"snapshot", int(place)]:
            return unknown_snapshot(batch.thread_id, batch.snapshots[place])
        case [b"run", bytes(run_id)]:
            return run_elsewhere(run_id.decode())
        case [b"version", bytes(version)]:
            return newer("the journal", version)
        case [b"refused", int(place), exists, grows, on_head]:
            try:
                check_checkpoint(
                    batch.checkpoints[place],
                    exists=bool(exists),
                    parent_exists=bool(grows),
                    parent_is_head=bool(on_head),
                    imported=batch.imported,
                )
            except CheckpointError as error:
                return error
        case _:
            pass
    return CheckpointError(f"the server answered a commit with {reply!r:.80}; look, then go on.")


def newer(place: str, version: bytes) -> CheckpointError:
    """Return the error for a journal of another version."""
    if version.isdigit() and int(version[:18]) > VERSION:
        return NewerDatabase(
            f"{place} has version {int(version[:18])}, and this program knows versions up to "
            f"{VERSION}. It was not touched; update deep-agent-mcp, or use another prefix."
        )
    return CheckpointError(
        f"{place} has no version that a journal has: {version!r:.40}. It was not touched; use "
        f"another prefix."
    )


def _arguments(prefix: str, batch: Batch, limits: EventLimits) -> list[Argument]:
    blobs: Blobs = {}
    parts: list[list[Argument]] = [
        _tasks(batch, blobs),
        _checkpoints(batch),
        _counted([(one.checkpoint_id, one.schema, snapshot_body(one)) for one in batch.snapshots]),
        _counted(
            [(run.id, run.status, maybe(run.idempotency_key), run_row(run)) for run in batch.runs]
        ),
        _interrupts(batch),
        _counted([(asked, json_bytes(answer)) for asked, answer in batch.answers.items()]),
        _changes(batch, blobs),
        _events(batch),
    ]
    before = time.time() - limits.seconds
    head: list[Argument] = [prefix, VERSION, thread_key(batch.thread_id), batch.thread_id]
    head += [batch.ns, int(batch.imported), max(limits.per_run, 1), repr(before)]
    shared = [(digest, compress(value)) for digest, value in blobs.items()]
    arguments = [*head, *_counted(shared), *(one for part in parts for one in part)]
    return [one.encode() if isinstance(one, str) else one for one in arguments]


def _counted(rows: Sequence[tuple[Argument, ...]]) -> list[Argument]:
    return [len(rows), *(one for row in rows for one in row)]


def _tasks(batch: Batch, blobs: Blobs) -> list[Argument]:
    rows: list[tuple[Argument, ...]] = []
    for task in batch.writes:
        entry, held = entry_of(task)
        blobs.update(held)
        rows.append((task.step_id, task.task_id, entry, len(held), *held))
    return _counted(rows)


def _checkpoints(batch: Batch) -> list[Argument]:
    return _counted(
        [
            (
                *(new.id, maybe(new.parent_id), int(new.source in ("input", "loop"))),
                *(maybe(new.run_id), checkpoint_row(new)),
            )
            for new in batch.checkpoints
        ]
    )


def _interrupts(batch: Batch) -> list[Argument]:
    return _counted(
        [
            (
                *(asked.id, field_of(asked.ns, asked.step_id), asked.run_id, interrupt_row(asked)),
                b"+" + json_bytes(asked.answer) if asked.answered else b"",
            )
            for asked in batch.interrupts
        ]
    )


def _changes(batch: Batch, blobs: Blobs) -> list[Argument]:
    rows: list[tuple[Argument, ...]] = []
    for change in batch.file_changes:
        record, held = change_row(change)
        blobs.update(held)
        rows.append((len(held), *held, record))
    return _counted(rows)


def _events(batch: Batch) -> list[Argument]:
    for event in batch.events:
        if not math.isfinite(event.created_at):
            raise ValueError(f"an event of run {event.run_id} has no time")
    return _counted(
        [(event.run_id, repr(float(event.created_at)), event_row(event)) for event in batch.events]
    )
