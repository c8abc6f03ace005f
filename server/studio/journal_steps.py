"""Steps of the journal as values: what each checkpoint of a thread wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, StoredWrite
from ...harness.errors import CheckpointError
from ...harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from ...harness.state.channels import Overwrite
from ..auth.caller import JournalReader

__all__ = ["last_answer", "messages_in", "written_by"]


async def written_by(journal: JournalReader, made: Checkpoint) -> list[StoredWrite]:
    """Return what a step wrote, as it is stored."""
    found = await journal.load(made.thread_id, made.ns, made.id, cached=made.parent_id)
    return [] if found is None else [*found.writes]


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
