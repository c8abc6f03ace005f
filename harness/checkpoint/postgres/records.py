"""Rows of the Postgres journal as records, and text as its columns hold it.

Columns have types, so what a row may hold wrongly is a value: a word that is none of ours, bytes
that are not Unicode or JSON, a body that no version has written. Each is a `CheckpointError`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

from pydantic import JsonValue

from ...errors import CheckpointError
from ..admission import json_text
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
    StoredWrite,
    ThreadInfo,
)
from ..codec import compress, decompress, unpack
from .session import Row

__all__ = [
    "as_bytes",
    "as_json",
    "as_text",
    "checkpoint",
    "damage",
    "event_body",
    "events",
    "file_change",
    "interrupt",
    "maybe_bytes",
    "run",
    "thread_info",
    "writes",
]

_KINDS = ("drive", "delegate")


@contextmanager
def damage(what: str) -> Generator[None]:
    """Turn what rows that no version has written lead to into an error.

    Raises:
        CheckpointError: Something in the block found such a row.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{what} is damaged: {error!s:.200}. Nothing was changed; restore a backup, or delete "
            f"the thread."
        ) from error


def as_bytes(text: str) -> bytes:
    """Return text as a column holds it; any string that Python can hold."""
    return text.encode("utf-8", "surrogatepass")


def maybe_bytes(text: str | None) -> bytes | None:
    """Return text as a column holds it, or None."""
    return None if text is None else as_bytes(text)


def as_text(data: bytes) -> str:
    """Return the text that a column holds.

    Raises:
        ValueError: It is not Unicode.
    """
    return data.decode("utf-8", "surrogatepass")


def as_json(value: JsonValue) -> bytes:
    """Return a value as a column holds it.

    Raises:
        CheckpointError: It is not JSON.
    """
    return as_bytes(json_text(value))


def checkpoint(row: Row, thread_id: str, ns: str) -> Checkpoint:
    """Return (seq, id, parent's id, step, source, author, next, run, time, summary, weight)."""
    with damage(f"a checkpoint of thread {thread_id!r}"):
        seq, key, parent, step, source, author, following, run_id, made, summary, weight = row
        return Checkpoint(
            thread_id,
            ns,
            as_text(key),
            _maybe(parent),
            step,
            cast(Source, _one_of(get_args(Source), source)),
            as_text(author),
            cast(Next, _one_of(get_args(Next), following)),
            _maybe(run_id),
            made,
            seq,
            as_text(summary),
            weight,
        )


def run(row: Row) -> Run:
    """Return a run from its columns, in the order of the record's fields."""
    with damage("a run"):
        run_id, thread_id, kind, agent, status, goal, *texts, made, changed, attempt, used, base = (
            row
        )
        return Run(
            as_text(run_id),
            as_text(thread_id),
            cast(Any, _one_of(_KINDS, kind)),
            as_text(agent),
            cast(RunStatus, _one_of(get_args(RunStatus), status)),
            as_text(goal),
            *(_maybe(text) for text in texts),
            created_at=made,
            updated_at=changed,
            attempt=attempt,
            used=as_text(used),
            base=_maybe(base),
        )


def interrupt(row: Row) -> Interrupt:
    """Return an interrupt from its columns, in the order of the record's fields."""
    with damage("an interrupt"):
        *ids, kind, path, message, payload, answer_schema, index, answer, answered = row
        asked_id, thread_id, ns, step, run_id = map(as_text, ids)
        return Interrupt(
            asked_id,
            thread_id,
            ns,
            step,
            run_id,
            cast(InterruptKind, _one_of(get_args(InterruptKind), kind)),
            _path(json.loads(path)),
            as_text(message),
            _object(json.loads(payload)),
            _object(json.loads(answer_schema)),
            index,
            json.loads(answer),
            answered,
        )


def thread_info(row: Row) -> ThreadInfo:
    """Return (thread, checkpoints, created, updated, the columns of its last run or nothing)."""
    with damage("a thread"):
        thread_id, checkpoints, created_at, updated_at, *last = row
        last_run = None if last[0] is None else run(tuple(last))
        return ThreadInfo(as_text(thread_id), checkpoints, created_at, updated_at, last_run)


def file_change(row: Row, thread_id: str) -> FileChange:
    """Return (run, path, before, digest, blob, after, newest checkpoint, seq)."""
    with damage(f"a file of thread {thread_id!r}"):
        run_id, path, before, digest, blob, after, checkpoint_seq, seq = row
        if digest is not None and blob is None:
            raise ValueError("what it held before a change is missing")
        body = before if digest is None else blob
        return FileChange(
            thread_id,
            as_text(run_id),
            as_text(path),
            None if body is None else decompress(body),
            _maybe(after),
            checkpoint_seq,
            seq,
        )


def event_body(events: Sequence[RunEvent]) -> bytes:
    """Return events of one run as a body.

    Raises:
        CheckpointError: Something is not JSON.
    """
    return compress(
        as_json([[one.mode, list(one.path), one.data, one.created_at] for one in events])
    )


def events(run_id: str, last: int, body: bytes) -> list[RunEvent]:
    """Return the events of a body, of which the last has this number."""
    with damage(f"an event of run {run_id!r}"):
        found = json.loads(decompress(body))
        first = last - len(found) + 1
        return [
            RunEvent(run_id, _text(mode), _path(path), _object(data), float(made), first + place)
            for place, (mode, path, data, made) in enumerate(found)
        ]


def writes(
    body: bytes, digests: Sequence[bytes] | None, blobs: Mapping[bytes, bytes]
) -> list[StoredWrite]:
    """Return the writes of a body.

    Args:
        body: The body.
        digests: Of the large values it names, in the order it counts them in.
        blobs: Bodies of large values by digest.

    Raises:
        ValueError: It is damaged, or a large value is missing.
    """

    def shared(place: int) -> bytes:
        if digests is None or place >= len(digests) or digests[place] not in blobs:
            raise ValueError("a stored write names a shared value that is not there")
        return decompress(blobs[digests[place]])

    data = decompress(body)
    return unpack(data, 0, len(data), shared)


def _maybe(data: bytes | None) -> str | None:
    return None if data is None else as_text(data)


def _one_of(words: Sequence[str], data: bytes) -> str:
    word = as_text(data)
    if word not in words:
        raise ValueError(f"it holds {word!r:.40} where that cannot be")
    return word


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return value


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return tuple(_text(part) for part in cast("list[Any]", value))


def _object(value: Any) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return cast("dict[str, JsonValue]", value)
