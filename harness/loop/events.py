"""Events a run emits while it works."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Literal, TypeAlias

from pydantic import JsonValue

from .._internal.records import record

__all__ = ["Emit", "Event", "StreamMode", "clipped"]

StreamMode: TypeAlias = Literal[
    "values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"
]
"""`values`: the state after a step. `updates`: what a phase wrote. `messages`: pieces of a model's
answer. `custom`: what a hook or tool wrote. `checkpoints`: a commit. `tasks`: a model or tool
call that starts or ends. `debug`: checkpoints and tasks, in one stream."""


@record
class Event:
    """One event.

    Attributes:
        mode: Which stream it belongs to.
        data: JSON data, without keys that callers may not see or that are not stored. `values`:
            state by key. `updates`: one key, the author of the step, with its writes by key.
            `messages`: `kind`, `text`, `tool_call_id` and `tool_name` of a `Delta`; the kind
            `dropped` says that the pieces of this path since its last whole answer do not count:
            the call failed, or is made anew. `custom`: what was written, under `data`.
            `checkpoints`: what the step is, and the state `keys` that it wrote. `tasks`: `event`
            (`model_start`, `model_end`, `tool_start`, `tool_end`), and `name`, `tool_call_id`,
            `args`, `status`, `text`, `usage` where they apply.
        thread_id: The thread.
        run_id: The run.
        seq: Counts up from 1 without a gap, anew each time the run is begun or resumed.
        path: Agent and call names from the root to where it arose.
    """

    mode: StreamMode
    data: dict[str, JsonValue]
    thread_id: str
    run_id: str
    seq: int
    path: tuple[str, ...]


Emit: TypeAlias = Callable[[Event], None]
"""Receives events on the event loop; must not block."""

_MOST_TEXT = 2_000
_MOST_PARTS = 100
_MOST_DEPTH = 8


def clipped(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return an event's data as the journal keeps it: short, and shared with nobody.

    Texts beyond 2,000 characters, lists and objects beyond 100 items, and what is nested deeper
    than 8 levels are cut; a text says that it was. The whole values are in the thread.
    """
    return {key: _clipped(value, 1) for key, value in data.items()}


def _clipped(value: JsonValue, depth: int) -> JsonValue:
    if isinstance(value, str):
        more = len(value) - _MOST_TEXT
        return f"{value[:_MOST_TEXT]} … ({more} more characters)" if more > 0 else value
    if isinstance(value, dict | list) and depth == _MOST_DEPTH:
        return "…"
    if isinstance(value, dict):
        kept = islice(value.items(), _MOST_PARTS)
        return {key[:_MOST_TEXT]: _clipped(one, depth + 1) for key, one in kept}
    if isinstance(value, list):
        return [_clipped(one, depth + 1) for one in value[:_MOST_PARTS]]
    return value
