"""Rows of the SQLite journal as records; a row that the journal never wrote is a `ValueError`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

from ..base import (
    Checkpoint,
    Interrupt,
    InterruptKind,
    Next,
    Run,
    RunStatus,
    Source,
    ThreadInfo,
)
from ..codec import step_name

__all__ = [
    "FILE_CHANGE",
    "check",
    "checkpoint_of",
    "interrupt_of",
    "run_of",
    "thread_info_of",
]

_TEXT, _WHOLE, _MAYBE = (str,), (int,), (str, type(None))
_CHECKPOINT = (
    *(_WHOLE, (int, str), (int, str, type(None)), _WHOLE, get_args(Source), _TEXT, get_args(Next)),
    *(_MAYBE, (float,), _TEXT, _WHOLE),
)
_RUN = (
    *(_TEXT, _TEXT, ("drive", "delegate"), _TEXT, get_args(RunStatus), _TEXT, _MAYBE, _MAYBE),
    *(_MAYBE, _MAYBE, (float,), (float,), _WHOLE, _TEXT, _MAYBE),
)
_INTERRUPT = (
    *(_TEXT, _TEXT, _TEXT, _TEXT, _TEXT, get_args(InterruptKind), _TEXT, _TEXT, _TEXT, _TEXT),
    *(_WHOLE, _TEXT, _WHOLE),
)
FILE_CHANGE = (_TEXT, _TEXT, (bytes, type(None)), _MAYBE, _WHOLE, _WHOLE)
_THREAD = (_TEXT, _WHOLE, (float,), (float,))
"""For each column the types of its values, or the values there are."""


def check(row: Sequence[Any], columns: Sequence[tuple[Any, ...]], what: str) -> None:
    """Refuse a row that the journal never wrote.

    Args:
        row: The values.
        columns: For each the types it may have, or the values it may be.
        what: What the row is, for the error.

    Raises:
        ValueError: It is damaged.
    """
    for value, allowed in zip(row, columns, strict=True):
        if type(value) not in allowed and value not in allowed:
            raise ValueError(f"{what} is damaged: it holds {value!r:.40} where that cannot be")


def run_of(row: Sequence[Any]) -> Run:
    """Return a run from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _RUN, "a run")
    return Run(*row)


def thread_info_of(info: Sequence[Any], last: Sequence[Any]) -> ThreadInfo:
    """Return a thread, with its newest run, from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(info, _THREAD, "a thread")
    return ThreadInfo(*info, last_run=run_of(last) if last[0] is not None else None)


def checkpoint_of(row: Sequence[Any], thread_id: str, ns: str) -> Checkpoint:
    """Return a checkpoint from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _CHECKPOINT, f"a checkpoint of thread {thread_id!r}")
    seq, key, parent, *head, summary, weight = row
    return Checkpoint(
        thread_id,
        ns,
        step_name(key),
        None if parent is None else step_name(parent),
        *head,
        seq=seq,
        summary=summary,
        weight=weight,
    )


def interrupt_of(row: Sequence[Any]) -> Interrupt:
    """Return a question from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _INTERRUPT, "an interrupt")
    *head, path, message, payload, answer_schema, index, answer, answered = row
    return Interrupt(
        *head,
        path=tuple(json.loads(path)),
        message=message,
        payload=json.loads(payload),
        answer_schema=json.loads(answer_schema),
        index=index,
        answer=json.loads(answer),
        answered=bool(answered),
    )
