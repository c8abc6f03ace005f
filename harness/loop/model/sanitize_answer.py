"""Answer sanitizing: turns an answer into one the journal can store and read again.

Halves of surrogate pairs come where a stream was cut inside of a character, or as escapes in JSON
arguments; hardly any provider takes them back. Arguments nested too deeply come from a model that
has lost its way.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from pydantic import JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from ..._internal.json_bounds import MAX_DEPTH, is_too_deep
from ..._internal.records import changed
from ...messages.message import (
    AIMessage,
    AnswerBlock,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from ...redaction.values import clean_json

__all__ = ["sanitize_answer"]


def sanitize_answer(message: AIMessage) -> AIMessage:
    """Return a model's answer as it can be stored; nearly always the same object.

    Each half of a surrogate pair becomes U+FFFD, in texts, names, ids and arguments, their keys
    too. A call whose arguments are nested too deeply becomes an invalid one.
    """
    if any(is_too_deep(call.args) for call in message.tool_calls):
        message = changed(message, content=tuple([_readable(one) for one in message.content]))
    try:
        _require_whole(message)
    except (PydanticSerializationError, UnicodeEncodeError):
        answer = TypeAdapter(AIMessage)  # few answers need it
        data: Any = answer.dump_python(message)
        data["content"] = list(data["content"])
        return answer.validate_python(clean_json(data, _whole))
    return message


def _readable(block: AnswerBlock) -> AnswerBlock:
    if isinstance(block, ToolCall) and is_too_deep(block.args):
        return changed(
            block, args={}, invalid=f"(more than {MAX_DEPTH} levels of objects and lists)"
        )
    return block


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
                texts += _texts(args)
            case ProviderBlock():
                to_json(block.data)
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()


def _texts(args: Mapping[str, JsonValue]) -> Generator[str]:
    """Yield texts of arguments, and raise for what is nested as `_require_whole` does.

    The text of a file is not copied into JSON to be looked at.
    """
    for name, value in args.items():
        yield name
        if isinstance(value, str):
            yield value
        else:
            to_json(value)


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
