"""Records in the Redis journal: rows of JSON, checked field by field when read.

A damaged or hostile row raises `ValueError`, and nothing named in it is looked up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, get_args

from pydantic import JsonValue

from ..base import (
    Checkpoint,
    FileChange,
    Interrupt,
    InterruptKind,
    Next,
    Run,
    RunEvent,
    RunStatus,
    Source,
    step_id,
)
from ..codec import SHARED_FROM, compress, decompress, digest_of
from .tasks import (
    DIGEST_BYTES,
    SIZE,
    Blobs,
    Held,
    maybe,
    number_at,
    place_of,
)

__all__ = [
    "change_digest",
    "change_row",
    "checkpoint_row",
    "event_row",
    "interrupt_row",
    "json_bytes",
    "read_change",
    "read_checkpoint",
    "read_event",
    "read_interrupt",
    "read_run",
    "run_row",
    "text",
    "whole",
]

_FOLLOWING = len(step_id(None))


def json_bytes(value: JsonValue) -> bytes:
    """Return a value as JSON, with whatever text there is in it.

    Raises:
        ValueError: It is not JSON, or a number in it is not finite.
        TypeError: It is not JSON.
    """
    dumped = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return dumped.encode(errors="surrogatepass")


_TEXT, _WHOLE, _TIME, _MAYBE = (str,), (int,), (float,), (str, type(None))
_CHECKPOINT = (*(_WHOLE, get_args(Source), _TEXT, get_args(Next), _MAYBE, _TIME, _TEXT, _WHOLE),)
_RUN = (
    *(("drive", "delegate"), _TEXT, get_args(RunStatus), _TEXT, _MAYBE, _MAYBE, _MAYBE, _MAYBE),
    *(_TIME, _TIME, _WHOLE, _TEXT, _MAYBE),
)
_INTERRUPT = (get_args(InterruptKind), (list,), _TEXT, (dict,), (dict,), _WHOLE)
_CHANGE = (_TEXT, _TEXT, _MAYBE, ("none", "here", "shared"))
_EVENT = (_TEXT, (list,), (dict,), _TIME)
"""Types or allowed values of each column."""


def checkpoint_row(made: Checkpoint) -> bytes:
    """Return a checkpoint's record: the step after it, its parent, the rest."""
    parent = maybe(made.parent_id)
    row = [made.step, made.source, made.author, made.next, made.run_id, float(made.created_at)]
    head = step_id(made.id).encode() + SIZE.pack(len(parent)) + parent
    return head + json_bytes([*row, made.summary, made.weight])


def read_checkpoint(thread_id: str, ns: str, name: bytes, seq: bytes, record: bytes) -> Checkpoint:
    """Return a checkpoint.

    Raises:
        ValueError: It is damaged.
    """
    checkpoint_id = name.decode()
    start = _FOLLOWING + SIZE.size
    end = start + number_at(record, _FOLLOWING)
    if len(record) < end or record[:_FOLLOWING] != step_id(checkpoint_id).encode():
        raise ValueError(f"checkpoint {checkpoint_id} is damaged")
    parent = record[start:end]
    *head, summary, weight = _row(record[end:], _CHECKPOINT, f"checkpoint {checkpoint_id}")
    return Checkpoint(
        *(thread_id, ns, checkpoint_id, parent[1:].decode() if parent else None, *head),
        seq=whole(seq),
        summary=summary,
        weight=weight,
    )


def run_row(run: Run) -> bytes:
    """Return a run's record."""
    row = [run.kind, run.agent, run.status, run.goal, run.owner, run.answer, run.reason]
    row += [run.idempotency_key, float(run.created_at), float(run.updated_at)]
    return compress(json_bytes([*row, run.attempt, run.used, run.base]))


def read_run(row: Sequence[bytes | None]) -> Run:
    """Return a run from its id, thread and record.

    Raises:
        ValueError: It is damaged.
    """
    run_id, thread_id, record = (text(row, place) for place in range(3))
    values = _row(decompress(record), _RUN, f"run {run_id.decode()}")
    return Run(run_id.decode(), thread_id.decode(), *values)


def interrupt_row(asked: Interrupt) -> bytes:
    """Return an interrupt's record, without its answer and its index fields, stored separately."""
    path: list[JsonValue] = [*asked.path]
    row = [asked.kind, path, asked.message, asked.payload, asked.answer_schema, asked.index]
    return compress(json_bytes([*row]))


