"""Steps of the journal as values: what each checkpoint of a thread wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, StoredWrite
from ...harness.errors import CheckpointError
from ...harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from ...harness.state.channels import Overwrite
from ..auth.caller import JournalReader

__all__ = ["keys_of", "last_answer", "messages_in", "place", "written_by", "written_by_each"]


async def written_by(journal: JournalReader, made: Checkpoint) -> list[StoredWrite]:
    """Return what a step wrote, as it is stored."""
    found = await journal.load(made.thread_id, made.ns, made.id, cached=made.parent_id)
    return [] if found is None else [*found.writes]


async def written_by_each(
    journal: JournalReader, steps: Sequence[Checkpoint], weights: Mapping[str, int]
) -> dict[str, Sequence[StoredWrite]]:
    """Return what each of some steps wrote, by checkpoint, with few reads.

    Consecutive steps are read at once. The weights of their checkpoints, which count bytes, show
    what each of them wrote; if these don't add up, a step is read by itself.

    Args:
        journal: Where they are.
        steps: They, oldest first, of any namespaces.
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
    """Return what tells a checkpoint from those of other namespaces."""
    return f"{ns}\0{checkpoint_id}"


async def _parts(
    journal: JournalReader, chain: Sequence[Checkpoint], weights: Mapping[str, int]
) -> list[list[StoredWrite]] | None:
    """Return what each step of a chain wrote; None if the weights do not say it."""
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
    """Return the state keys that some writes are about, with the bytes of each."""
    sizes: dict[str, int] = {}
    for one in writes:
        sizes[one.channel] = sizes.get(one.channel, 0) + len(one.value)
    return sizes
