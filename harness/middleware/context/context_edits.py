"""Context edits: the protocol, and the built-in edits, which clear old tool results and arguments.

The edited messages are the same objects each time, so code that caches by identity recognizes
them. A cached edit is first compared with the transcript, message by message and by identity, so a
message that was replaced in the transcript is never shown in its old form.

Old calls that wrote a file are shown without the written text, which is in the file and in the
transcript. Calls are shortened up to a mark that rarely moves, so the provider's prompt cache stays
valid.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from pydantic import JsonValue

from ..._internal.records import record
from ...errors import AgentBuildError
from ...messages.message import AIMessage, Message, ToolCall, ToolMessage
from ...models.base import messages_tokens

__all__ = [
    "WRITING_TOOLS",
    "ClearToolUsesEdit",
    "ContextEdit",
    "EditedPrefixes",
    "Frontier",
    "frontier_place",
    "shortened",
]


_STEP = 10
"""The smallest fraction of the trigger that a move frees, so that moves are rare."""


@record
class Frontier:
    """The reach of an edit in a transcript.

    Attributes:
        upto_message_id: The last message it may change.
        upto_index: The index of that message; a hint that saves a search.
        made_at: Length of the transcript when the frontier moved there.
    """

    upto_message_id: str
    upto_index: int = 0
    made_at: int = 0


class ContextEdit(Protocol):
    """Decides how, and how far, the transcript is shown edited."""

    def advance(
        self, messages: Sequence[Message], view: Sequence[Message], start: int, tokens: int
    ) -> int | None:
        """Return the new place of the frontier, or None to leave it where it is.

        Args:
            messages: The transcript.
            view: The transcript with everything before the frontier edited.
            start: The index of the frontier; everything before it is edited or not shown.
            tokens: The current tokens of the request.
        """
        ...

    def edited(self, stretch: Sequence[Message]) -> Sequence[Message]:
        """Return the messages before the frontier edited, one for one, with the same ids."""
        ...


def frontier_place(messages: Sequence[Message], frontier: Frontier | None) -> int:
    """Return the index of the first message after a frontier; 0 if it is not in the transcript."""
    if frontier is None:
        return 0
    place = frontier.upto_index
    if place < len(messages) and messages[place].id == frontier.upto_message_id:
        return place + 1
    places = range(len(messages) - 1, -1, -1)
    found = (at for at in places if messages[at].id == frontier.upto_message_id)
    return next(found, -1) + 1


@record
class ClearToolUsesEdit:
    """Replaces the contents of old tool results by a placeholder.

    Attributes:
        trigger: Tokens of a request above which results are cleared.
        clear_at_least: The fewest tokens to free; otherwise nothing is cleared. It is at least a
            tenth of `trigger`, because clearing invalidates the provider's prompt cache.
        keep: How many of the newest results stay. Results that the model has not seen always do.
        clear_tool_inputs: Whether to clear the arguments of the calls too.
        exclude_tools: Tools whose results stay and are not counted.
        placeholder: The text shown instead. Results that are not longer than it stay.

    Raises:
        AgentBuildError: A number is out of range.
    """

    trigger: int = 100_000
    clear_at_least: int = 0
    keep: int = 3
    clear_tool_inputs: bool = False
    exclude_tools: Collection[str] = ()
    placeholder: str = "[cleared]"

    def __post_init__(self) -> None:
        if self.trigger < 1 or self.clear_at_least < 0 or self.keep < 0:
            raise AgentBuildError(
                "ClearToolUsesEdit needs trigger 1 or more, clear_at_least and keep 0 or more; got "
                f"trigger={self.trigger}, clear_at_least={self.clear_at_least}, keep={self.keep}"
            )
        if isinstance(self.exclude_tools, str):
            raise AgentBuildError(
                f"exclude_tools is a collection of names; write [{self.exclude_tools!r}]"
            )

    def advance(
        self, messages: Sequence[Message], view: Sequence[Message], start: int, tokens: int
    ) -> int | None:
        """See `ContextEdit`."""
        if tokens <= self.trigger:
            return None
        names = _call_names(messages[start:])
        results = [
            place for place in range(start, len(messages)) if self._clears(messages[place], names)
        ]
        if len(results) <= self.keep:
            return None
        target = results[-self.keep] if self.keep else len(messages)
        target = min(target, _seen_upto(messages))
        if target <= start:
            return None
        freed = messages_tokens(view[start:target])
        freed -= messages_tokens(self.edited(messages[start:target]))
        return target if freed >= max(self.clear_at_least, self.trigger // _STEP, 1) else None

    def edited(self, stretch: Sequence[Message]) -> Sequence[Message]:
        """See `ContextEdit`."""
        names = _call_names(stretch)
        made: list[Message] = []
        cleared: dict[int, set[str]] = {}  # the ids, by the place of the answer that called
        answer = -1
        for place, message in enumerate(stretch):
            if isinstance(message, AIMessage):
                answer = place  # ids may come again: a result belongs to the answer before it
            if isinstance(message, ToolMessage) and self._clears(message, names):
                cleared.setdefault(answer, set()).add(message.tool_call_id)
                message = self._cleared(message)
            made.append(message)
        if self.clear_tool_inputs:
            for place, ids in cleared.items():
                if place >= 0:
                    made[place] = _without_inputs(made[place], ids)
        return made

    def _clears(self, message: Message, names: Mapping[str, str]) -> bool:
        if not isinstance(message, ToolMessage):
            return False
        return (message.name or names.get(message.tool_call_id)) not in self.exclude_tools

    def _cleared(self, message: ToolMessage) -> ToolMessage:
        content = message.content
        if isinstance(content, str) and len(content) <= len(self.placeholder):
            return message
        return replace(message, content=self.placeholder)


def _call_names(messages: Sequence[Message]) -> Mapping[str, str]:
    return {
        call.id: call.name
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }


def _seen_upto(messages: Sequence[Message]) -> int:
    """Return the index of the first message that no answer has seen yet."""
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], AIMessage):
            return place
    return 0


def _without_inputs(message: Message, cleared: Collection[str]) -> Message:
    """Return an answer whose cleared calls have no arguments, but are still calls."""
    if not isinstance(message, AIMessage):
        return message
    if not any(call.id in cleared and call.args for call in message.tool_calls):
        return message
    content = tuple(
        replace(block, args={}) if isinstance(block, ToolCall) and block.id in cleared else block
        for block in message.content
    )
    return replace(message, content=content)


class _EditedTranscripts:
    """Cache of the last edited transcripts.

    Args:
        size: How many are cached.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._known: OrderedDict[str, tuple[Hashable, Sequence[Message], Sequence[Message]]] = (
            OrderedDict()
        )

    def _keep(
        self,
        key: str,
        terms: Hashable,
        messages: Sequence[Message],
        edited: Sequence[Message],
    ) -> Sequence[Message]:
        self._known[key] = (terms, messages, edited)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return edited


