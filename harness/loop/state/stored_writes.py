"""Stored writes: how the journal keeps them, and those of a step that has no checkpoint yet.

Beside the results of finished calls there are three kinds of pending writes: what hooks kept,
marks of calls that have begun, and marks of calls that go on with a subagent. Task ids and indexes
tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from ..._internal.records import record
from ...checkpoint.base import StoredWrite, TaskWrites
from ...state.schema import ChannelWrite, StateSchema

__all__ = ["FIRST_KEPT", "PendingWrites", "begun_mark", "claim_mark", "decoded", "kept_mark"]

_BEGUN = "#begun:"
_KEPT = "#kept:"
_CLAIMS = "#goes-on:"

FIRST_KEPT = -1_000_000
"""Index of the first writes that are kept: before those of the step's tool calls."""


def decoded(schema: StateSchema, writes: Sequence[StoredWrite]) -> list[ChannelWrite]:
    """Return stored writes as values; keys no schema knows any more are left out."""
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
    """Return the task id that says that a call has begun, after so many answers to it."""
    return f"{call_id}{_BEGUN}{answers}"


def claim_mark(call_id: str, ns: str) -> str:
    """Return the task id that says that a call goes on with the subagent of a namespace."""
    return f"{call_id}{_CLAIMS}{ns}"


def kept_mark(index: int, author: str) -> str:
    """Return the task id of what a hook kept as the writes of this index."""
    return f"{_KEPT}{index - FIRST_KEPT}:{author}"


@record
class PendingWrites:
    """What an earlier attempt left of a step.

    Attributes:
        finished: Results of calls, in the order they were stored.
        kept: What hooks kept.
        begun: Marks of calls that must run at most once and have begun.
        claims: Calls that go on with a subagent, by its namespace.
        next_kept: Index of what is kept next.
    """

    finished: list[TaskWrites]
    kept: Sequence[TaskWrites]
    begun: set[str]
    claims: dict[str, str]
    next_kept: int

    @staticmethod
    def of(pending: Sequence[TaskWrites]) -> PendingWrites:
        """Sort pending writes by what they are."""
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
