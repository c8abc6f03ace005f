"""Model cache: returns a stored answer for an identical request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..messages.message import AIMessage, Message, ToolCall, new_id
from .base import Cache
from .entries import Entries

__all__ = ["ModelCache"]


class ModelCache:
    """Answers by `model_key`.

    A hit saves the whole call: time, tokens and dollars. It is worth having where the same run is
    repeated (tests, demos, evaluations, a run that failed late and is started anew). It replays:
    a model that would answer differently each time, because of its temperature, gives its first
    answer again until the entry's time is over. A failed cache is logged once and never fails a
    run.

    Agents may share a cache if they use the same account of a provider: some models' thinking is
    accepted only by the account that paid for it. Identical requests at the same moment are all
    sent, and the last answer stays.

    Args:
        cache: Where answers are kept.
        ttl: Seconds an answer may be replayed; None for as long as there is room.
    """

    def __init__(self, cache: Cache, ttl: float | None = None) -> None:
        self._entries: Entries[AIMessage] = Entries(cache, AIMessage)
        self._ttl = ttl

    async def get(self, key: str, messages: Sequence[Message] = ()) -> AIMessage | None:
        """Return the answer with an id of its own and no usage, since nothing was used.

        Args:
            key: The `model_key` of the request.
            messages: The transcript it will join. An answer whose tool calls are in there already
                is not replayed: a call id is unique in a transcript, and an answer that comes
                back in the same thread would go round in circles.
        """
        answer = await self._entries.get(key)
        if answer is None or _call_ids(answer) & {one for m in messages for one in _call_ids(m)}:
            return None
        return replace(answer, id=new_id("msg"), usage=None)

    async def set(self, key: str, answer: AIMessage) -> None:
        """Store an answer, without its agent's name and what it cost."""
        await self._entries.set(key, replace(answer, usage=None, name=None), self._ttl)


def _call_ids(message: Message) -> set[str]:
    if not isinstance(message, AIMessage):
        return set()
    return {block.id for block in message.content if isinstance(block, ToolCall)}
