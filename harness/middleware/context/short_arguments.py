"""Old calls that wrote a file, shown without the text they wrote.

The text is in the file, and in the log; in the view it only takes room. Calls are shortened up to
a mark that moves seldom, so that the provider's prompt cache holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pydantic import JsonValue

from ...messages.message import AIMessage, Message, ToolCall, ToolMessage

__all__ = ["WRITING_TOOLS", "shortened"]

WRITING_TOOLS = frozenset({"write_file", "edit_file"})

_KEPT = 20


def shortened(messages: Sequence[Message], most: int) -> list[Message]:
    """Return the messages with arguments of writing calls cut that are longer than `most`.

    Calls that failed keep theirs: what they did not write is nowhere else.
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
