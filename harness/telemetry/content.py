"""Messages in the shape of the GenAI conventions, as JSON text. Only made when asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue
from pydantic_core import to_json

from ..loop.run.context import current_agent
from ..messages.message import (
    AIMessage,
    AnswerBlock,
    Content,
    HumanMessage,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from ..models.base import PromptSection
from ..redaction.values import clean_json

if TYPE_CHECKING:
    from ..redaction.rules import Redactor

__all__ = ["answer_json", "call_json", "clean_text", "messages_json", "result_json", "system_json"]

_TEXT = 16_384
"""Characters of one text, such as a tool's result."""

_MOST = 131_072
"""Characters of all that one attribute holds: collectors refuse what is too large."""

_Part = dict[str, JsonValue]


def system_json(sections: Sequence[PromptSection]) -> str:
    """Return the system prompt."""
    return _json([_text(one.text) for one in sections])


def messages_json(messages: Sequence[Message]) -> str:
    """Return what a model is given. Of images and the like it says only what they are.

    Of a conversation that is too long the newest part is left.
    """
    shown: list[JsonValue] = []
    room = _MOST
    for number, one in enumerate(reversed(messages)):
        data = _bounded(_clean(_message(one)))
        room -= len(_encoded(data))
        if room < 0 and shown:
            left_out = _text(f"({len(messages) - number} earlier messages are left out)")
            shown.append({"role": "system", "parts": [left_out]})
            break
        shown.append(data)
    return _encoded(shown[::-1])


def answer_json(answer: AIMessage) -> str:
    """Return what a model has answered."""
    parts: JsonValue = [_answered(block) for block in answer.content]
    reason = answer.stop_reason or "stop"
    return _json([{"role": "assistant", "parts": parts, "finish_reason": reason}])


def call_json(call: ToolCall) -> str:
    """Return the arguments of a call."""
    return _json(call.args)


def result_json(message: ToolMessage) -> str:
    """Return the result of a call."""
    return _json(_result(message.content))


def clean_text(text: str) -> str:
    """Return a text as it may leave the process: redacted, and made of whole characters."""
    redactor = _redactor()
    text = text if redactor is None else redactor(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _message(message: Message) -> JsonValue:
    match message:
        case HumanMessage():
            return {"role": "user", "parts": _parts(message.content)}
        case AIMessage():
            return {"role": "assistant", "parts": [_answered(one) for one in message.content]}
        case ToolMessage():
            result: _Part = {"type": "tool_call_response", "id": message.tool_call_id}
            result["response"] = _result(message.content)
            return {"role": "tool", "parts": [result]}


def _answered(block: AnswerBlock) -> JsonValue:
    match block:
        case TextBlock(text):
            return _text(text)
        case ThinkingBlock(thinking):
            return {"type": "reasoning", "content": thinking}
        case ToolCall(call_id, name, args, invalid):
            given: JsonValue = args if invalid is None else invalid
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        case RedactedThinkingBlock():
            return {"type": block.type}
        case _:
            return {"type": block.type, "provider": block.provider}


def _parts(content: Content) -> JsonValue:
    if isinstance(content, str):
        return [_text(content)]
    parts: list[JsonValue] = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append(_text(block.text))
        else:
            parts.append({"type": "media", "modality": block.type, "mime_type": block.media_type})
    return parts


def _result(content: Content) -> JsonValue:
    return content if isinstance(content, str) else _parts(content)


def _text(text: str) -> _Part:
    return {"type": "text", "content": text}


def _redactor() -> Redactor | None:
    """Return what cleans all that the agent at work takes in and gives out."""
    agent = current_agent()
    if agent is None or not agent.run.screens:
        return None
    screen = agent.run.screen_of(agent.runtime.agent_path)
    return None if screen is None else screen.at(lenient=True)


def _clean(value: JsonValue) -> JsonValue:
    redactor = _redactor()
    return value if redactor is None else clean_json(value, redactor)


def _json(value: JsonValue) -> str:
    return _encoded(_bounded(_clean(value)))


def _bounded(value: JsonValue) -> JsonValue:
    """Return data that is no larger than a span may be; what is redacted was so before."""
    cut = _cut(value)
    text = _encoded(cut)
    return cut if len(text) <= _MOST else _shortened(text, _MOST // 2)


def _cut(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _shortened(value, _TEXT)
        case list():
            return [_cut(one) for one in value]
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case _:
            return value


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _encoded(value: JsonValue) -> str:
    try:
        return to_json(value).decode()
    except ValueError:  # half a character, such as in the name of a file
        return json.dumps(value)
