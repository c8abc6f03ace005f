"""Token estimates: cheap, without a tokenizer, and good enough to decide when a request is large.

Text counts a quarter token per ASCII character and about one per CJK character; an image has a
flat price. Real counts come from the provider with each answer (`reported_tokens`). Estimates are
meant to be compared with limits that leave some room, never to be billed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from .._internal.records import IdentityCache
from ..messages.message import (
    AIMessage,
    Content,
    ImageBlock,
    MediaBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from ..tools.tool import Tool
from .base import PromptSection

__all__ = [
    "RunningCount",
    "json_tokens",
    "message_tokens",
    "messages_tokens",
    "reported_tokens",
    "system_tokens",
    "text_tokens",
    "tools_tokens",
]

_PER_MESSAGE = 4
_PER_BLOCK = 8
_PER_IMAGE = 1_600
_CHARS_PER_TOKEN = 40
"""Of the base64 of a document or recording: a page of a PDF has about 80,000 and costs 2,000."""
_MAX_CACHED = 4_096

_tool_costs: dict[int, tuple[weakref.ref[Tool], int]] = {}


def text_tokens(text: str) -> int:
    """Return the estimated tokens of a text; at least 1 unless it is empty."""
    if text.isascii():
        return (len(text) + 3) // 4
    beyond_ascii = len(text.encode("utf-8", "surrogatepass")) - len(text)
    return (3 * len(text) + 4 * beyond_ascii + 11) // 12


def json_tokens(value: object) -> int:
    """Return the estimated tokens of JSON data, written out."""
    if isinstance(value, str):
        return text_tokens(value) + 1
    if isinstance(value, Mapping):
        items = cast(Mapping[str, object], value).items()
        return 1 + sum([text_tokens(key) + 1 + json_tokens(item) for key, item in items])
    if isinstance(value, (list, tuple)):
        return 1 + sum(json_tokens(item) for item in cast(Sequence[object], value))
    return 1


def _content_tokens(content: Content) -> int:
    if isinstance(content, str):
        return text_tokens(content)
    return sum(
        text_tokens(block.text) if isinstance(block, TextBlock) else _media_tokens(block)
        for block in content
    )


def _media_tokens(block: MediaBlock) -> int:
    if isinstance(block, ImageBlock):
        return _PER_IMAGE
    return max(_PER_IMAGE, len(block.data) // _CHARS_PER_TOKEN)


def _answer_tokens(answer: AIMessage) -> int:
    total = 0
    for block in answer.content:
        if isinstance(block, TextBlock):
            total += text_tokens(block.text)
        elif isinstance(block, ToolCall):
            total += _PER_BLOCK + text_tokens(block.name) + json_tokens(block.args)
            total += text_tokens(block.invalid or "")
        elif isinstance(block, ThinkingBlock):
            total += text_tokens(block.thinking)
        elif isinstance(block, ProviderBlock):
            total += _PER_BLOCK + json_tokens(block.data)
        else:
            total += text_tokens(block.data)
    return total


def message_tokens(message: Message) -> int:
    """Return the estimated tokens of one message."""
    if isinstance(message, AIMessage):
        return _PER_MESSAGE + _answer_tokens(message)
    return _PER_MESSAGE + _content_tokens(message.content)


def messages_tokens(messages: Iterable[Message]) -> int:
    """Return the estimated tokens of some messages."""
    return sum(map(message_tokens, messages))


def system_tokens(system: Iterable[PromptSection]) -> int:
    """Return the estimated tokens of a system prompt."""
    return sum([text_tokens(section.text) for section in system])


def _tool_tokens(tool: Tool) -> int:
    known = _tool_costs.get(id(tool))
    if known is not None and known[0]() is tool:
        return known[1]
    cost = _PER_BLOCK + text_tokens(tool.name) + text_tokens(tool.description)
    cost += json_tokens(tool.parameters)
    if len(_tool_costs) >= _MAX_CACHED:
        _tool_costs.clear()
    _tool_costs[id(tool)] = (weakref.ref(tool), cost)
    return cost


def tools_tokens(tools: Iterable[Tool | Mapping[str, JsonValue]]) -> int:
    """Return the estimated tokens of tool schemas, which count like any other input."""
    return _offered(tools) if isinstance(tools, tuple) else _sum_of(tools)


def _sum_of(tools: Iterable[Tool | Mapping[str, JsonValue]]) -> int:
    return sum(
        _tool_tokens(tool) if isinstance(tool, Tool) else _PER_BLOCK + json_tokens(tool)
        for tool in tools
    )


_offered = IdentityCache(_sum_of)


def reported_tokens(messages: Sequence[Message], since: int = 0) -> int | None:
    """Return what the next request costs at least, by the provider's own count.

    That is all tokens of the last answer's call, system prompt and tools included, plus an
    estimate of the messages after it.

    Args:
        messages: The transcript.
        since: Index from which on answers saw the same view as the next one will; usage of an
            older answer says nothing any more.

    Returns:
        The tokens, or None if the last answer is older than `since` or came without usage.
    """
    for index in range(len(messages) - 1, since - 1, -1):
        message = messages[index]
        if isinstance(message, AIMessage):
            if message.usage is None:
                return None
            usage = message.usage
            paid = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
            return paid + usage.output_tokens + messages_tokens(messages[index + 1 :])
    return None


class RunningCount:
    """Counts transcripts that mostly grow at the end, at the cost of what is new.

    It remembers, for the threads counted last, how far it got. A transcript that was replaced or
    cut is counted afresh; a message replaced in the middle is noticed at the next such moment.
    """

    def __init__(self, max_threads: int = 1_024) -> None:
        self._max_threads = max_threads
        self._known: dict[str, tuple[int, Message, Message, int]] = {}

    def count(self, key: str, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of a transcript; `key` names the thread it belongs to."""
        if not messages:
            return 0
        known = self._known.pop(key, None)
        start, total = 0, 0
        if known is not None:
            length, first, last, counted = known
            if length <= len(messages) and messages[0] is first and messages[length - 1] is last:
                start, total = length, counted
        total += messages_tokens(messages[start:])
        if len(self._known) >= self._max_threads:
            del self._known[next(iter(self._known))]
        self._known[key] = (len(messages), messages[0], messages[-1], total)
        return total
