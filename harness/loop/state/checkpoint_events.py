"""The events of a new checkpoint: that it is there, what it wrote, and the state after it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from ...checkpoint.base import Checkpoint
from ...state.schema import ChannelWrite, Mark, State, StateSchema
from ..run.context import RunContext

__all__ = ["announce"]

_HIDDEN = frozenset({Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT, Mark.UNTRACKED, Mark.EPHEMERAL})
"""Marks of keys that events leave out: callers may not see them, or they have no JSON form."""


def announce(
    run: RunContext,
    path: tuple[str, ...],
    schema: StateSchema,
    checkpoint: Checkpoint,
    state: State,
    written: Sequence[ChannelWrite],
) -> None:
    """Send the events of a checkpoint that somebody listens to.

    Args:
        run: Knows who listens.
        path: The agent whose checkpoint it is.
        schema: Of its state.
        checkpoint: What was committed.
        state: The state after it.
        written: The writes that led to it.
    """
    if run.emit is None:
        return
    if run.wants("checkpoints"):
        data: dict[str, JsonValue] = {
            "checkpoint_id": checkpoint.id,
            "step": checkpoint.step,
            "author": checkpoint.author,
            "next": checkpoint.next,
            "summary": checkpoint.summary,
            "keys": [
                *dict.fromkeys(
                    one for one, _ in written if not schema.channels[one].marks & _HIDDEN
                )
            ],
        }
        run.send("checkpoints", path, data)
    if run.wants("updates"):
        run.send("updates", path, {checkpoint.author: _json(schema, written)})
    if run.wants("values"):
        shown = schema.without(state, _HIDDEN)
        values = {name: schema[name].to_json(value) for name, value in shown.items()}
        run.send("values", path, values)


def _json(schema: StateSchema, writes: Sequence[ChannelWrite]) -> dict[str, JsonValue]:
    """Return the writes of keys that callers may see, those of one key put together."""
    shown: dict[str, JsonValue] = {}
    for name, value in writes:
        channel = schema[name]
        if not channel.marks & _HIDDEN:
            shown[name] = _together(shown.get(name), from_json(channel.encode(value)))
    return shown


def _together(first: JsonValue, second: JsonValue) -> JsonValue:
    """Return two writes of one key as one: all items, all members, or else the later one."""
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **second}
    return second
