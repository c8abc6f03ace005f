"""Steps of the journal as values, on the current branches of a thread.

Steps that a rewind abandoned are left out: only the ancestors of a namespace's newest checkpoint
count, and only subagents whose call is among them. Checkpoint records never change, so those of
recently viewed threads are cached, and each view reads only new ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import anyio

from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, StoredWrite, step_id
from ...harness.errors import CheckpointError
from ...harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from ...harness.state.channels import Overwrite
from ..auth.owned_journal import JournalReader

__all__ = [
    "Branch",
    "Branches",
    "keys_of",
    "last_answer",
    "messages_in",
    "namespace_of",
    "place",
    "written_by",
    "written_by_each",
]


async def written_by(journal: JournalReader, made: Checkpoint) -> list[StoredWrite]:
    """Return the stored writes of a step."""
    found = await journal.load(made.thread_id, made.ns, made.id, cached=made.parent_id)
    return [] if found is None else [*found.writes]


async def written_by_each(
    journal: JournalReader, steps: Sequence[Checkpoint], weights: Mapping[str, int]
) -> dict[str, Sequence[StoredWrite]]:
    """Return the writes of several steps, by checkpoint, with few reads.

    Consecutive steps are read together. The weights of their checkpoints, which count bytes, show
    which writes belong to each; if the weights do not add up, steps are read one by one.

    Args:
        journal: The journal with the steps.
        steps: The steps, oldest first, of any namespaces.
        weights: The weights of their parents, and their own, by namespace and id.
    """
    chains: dict[str, list[list[Checkpoint]]] = {}
    for one in steps:
        before = chains.setdefault(one.ns, [])
        grows = one.weight > weights.get(place(one.ns, one.parent_id), 0)
        if before and before[-1][-1].id == one.parent_id and grows:
            before[-1].append(one)
        else:
            before.append([one])
    found: dict[str, Sequence[StoredWrite]] = {}
    for chain in [one for each in chains.values() for one in each]:
        parts = await _parts(journal, chain, weights) if len(chain) > 1 else None
        for number, one in enumerate(chain):
            writes = await written_by(journal, one) if parts is None else parts[number]
            found[place(one.ns, one.id)] = writes
    return found


def place(ns: str, checkpoint_id: str | None) -> str:
    """Return a key of a checkpoint that is unique across namespaces."""
    return f"{ns}\0{checkpoint_id}"


async def _parts(
    journal: JournalReader, chain: Sequence[Checkpoint], weights: Mapping[str, int]
) -> list[list[StoredWrite]] | None:
    """Return the writes of each step of a chain; None if the weights do not show them."""
    first, last = chain[0], chain[-1]
    read = await journal.load(last.thread_id, last.ns, last.id, cached=first.parent_id)
    if read is None or read.base != first.parent_id:
        return None
    writes = iter(read.writes)
    parts: list[list[StoredWrite]] = []
    weight = weights.get(place(first.ns, first.parent_id), 0)
    for made in chain:
        part: list[StoredWrite] = []
        left = made.weight - weight
        while left > 0:
            write = next(writes, None)
            if write is None:
                return None
            part.append(write)
            left -= len(write.value)
        if left:
            return None
        parts.append(part)
        weight = made.weight
    return parts if next(writes, None) is None else None


def messages_in(agent: Agent, writes: Iterable[StoredWrite]) -> list[Message]:
    """Return the messages among some writes; those that cannot be read are left out."""
    channel = agent.definition.schema["messages"]
    found: list[Message] = []
    for one in writes:
        if one.channel != "messages":
            continue
        try:
            value: Any = channel.decode(one.value, overwrite=one.overwrite)
        except CheckpointError:
            continue
        items = value.value if isinstance(value, Overwrite) else value
        found += [
            each for each in items if isinstance(each, HumanMessage | AIMessage | ToolMessage)
        ]
    return found


async def last_answer(
    agent: Agent, journal: JournalReader, thread_id: str, ns: str, call_id: str
) -> AIMessage | None:
    """Return the model's answer that made a call which has no result yet; None if not found."""
    for made in await journal.history(thread_id, ns, limit=3):
        for message in messages_in(agent, await written_by(journal, made)):
            if isinstance(message, AIMessage) and any(
                call.id == call_id for call in message.tool_calls
            ):
                return message
    return None


def keys_of(writes: Iterable[StoredWrite]) -> Mapping[str, int]:
    """Return the state keys in some writes, with the bytes of each."""
    sizes: dict[str, int] = {}
    for one in writes:
        sizes[one.channel] = sizes.get(one.channel, 0) + len(one.value)
    return sizes


KEPT = 16
"""How many threads are cached."""

_FIRST, _MORE = 50, 1_000


@dataclass(frozen=True, slots=True)
class Namespace:
    """The parts of a namespace.

    Attributes:
        ns: The namespace; empty for the main agent.
        parent: The namespace of the agent that made the call.
        call_id: The call that started the subagent; empty for the main agent.
        step: The step of that call.
    """

    ns: str
    parent: str
    call_id: str
    step: str


