"""Chat model protocol: messages and tools in, deltas and one answer out; token estimates.

Errors that say a request is too large for the model are recognised.

Token estimates need no tokenizer and are good enough to decide when a request is large. Text counts
a quarter token per ASCII character and about one per CJK character; an image has a flat price. Real
counts come from the provider with each answer (`reported_tokens`). Compare estimates with limits
that leave some room; never bill them.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeAlias, cast

from pydantic import JsonValue

from .._internal.records import IdentityCache, record
from ..errors import ModelError
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
from ..tools.schemas import ToolSpec
from ..tools.tool import Tool

__all__ = [
    "ChatModel",
    "ChatRequest",
    "Delta",
    "PromptSection",
    "RunningCount",
    "ToolChoice",
    "connection_lost",
    "is_overflow",
    "json_tokens",
    "message_tokens",
    "messages_tokens",
    "reported_tokens",
    "system_tokens",
    "text_tokens",
    "tools_tokens",
]


@record
class PromptSection:
    """A named part of the system prompt.

    A deep agent's prompt begins with `base` (the same for all), `profile` (for its model) and
    `agent` (from its author); sections of middleware follow.

    Attributes:
        name: Who owns it, such as `agent`, `filesystem` or `skills`.
        text: What the model reads.
        cache: Ask the provider to cache the prompt up to and including this section.
    """

    name: str
    text: str
    cache: bool = False

    @property
    def version(self) -> str:
        """Eight hex digits that another text has others of; to compare prompts and log them."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


ToolChoice: TypeAlias = Literal["auto", "any", "none"] | str
"""`auto`, `any` (some tool), `none`, or the name of one tool."""


def _nothing() -> None:
    pass


@record
class ChatRequest:
    """One model call.

    Attributes:
        messages: The transcript as the model shall see it.
        system: Sections of the system prompt, in order.
        tools: Tools of ours, and provider-side tools as raw mappings.
        tool_choice: Whether and what the model must call.
        settings: Provider parameters such as `max_tokens` or `thinking`; sent only when set.
        cache_messages: Indices of messages after which the provider shall set a cache breakpoint.
        output_schema: JSON schema the answer's text must fit; only for models with
            `native_output`.
        agent: Name of the agent that asks; for scripts and traces, never sent to a provider.
        unasked: To be called by a model that asks others, once, when the call ends before any of
            them has been asked: then it does not count.
    """

    messages: Sequence[Message]
    system: Sequence[PromptSection] = ()
    tools: Sequence[ToolSpec | Mapping[str, JsonValue]] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache_messages: Sequence[int] = ()
    output_schema: Mapping[str, JsonValue] | None = None
    agent: str = ""
    unasked: Callable[[], None] = _nothing


@record
class Delta:
    """A piece of an answer that is being produced.

    Attributes:
        kind: `text`, `thinking`, or `tool_args` (a fragment of a call's JSON arguments).
        text: The piece.
        tool_call_id: The call, for `tool_args`.
        tool_name: Its tool.
    """

    kind: Literal["text", "thinking", "tool_args"]
    text: str
    tool_call_id: str | None = None
    tool_name: str | None = None


class ChatModel(Protocol):
    """A chat model. Implementations are safe for concurrent calls."""

    @property
    def name(self) -> str:
        """Full name, such as `anthropic:claude-…`."""
        ...

    @property
    def context_window(self) -> int | None:
        """Input tokens the model accepts, if known."""
        ...

    @property
    def native_output(self) -> bool:
        """Whether it honours `ChatRequest.output_schema`."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield deltas and, last, exactly one `AIMessage`.

        Arguments of a call that are not a JSON object come back as `ToolCall.invalid`, not as an
        error. Closing the iterator stops the call.

        Raises:
            ModelError: The call failed after the provider's own retries.
        """
        ...

    async def aclose(self) -> None:
        """Release connections, if it holds any; the model can be used again."""
        ...


def connection_lost(model: ChatModel, error: BaseException) -> ModelError:
    """Return the error for what a model lets through when it could not be reached."""
    text = f"{model.name} could not be reached: {type(error).__name__}: {error}".rstrip(": ")
    return ModelError(f"{text}. No answer was kept.", kind="connection", retryable=True)


# Anthropic's own wordings first, then those of servers that speak the same protocol.
_OVERFLOW_MARKERS = (
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum allowed number of input tokens",
    "context window",
    "maximum context length",
    "context length",
    "context size",
    "input is too long",
)


def is_overflow(message: str) -> bool:
    """Whether a refusal says that the request is larger than the model's window."""
    lowered = message.lower()
    return any(marker in lowered for marker in _OVERFLOW_MARKERS)


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
