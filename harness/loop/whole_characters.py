"""Answers without halves of surrogate pairs, which no journal, and hardly any provider, takes.

Models send them where a stream was cut inside of a character, or as escapes in JSON arguments.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from harness.messages import (
    AIMessage,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from harness.redaction.values import clean_json

__all__ = ["whole_characters"]


def whole_characters(message: AIMessage) -> AIMessage:
    """Return a model's answer with U+FFFD for each half of a pair; nearly always the same object.

    Texts, names, ids and arguments are looked at, their keys too.
    """
    try:
        _require_whole(message)
    except (PydanticSerializationError, UnicodeEncodeError):
        answer = TypeAdapter(AIMessage)  # few answers need it
        data: Any = answer.dump_python(message)
        data["content"] = list(data["content"])
        return answer.validate_python(clean_json(data, _whole))
    return message


def _require_whole(message: AIMessage) -> None:
    """Raise if there is half of a pair; serialising the message would take forty times as long."""
    texts: list[str | None] = [message.id, message.model, message.name, message.stop_reason]
    for block in message.content:
        match block:
            case TextBlock(text):
                texts.append(text)
            case ThinkingBlock(thinking, signature):
                texts += (thinking, signature)
            case RedactedThinkingBlock(data):
                texts.append(data)
            case ToolCall(call_id, name, args, invalid):
                texts += (call_id, name, invalid)
                to_json(args)
            case ProviderBlock():
                to_json(block.data)
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
