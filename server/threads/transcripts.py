"""A thread's messages as Markdown, for people and for models that read up on it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...harness.messages.message import AIMessage, HumanMessage, Message, ToolCall, ToolMessage

__all__ = ["transcript"]

MAX_TEXT_CHARS = 20_000
"""Of one message; its beginning is shown when it is longer."""


def transcript(thread_id: str, messages: Sequence[Message]) -> str:
    """Return all messages of a thread, oldest first."""
    parts = [f"# Thread {thread_id}"]
    if not messages:
        parts.append("No messages yet.")
    for message in messages:
        match message:
            case HumanMessage():
                who = "User" if message.source is None else f"Notice from {message.source}"
                parts.append(f"## {who}\n\n{_shown(message.text)}")
            case AIMessage():
                parts.append(_answer(message))
            case ToolMessage():
                failed = " (failed)" if message.status == "error" else ""
                parts.append(f"### Result of {message.name}{failed}\n\n{_fenced(message.text)}")
    return "\n\n".join(parts) + "\n"


def _answer(message: AIMessage) -> str:
    who = "Client" if message.source == "client" else f"Agent {message.name or ''}".rstrip()
    lines = [f"## {who}"]
    if message.text:
        lines.append(_shown(message.text))
    lines += [_call(call) for call in message.tool_calls]
    return "\n\n".join(lines)


def _call(call: ToolCall) -> str:
    args = call.invalid if call.invalid is not None else json.dumps(call.args, ensure_ascii=False)
    return f"Calls `{call.name}`:\n\n{_fenced(args)}"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{_shown(text)}\n{fence}"


def _backticks(text: str) -> list[str]:
    runs = [""]
    for char in text:
        if char == "`":
            runs[-1] += char
        elif runs[-1]:
            runs.append("")
    return runs


def _shown(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:MAX_TEXT_CHARS]}\n[… {len(text) - MAX_TEXT_CHARS} more characters]"