class EditedPrefixes(_EditedTranscripts):
    """Cache of edited beginnings of transcripts; keeps those used last.

    A beginning is edited again if its end, its terms or one of its messages has changed.
    """

    def get(
        self,
        key: str,
        terms: Hashable,
        messages: Sequence[Message],
        end: int,
        edit: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> Sequence[Message]:
        """Return the first `end` messages, edited.

        Args:
            key: The key of the transcript.
            terms: Everything the edit depends on besides the messages.
            messages: The transcript.
            end: The index where its beginning ends.
            edit: Makes the edited messages; called if they are not cached.
        """
        known = self._known.pop(key, None)
        if known is None or known[0] != terms or not _begins(messages, known[1], end):
            stretch = messages[:end]
            known = (terms, stretch, edit(stretch))
        return self._keep(key, *known)


def _begins(messages: Sequence[Message], stretch: Sequence[Message], end: int) -> bool:
    same = len(stretch) == end <= len(messages)
    return same and all(map(operator.is_, islice(messages, end), stretch))


class EditedMessages(_EditedTranscripts):
    """Cache of whole transcripts, edited message by message; keeps those used last.

    Only new messages are edited, unless the terms or an earlier message have changed.
    """

    def get(
        self,
        key: str,
        terms: Hashable,
        messages: Sequence[Message],
        edit: Callable[[Message], Message],
    ) -> Sequence[Message]:
        """Return the edited messages; the transcript itself if nothing changes.

        Args:
            key: Names the transcript.
            terms: What the edit depends on besides the message.
            messages: The transcript.
            edit: Returns a message edited, or itself.
        """
        known = self._known.pop(key, None)
        if known is None or known[0] != terms or not _begins(messages, known[1], len(known[1])):
            known = (terms, (), ())
        stretch, edited = known[1], known[2]
        new = messages[len(stretch) :]
        made = [edit(one) for one in new]
        same = edited is stretch and all(map(operator.is_, made, new))
        view = messages if same else [*edited, *made]
        return self._keep(key, terms, messages, view)


WRITING_TOOLS = frozenset({"write_file", "edit_file"})

_KEPT = 20


def shortened(messages: Sequence[Message], most: int) -> list[Message]:
    """Return the messages with arguments of writing calls cut that are longer than `most`.

    Failed calls keep their arguments, because the text was not written to a file.
    """
    failed: dict[int, set[str]] = {}
    answer = -1
    for place, one in enumerate(messages):
        if isinstance(one, AIMessage):
            answer = place
        elif isinstance(one, ToolMessage) and one.status == "error":
            failed.setdefault(answer, set()).add(one.tool_call_id)
    return [
        _short(one, most, failed.get(place, ())) if isinstance(one, AIMessage) else one
        for place, one in enumerate(messages)
    ]


def _short(answer: AIMessage, most: int, failed: Collection[str]) -> AIMessage:
    if not any(call.name in WRITING_TOOLS for call in answer.tool_calls):
        return answer
    blocks = tuple(
        _short_call(one, most) if isinstance(one, ToolCall) and one.id not in failed else one
        for one in answer.content
    )
    same = all(new is old for new, old in zip(blocks, answer.content, strict=True))
    return answer if same else replace(answer, content=blocks)


def _short_call(call: ToolCall, most: int) -> ToolCall:
    if call.name not in WRITING_TOOLS:
        return call
    args: dict[str, JsonValue] = {name: _cut(value, most) for name, value in call.args.items()}
    return replace(call, args=args) if args != call.args else call


def _cut(value: JsonValue, most: int) -> JsonValue:
    if not isinstance(value, str) or len(value) <= most:
        return value
    left_out = len(value) - _KEPT
    return f"{value[:_KEPT]}… [{left_out} characters not shown; the file has what it says now]"
