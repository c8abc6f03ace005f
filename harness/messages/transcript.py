"""Transcript: the messages of a thread, the reducer that adds to them, and their text form.

Calls and results are kept in pairs, because providers refuse a transcript in which one lacks the
other. A crash, a cancelled run, an unanswered question, or a write from outside leaves calls
without a result, or results without a call.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
    ToolMessage,
    is_media,
)

__all__ = ["Transcript", "add_messages", "paired", "transcript_text"]


_growing = threading.Lock()
"""Held while what transcripts share grows: agents in several threads may know the same one."""


class Transcript(Sequence[Message]):
    """The messages of a thread: a list that never changes. Appending makes another one.

    That takes no longer in a long thread: a transcript and those grown from it share one list and
    one index of ids, whose entries beyond its own length are not its own. A slice is a list.

    Args:
        messages: Its messages, whose ids are distinct.
    """

    __slots__ = ("_length", "_places", "_shared", "_valid")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._shared = [*messages]
        self._valid = [0]
        self._length = len(self._shared)
        self._places = {message.id: place for place, message in enumerate(self._shared)}

    def place(self, message_id: str) -> int | None:
        """Return the position of the message with this id, or None."""
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
                grown._valid = self._valid
                for place, message in enumerate(messages, self._length):
                    grown._places[message.id] = place
                grown._shared.extend(messages)
                grown._length = len(grown._shared)
                return grown
        return Transcript([*self, *messages])  # what is shared goes on with somebody else's

    @property
    def valid(self) -> int:
        """How many messages, from the first, are known to be a valid conversation."""
        known = self._valid[0]
        return known if known <= self._length else 0  # else of one that is longer

    def note_valid(self) -> None:
        """Note that all of it is, so that only what is appended has to be looked at."""
        self._valid[0] = max(self._valid[0], self._length)

    def since(self, start: int) -> Iterator[Message]:
        """Iterate over the messages from a place on."""
        return islice(self._shared, start, self._length)

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


@dataclass(slots=True)
class _Turn:
    """A message and, for an answer, the results of its calls."""

    message: Message
    results: list[ToolMessage] = field(default_factory=list[ToolMessage])

    def missing(self) -> list[ToolCall]:
        if not isinstance(self.message, AIMessage):
            return []
        answered = Counter(one.tool_call_id for one in self.results)
        missing: list[ToolCall] = []
        for call in self.message.tool_calls:
            if answered[call.id] > 0:
                answered[call.id] -= 1
            else:
                missing.append(call)
        return missing


def paired(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with every call followed by exactly one result.

    The same object if they are so already. A call without a result gets an error result directly
    after the results its answer has. A result without a call is left out, and one that stands
    elsewhere is moved to its answer: the latest one before it that holds an open call of its id,
    as models may number their calls anew in each answer.
    """
    if not isinstance(messages, Transcript):
        return messages if _are_paired(messages) else _paired(messages)
    if not _are_paired(messages.since(messages.valid)):
        return _paired(messages)
    messages.note_valid()
    return messages


def _are_paired(messages: Iterable[Message]) -> bool:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        elif isinstance(message, AIMessage):
            waiting = [call.id for call in message.tool_calls]
    return not waiting


def _paired(messages: Sequence[Message]) -> list[Message]:
    turns: list[_Turn] = []
    open_calls: dict[str, list[_Turn]] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            if waiting := open_calls.get(message.tool_call_id):
                waiting.pop().results.append(message)
            continue
        turn = _Turn(message)
        turns.append(turn)
        if isinstance(message, AIMessage):
            for call_id, times in Counter(call.id for call in message.tool_calls).items():
                open_calls[call_id] = [turn] * times
    made: list[Message] = []
    for turn in turns:
        made += (turn.message, *turn.results)
        made += map(_error_result, turn.missing())
    return made


def _error_result(call: ToolCall) -> ToolMessage:
    if call.invalid is not None:
        text = (
            f"{call.name} was not run: its arguments were not a JSON object. "
            "Call it again with valid arguments if it is still needed."
        )
    else:
        text = (
            f"The run stopped before {call.name} had a result. It may or may not have taken "
            "effect: check that before you call it again."
        )
    return ToolMessage(call.id, text, name=call.name, status="error")
