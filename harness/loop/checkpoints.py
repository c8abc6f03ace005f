"""Checkpoints of a namespace: stored writes, snapshots of the state, and events of new ones.

A snapshot is the state after replaying all writes, stored so that old writes need not be read. If
keys are rewritten again and again, the state is small and the log long. Once the writes take
several times the bytes of the state, the state is stored beside them. So opening a thread reads a
bounded multiple of its state, and all snapshots together are a bounded fraction of the log. A
thread that only grows never needs one. A snapshot is a cache for one schema. With another schema,
other reducers, or a state that JSON does not preserve exactly, the writes are replayed instead.

A step without a checkpoint has pending writes. Besides the results of finished calls there are
three kinds: writes kept by hooks, marks of calls that have begun, and marks of calls that continue
a subagent. Task ids and indexes distinguish them.

The events of a new checkpoint are the checkpoint, its writes, and the state after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from types import CodeType
from typing import Any
from weakref import ref

from pydantic import JsonValue
from pydantic_core import from_json

from .._internal.records import record
from ..checkpoint.base import Checkpoint, Snapshot, StoredWrite, TaskWrites
from ..errors import CheckpointError, InvalidUpdate
from ..state.channels import Channel, ChannelWrite, Mark, Overwrite, State
from ..state.schema import StateSchema
from .run.context import RunContext

__all__ = [
    "FIRST_KEPT",
    "PendingWrites",
    "announce",
    "begun_mark",
    "claim_mark",
    "decoded",
    "fingerprint",
    "has_begun",
    "kept_mark",
    "snapshot_of",
    "weighed",
]


_FROM_BYTES = 1 << 16
"""Bytes of a log below which a snapshot does not pay."""

_TIMES = 4
"""How many times the bytes of a snapshot the writes before it must have."""


def weighed(
    schema: StateSchema, checkpoint_id: str, state: State, before: int, weight: int
) -> tuple[int, Sequence[Snapshot]]:
    """Return the new weight of a log in bytes, and a snapshot if one pays.

    Encoding a state takes time in proportion to its size, so it is only tried when the weight has
    doubled, and not after a step that alone has more bytes than a snapshot may have.
    """
    if weight < _FROM_BYTES or weight.bit_length() == before.bit_length():
        return weight, ()
    if (weight - before) * _TIMES > weight:
        return weight, ()
    made = snapshot_of(schema, checkpoint_id, state, weight)
    return (weight, ()) if made is None else (made[1], [made[0]])


def snapshot_of(
    schema: StateSchema, checkpoint_id: str, state: State, weight: int
) -> tuple[Snapshot, int] | None:
    """Return a snapshot and its weight; None if it does not pay, or would not be exact.

    Args:
        schema: The schema of the state.
        checkpoint_id: The checkpoint the state belongs to.
        state: The state.
        weight: Bytes of the writes that the snapshot would replace.
    """
    mark = fingerprint(schema)
    if mark is None:
        return None
    kept = {name: value for name, value in state.items() if schema[name].stored}
    try:
        writes = tuple(
            StoredWrite(name, schema[name].encode(Overwrite(value)), overwrite=True)
            for name, value in kept.items()
        )
        size = sum(len(write.value) for write in writes)
        if size * _TIMES > weight or not _comes_back(schema, writes, kept):
            return None
    except (InvalidUpdate, CheckpointError):
        return None
    return Snapshot(checkpoint_id, mark, writes), size


def _comes_back(schema: StateSchema, writes: tuple[StoredWrite, ...], state: State) -> bool:
    decoded = {
        one.channel: schema[one.channel].decode(one.value, overwrite=True).value for one in writes
    }
    return decoded == state


def fingerprint(schema: StateSchema) -> str | None:
    """Return a fingerprint of a schema with its reducers; None if it has none."""
    known = _KNOWN.get(id(schema))
    if known is not None and known[0]() is schema:
        return known[1]
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    mark = _fingerprint(schema)
    _KNOWN[id(schema)] = ref(schema), mark
    return mark


_MOST_KNOWN = 256
_KNOWN: dict[int, tuple[ref[StateSchema], str | None]] = {}
"""Fingerprints by the identity of schemas, which cannot be hashed."""


def _fingerprint(schema: StateSchema) -> str | None:
    parts = [_channel_mark(channel) for channel in schema.channels.values() if channel.stored]
    if None in parts:
        return None
    return blake2b("\n".join(sorted(filter(None, parts))).encode(), digest_size=12).hexdigest()


def _channel_mark(channel: Channel) -> str | None:
    reducer = channel.reducer
    if reducer is None:
        return f"{channel.name}: {channel.type!r}"
    fn: Any = reducer.fn
    name = getattr(fn, "__qualname__", None)
    if name is None or getattr(fn, "__closure__", None):
        return None  # two of them may look the same but behave differently
    code = getattr(fn, "__code__", None)
    digest = _code_digest(code) if isinstance(code, CodeType) else ""
    return f"{channel.name}: {channel.type!r}, {reducer.write!r}, {fn.__module__}.{name} {digest}"


def _code_digest(code: CodeType) -> str:
    consts = [
        _code_digest(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    text = repr((code.co_code, code.co_names, code.co_varnames, consts))
    return blake2b(text.encode(), digest_size=8).hexdigest()


_BEGUN = "#begun:"
_KEPT = "#kept:"
_CLAIMS = "#goes-on:"

FIRST_KEPT = -1_000_000
"""Index of the first kept writes, before those of the step's tool calls."""


