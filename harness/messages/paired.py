"""Calls and results in pairs: providers refuse a transcript in which one lacks the other.

A crash, a cancelled run, a question that was never answered, or a write from outside leaves calls
without a result, or results without a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .message import AIMessage, Message, ToolCall, ToolMessage
from .transcript import Transcript

__all__ = ["paired"]


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
