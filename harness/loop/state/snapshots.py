"""Snapshots: the folded state as the journal may keep it, so that old writes need not be read.

A thread whose keys are rewritten again and again has a small state and a long log. Once the
writes that lead to a state weigh several times what the state does, the state is stored beside
them. Thus what is read to open a thread is a bounded multiple of its state, and all snapshots
together are a bounded fraction of the log. A thread that only grows never needs one.

A snapshot is a cache of one schema. Another schema, other reducers, or a state that does not come
back from the journal as it went in, and the writes are folded as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from types import CodeType
from typing import Any
from weakref import ref

from ...checkpoint.base import Snapshot, StoredWrite
from ...errors import CheckpointError, InvalidUpdate
from ...state.schema import Channel, Overwrite, State, StateSchema

__all__ = ["fingerprint", "snapshot_of", "weighed"]

_FROM_BYTES = 1 << 16
"""Lighter logs are read faster than a snapshot is worth."""

_TIMES = 4
"""How many times its own weight the writes must weigh that a snapshot stands for."""


def weighed(
    schema: StateSchema, checkpoint_id: str, state: State, before: int, weight: int
) -> tuple[int, Sequence[Snapshot]]:
    """Return the weight of a log that has grown to this one, and a snapshot where it pays.

    Encoding a state takes time in proportion to it, so it is tried when the weight has doubled, and
    not after a step that alone weighs more than a snapshot may: the state holds what it wrote.
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
    """Return a snapshot and its weight; None when the writes do as well, or it would not be exact.

    Args:
        schema: The schema that folded the state.
        checkpoint_id: The checkpoint the state belongs to.
        state: The state.
        weight: Bytes of the writes that the snapshot would stand for.
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
    """Return what tells this schema's folds from another's; None when nothing does."""
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
"""Fingerprints by the identity of the schema, as schemas cannot be hashed."""


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
        return None  # two of them may look the same and do different things
    code = getattr(fn, "__code__", None)
    digest = _code_digest(code) if isinstance(code, CodeType) else ""
    return f"{channel.name}: {channel.type!r}, {reducer.write!r}, {fn.__module__}.{name} {digest}"


def _code_digest(code: CodeType) -> str:
    consts = [
        _code_digest(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    text = repr((code.co_code, code.co_names, code.co_varnames, consts))
    return blake2b(text.encode(), digest_size=8).hexdigest()