def read_interrupt(thread_id: str, row: Sequence[bytes | None]) -> Interrupt:
    """Return an interrupt from its id, run, step, record and answer.

    Raises:
        ValueError: It is damaged.
    """
    name, run_id, place, record = (text(row, number) for number in range(4))
    answer = row[4]
    what = f"interrupt {name.decode()}"
    kind, path, *rest = _row(decompress(record), _INTERRUPT, what)
    ns, step = place_of(place)
    return Interrupt(
        *(name.decode(), thread_id, ns, step, run_id.decode(), kind, _names(path, what), *rest),
        answer=None if answer is None else json.loads(answer),
        answered=answer is not None,
    )


def change_row(change: FileChange) -> tuple[bytes, Blobs]:
    """Return a change's record, and its shared value."""
    blobs: Blobs = {}
    how, body = "none", b""
    if change.before is not None and len(change.before) >= SHARED_FROM:
        held = isinstance(change.before, Held)
        how, body = "shared", change.before[:DIGEST_BYTES] if held else digest_of(change.before)
        blobs[body] = change.before
    elif change.before is not None:
        how, body = "here", compress(change.before)
    row = json_bytes([change.run_id, change.path, change.after_digest, how])
    return SIZE.pack(len(row)) + row + body, blobs


def change_digest(record: bytes) -> bytes | None:
    """Return the digest of a change's shared value."""
    how, body = _change(record)[3:]
    return body if how == "shared" else None


def read_change(
    thread_id: str, row: Sequence[bytes | None], shared: Callable[[bytes], bytes]
) -> FileChange:
    """Return a file change from its number, checkpoint seq and record.

    Raises:
        ValueError: It is damaged, or the file's content is missing.
    """
    number, seq, record = (text(row, place) for place in range(3))
    run_id, path, after, how, body = _change(record)
    before = {
        "none": lambda: None,
        "here": lambda: decompress(body),
        "shared": lambda: shared(body),
    }
    return FileChange(
        *(thread_id, run_id, path, before[how](), after),
        checkpoint_seq=whole(seq),
        seq=whole(number),
    )


def _change(record: bytes) -> tuple[str, str, str | None, str, bytes]:
    end = SIZE.size + number_at(record, 0)
    run_id, path, after, how = _row(record[SIZE.size : end], _CHANGE, "a file change")
    return run_id, path, after, how, record[end:]


def event_row(event: RunEvent) -> bytes:
    """Return an event's record; its number is its place."""
    return compress(json_bytes([event.mode, list(event.path), event.data, float(event.created_at)]))


def read_event(run_id: str, name: bytes, pairs: Sequence[bytes]) -> RunEvent:
    """Return an event of a run as its stream has it.

    Raises:
        ValueError: It is damaged.
    """
    number, _, _ = name.partition(b"-")
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if b"d" not in fields:
        raise ValueError(f"event {number.decode()} of run {run_id} is damaged")
    mode, path, data, created_at = _row(decompress(fields[b"d"]), _EVENT, f"an event of {run_id}")
    return RunEvent(run_id, mode, _names(path, "an event"), data, created_at, whole(number))


def text(row: Sequence[bytes | None], place: int) -> bytes:
    """Return a value that must be there.

    Raises:
        ValueError: It is not.
    """
    value = row[place] if place < len(row) else None
    if value is None:
        raise ValueError("a part of a record is missing")
    return value


def whole(digits: bytes | None) -> int:
    """Return a whole number.

    Raises:
        ValueError: It is not a whole number.
    """
    if digits is None or len(digits) > 20:
        raise ValueError("a number of a record is missing or too large")
    return int(digits)


def _row(data: bytes, columns: Sequence[tuple[Any, ...]], what: str) -> list[Any]:
    loaded = json.loads(data)
    row: list[Any] = cast("list[Any]", loaded) if isinstance(loaded, list) else []
    if len(row) != len(columns):
        raise ValueError(f"{what} is damaged")
    for value, allowed in zip(row, columns, strict=True):
        known = type(value) in allowed or (isinstance(value, str) and value in allowed)
        if not known or (type(value) is float and not math.isfinite(value)):
            raise ValueError(f"{what} is damaged: it holds {value!r:.40} where that cannot be")
    return row


def _names(path: Iterable[Any], what: str) -> tuple[str, ...]:
    names = tuple(path)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} is damaged: its path is not made of names")
    return names
