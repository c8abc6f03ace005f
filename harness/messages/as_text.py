"""Messages as text for a model to read: for summaries, and for the history in files."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .message import AIMessage, HumanMessage, Message, TextBlock, ToolCall, is_media

__all__ = ["transcript_text"]


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
