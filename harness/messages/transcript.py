"""The messages of a thread, the reducer that adds to them, and the same as text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import SupportsIndex, cast, overload

from .message import (
    REMOVE_ALL,
    AIMessage,
    HumanMessage,
    Message,
    RemoveMessage,
    TextBlock,
    ToolCall,
    is_media,
)

__all__ = ["Transcript", "add_messages", "transcript_text"]

_growing = threading.Lock()
"""Held while what transcripts share grows: agents in several threads may know the same one."""


class Transcript(Sequence[Message]):
    """The messages of a thread: a list that never changes. Appending makes another one.

    That takes no longer in a long thread: a transcript and those grown from it share one list and
    one index of ids, whose entries beyond its own length are not its own. A slice is a list.

    Args:
        messages: Its messages, whose ids are distinct.
    """

    __slots__ = ("_length", "_places", "_shared")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._shared = [*messages]
        self._length = len(self._shared)
        self._places = {message.id: place for place, message in enumerate(self._shared)}

    def place(self, message_id: str) -> int | None:
        """Return where the message with this id is, or None."""
        place = self._places.get(message_id)
        return place if place is not None and place < self._length else None

    def are_new(self, writes: Sequence[Message | RemoveMessage]) -> bool:
        """Whether all of them are messages, and have ids of their own that are not in it."""
        ids = {one.id for one in writes}
        return (
            len(ids) == len(writes)
            and self._places.keys().isdisjoint(ids)
            and not any(type(one) is RemoveMessage for one in writes)
        )

    def appended(self, messages: Sequence[Message]) -> Transcript:
        """Return the transcript with further messages, whose ids are new and distinct."""
        with _growing:
            if len(self._shared) == self._length:
                grown = Transcript.__new__(Transcript)
                grown._shared, grown._places = self._shared, self._places
                for place, message in enumerate(messages, self._length):
                    grown._places[message.id] = place
                grown._shared.extend(messages)
                grown._length = len(grown._shared)
                return grown
        return Transcript([*self, *messages])  # what is shared goes on with somebody else's

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Message | list[Message]:
        places = range(self._length)[index]
        if isinstance(places, int):
            return self._shared[places]
        if places.step == 1:
            return self._shared[places.start : places.stop]
        return [self._shared[place] for place in places]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._shared, self._length)

    def __reversed__(self) -> Iterator[Message]:
        return islice(reversed(self._shared), len(self._shared) - self._length, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Transcript):
            return NotImplemented
        return [*self] == [*cast("Iterable[object]", other)]

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as of a list

    def __add__(self, other: Iterable[Message]) -> list[Message]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Message]) -> list[Message]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr([*self])


def add_messages(
    current: Sequence[Message], write: Iterable[Message | RemoveMessage]
) -> Transcript:
    """Merge a write into a transcript.

    A known id replaces that message in place, a new one is appended, `RemoveMessage` deletes.

    Raises:
        ValueError: A `RemoveMessage` names an id that is not there.
    """
    merged = current if isinstance(current, Transcript) else Transcript(current)
    writes = [*write]
    if writes and merged.are_new(writes):  # as nearly always
        return merged.appended(cast("Sequence[Message]", writes))
    fresh: dict[str, Message] = {}
    for message in writes:
        place = merged.place(message.id)
        if place is None and message.id not in fresh and not isinstance(message, RemoveMessage):
            fresh[message.id] = message  # one appending for many is faster
            continue
        if fresh:
            merged = merged.appended([*fresh.values()])
            fresh = {}
            place = merged.place(message.id)
        if not isinstance(message, RemoveMessage):
            assert place is not None
            merged = Transcript([*merged[:place], message, *merged[place + 1 :]])
        elif message.id == REMOVE_ALL:
            merged = Transcript()
        elif place is not None:
            merged = Transcript([*merged[:place], *merged[place + 1 :]])
        else:
            raise ValueError(f"cannot remove message {message.id!r}: it is not in the thread")
    return merged.appended([*fresh.values()]) if fresh else merged


_KINDS = {
    "image": "an image",
    "document": "a document",
    "audio": "a recording",
    "video": "a film",
}


def transcript_text(messages: Sequence[Message]) -> str:
    """Return messages as text; thinking is left out, and of images and the like all but that."""
    return "\n\n".join(map(_message_text, messages))


def _message_text(message: Message) -> str:
    if isinstance(message, AIMessage):
        parts = [
            block.text if isinstance(block, TextBlock) else _call_text(block)
            for block in message.content
            if isinstance(block, TextBlock | ToolCall)
        ]
        return "\n".join(["[assistant]", *parts])
    text = message.text
    if not isinstance(message.content, str):
        text += "".join(f"\n({_KINDS[one.type]})" for one in message.content if is_media(one))
    if isinstance(message, HumanMessage):
        return f"[user]\n{text}" if message.source is None else f"[{message.source}]\n{text}"
    failed = ", failed" if message.status == "error" else ""
    return f"[result of {message.name} {message.tool_call_id}{failed}]\n{text}"


def _call_text(call: ToolCall) -> str:
    args = json.dumps(call.args, ensure_ascii=False) if call.invalid is None else call.invalid
    return f"(calls {call.name} {call.id}: {args})"