def decoded(schema: StateSchema, writes: Sequence[StoredWrite]) -> list[ChannelWrite]:
    """Return stored writes as values, without keys that the schema no longer has."""
    values: list[ChannelWrite] = []
    for (name, overwrite), group in groupby(writes, attrgetter("channel", "overwrite")):
        channel = schema.channels.get(name)
        if channel is None:
            continue
        stored = [one.value for one in group]
        if channel.joins and not overwrite:
            values.append(ChannelWrite(name, channel.decode_lists(stored)))
            continue
        values += [ChannelWrite(name, channel.decode(one, overwrite=overwrite)) for one in stored]
    return values


def begun_mark(call_id: str, answers: int) -> str:
    """Return the task id of the mark that a call has begun, after this many answers."""
    return f"{call_id}{_BEGUN}{answers}"


def has_begun(marks: Iterable[str], call_id: str, answers: int) -> bool:
    """Whether a call has begun after this many answers, or more.

    Another run that continues the step may know fewer of the answers.
    """
    for mark in marks:
        name, _, number = mark.rpartition(_BEGUN)
        if name == call_id and number.isdecimal() and int(number) >= answers:
            return True
    return False


def claim_mark(call_id: str, ns: str) -> str:
    """Return the task id of the mark that a call continues the subagent of a namespace."""
    return f"{call_id}{_CLAIMS}{ns}"


def kept_mark(index: int, author: str) -> str:
    """Return the task id of the writes with this index that a hook kept."""
    return f"{_KEPT}{index - FIRST_KEPT}:{author}"


@record
class PendingWrites:
    """Writes of a step that an earlier attempt did not finish.

    Attributes:
        finished: Results of calls, in the order they were stored.
        kept: Writes kept by hooks.
        begun: Marks of calls that have begun and must run at most once.
        claims: Calls that continue a subagent, by its namespace.
        next_kept: Index of the next kept writes.
    """

    finished: list[TaskWrites]
    kept: Sequence[TaskWrites]
    begun: set[str]
    claims: dict[str, str]
    next_kept: int

    @staticmethod
    def of(pending: Sequence[TaskWrites]) -> PendingWrites:
        """Sort pending writes by kind."""
        begun = {one.task_id for one in pending if _BEGUN in one.task_id}
        kept = [one for one in pending if one.index < 0]
        finished: list[TaskWrites] = []
        claims: dict[str, str] = {}
        for task in pending:
            call_id, goes_on, ns = task.task_id.partition(_CLAIMS)
            if goes_on:
                claims[ns] = call_id
            elif task.index >= 0 and task.task_id not in begun:
                finished.append(task)
        following = max((one.index + 1 for one in kept), default=FIRST_KEPT)
        return PendingWrites(finished, kept, begun, claims, following)


_HIDDEN = frozenset({Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT, Mark.UNTRACKED, Mark.EPHEMERAL})
"""Marks of keys that events omit: callers may not see them, or they have no JSON form."""


def announce(
    run: RunContext,
    path: tuple[str, ...],
    schema: StateSchema,
    checkpoint: Checkpoint,
    state: State,
    written: Sequence[ChannelWrite],
) -> None:
    """Send the events of a checkpoint, if anybody listens.

    Args:
        run: The run, which knows its listeners.
        path: The agent whose checkpoint it is.
        schema: The schema of its state.
        checkpoint: The committed checkpoint.
        state: The state after it.
        written: The writes of its step.
    """
    if "checkpoints" in run.wanted:
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
    if "updates" in run.wanted:
        run.send("updates", path, {checkpoint.author: _json(schema, written)})
    if "values" in run.wanted:
        shown = schema.without(state, _HIDDEN)
        values = {name: schema[name].to_json(value) for name, value in shown.items()}
        run.send("values", path, values)


def _json(schema: StateSchema, writes: Sequence[ChannelWrite]) -> dict[str, JsonValue]:
    """Return the writes of keys that callers may see, combined by key."""
    shown: dict[str, JsonValue] = {}
    for name, value in writes:
        channel = schema[name]
        if not channel.marks & _HIDDEN:
            shown[name] = _together(shown.get(name), from_json(channel.encode(value)))
    return shown


def _together(first: JsonValue, second: JsonValue) -> JsonValue:
    """Combine two writes of one key: all list items, all members, or else the later one."""
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **second}
    return second


LAST_INDEX = 1_000_000
"""Index of a phase's own writes, after those of the step's tool calls."""

EPHEMERAL = frozenset({Mark.EPHEMERAL})