def namespace_of(ns: str) -> Namespace:
    """Return the parts of a namespace."""
    parent, _, own = ns.rpartition("/")
    call_id, _, step = own.removeprefix("task:").rpartition("@")
    return Namespace(ns, parent, call_id, step)


@dataclass(frozen=True)
class Branch:
    """The checkpoints on the current branches of a thread.

    Attributes:
        steps: The checkpoints, oldest first.
        heads: The newest of each namespace, the main agent's first.
        others: How many checkpoints of the main agent are on abandoned branches.
    """

    steps: Sequence[Checkpoint]
    heads: Sequence[Checkpoint]
    others: int = 0

    @cached_property
    def weights(self) -> Mapping[str, int]:
        """The weights of the steps, by namespace and id; see `journal_steps.place`."""
        return {place(one.ns, one.id): one.weight for one in self.steps}

    def before(self, seq: int, limit: int) -> Sequence[Checkpoint]:
        """Return the steps right before one, oldest first."""
        stop = bisect_left(self.steps, seq, key=_seq)
        return self.steps[max(0, stop - limit) : stop]

    def after(self, seq: int, limit: int) -> Sequence[Checkpoint]:
        """Return the steps right after one, oldest first."""
        start = bisect_right(self.steps, seq, key=_seq)
        return self.steps[start : start + limit]

    def abandons(self, seq: int) -> bool:
        """Whether a step was abandoned, or was of a deleted thread with this id.

        One that is older than all steps here was only pruned, unless the first one begins a thread.
        """
        place = bisect_right(self.steps, seq, key=_seq)
        if place:
            return self.steps[place - 1].seq != seq
        first = next((one for one in self.steps if not one.ns), None)
        return seq > 0 and first is not None and first.step == 0


def _seq(made: Checkpoint) -> int:
    return made.seq


@dataclass(slots=True)
class _Kept:
    """The checkpoints of a thread by namespace, oldest first."""

    made: dict[str, list[Checkpoint]] = field(default_factory=dict[str, list[Checkpoint]])
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Branches:
    """Reads branches of threads."""

    def __init__(self, journal: JournalReader) -> None:
        self._journal = journal
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def of(self, thread_id: str) -> Branch | None:
        """Return the current branches of a thread; None if it has no checkpoints."""
        namespaces = await self._journal.namespaces(thread_id)
        if "" not in namespaces:
            self._kept.pop(thread_id, None)
            return None
        kept = self._kept.setdefault(thread_id, _Kept())
        self._kept.move_to_end(thread_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        async with kept.turn:
            kept.made = {ns: kept.made.get(ns, []) for ns in namespaces}
            for ns, made in kept.made.items():
                await self._read_new(thread_id, ns, made)
        return _branch(kept.made)

    async def _read_new(self, thread_id: str, ns: str, made: list[Checkpoint]) -> None:
        """Add newer checkpoints."""
        known = made[-1].seq if made else -1
        fresh: list[Checkpoint] = []
        before, limit = None, _FIRST
        while page := await self._journal.history(thread_id, ns, before=before, limit=limit):
            newer = [one for one in page if one.seq > known]
            fresh += newer
            if len(newer) < len(page) or len(page) < limit:
                if made and page[len(newer) : len(newer) + 1] != made[-1:]:
                    # The thread is not the same: it was pruned, or deleted and created again.
                    made.clear()
                    fresh = [*await self._all(thread_id, ns)]
                break
            before, limit = page[-1].id, _MORE
        made.extend(reversed(fresh))

    async def _all(self, thread_id: str, ns: str) -> Sequence[Checkpoint]:
        found: list[Checkpoint] = []
        before: str | None = None
        while page := await self._journal.history(thread_id, ns, before=before, limit=_MORE):
            found += page
            before = page[-1].id
            if len(page) < _MORE:
                break
        return found


def _branch(made: dict[str, list[Checkpoint]]) -> Branch:
    main = _ancestors(made[""])
    steps: list[Checkpoint] = [*main]
    heads = [main[-1]]
    living = {"": {one.id for one in main} | {step_id(main[-1].id)}}
    for ns in sorted((one for one in made if one.startswith("task:")), key=len):
        place = namespace_of(ns)
        if made[ns] and place.step in living.get(place.parent, ()):
            own = _ancestors(made[ns])
            steps += own
            heads.append(own[-1])
            living[ns] = {one.id for one in own} | {step_id(own[-1].id)}
    steps.sort(key=_seq)
    return Branch(steps, heads, len(made[""]) - len(main))


def _ancestors(made: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the newest checkpoint and its ancestors, oldest first."""
    found = [made[-1]]
    for one in reversed(made[:-1]):
        if one.id == found[-1].parent_id:
            found.append(one)
    return found[::-1]
