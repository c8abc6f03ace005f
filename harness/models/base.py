"""Chat model protocol: messages and tools in, deltas and one answer out; token estimates.

`is_overflow` recognises errors for requests that are too large for the model.

Token estimates need no tokenizer and are good enough to decide whether a request is large. Text
counts a quarter token per ASCII character and about one per CJK character; an image has a flat
price. Real counts come from the provider with each answer (`reported_tokens`). Compare estimates
with limits that leave some room; never use them for billing.
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

    A deep agent's prompt begins with `base` (the same for all agents), `profile` (for the model)
    and `agent` (from the agent's author). Sections of middleware follow.

    Attributes:
        name: The owner, such as `agent`, `filesystem` or `skills`.
        text: The text for the model.
        cache: Ask the provider to cache the prompt up to and including this section.
    """

    name: str
    text: str
    cache: bool = False

    @property
    def version(self) -> str:
        """Hash of the text, eight hex digits, to compare prompts and log them."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


ToolChoice: TypeAlias = Literal["auto", "any", "none"] | str
"""`auto`, `any` (the model must call some tool), `none`, or the name of a tool it must call."""


def _nothing() -> None:
    pass


@record
class ChatRequest:
    """One model call.

    Attributes:
        messages: The view of the transcript for the model.
        system: Sections of the system prompt, in order.
        tools: The agent's tools, and provider-side tools as raw mappings.
        tool_choice: Whether the model must call a tool, and which one.
        settings: Provider parameters such as `max_tokens` or `thinking`; sent only when set.
        cache_messages: Indices of messages that end with a cache breakpoint.
        output_schema: JSON schema for the answer's text; only for models with `native_output`.
        agent: Name of the calling agent, for scripts and traces. It is never sent to a provider.
        unasked: Callback for models that forward requests to other models. Such a model calls it
            once if the call ends before a request was sent; the call then does not count.
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
    """A streamed piece of an answer.

    Attributes:
        kind: `text`, `thinking`, or `tool_args` (a fragment of a call's JSON arguments).
        text: The piece.
        tool_call_id: The call's id, for `tool_args`.
        tool_name: The call's tool, for `tool_args`.
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
        """Maximum input tokens, if known."""
        ...

    @property
    def native_output(self) -> bool:
        """Whether the model supports `ChatRequest.output_schema`."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield deltas and, last, exactly one `AIMessage`.

        If the arguments of a call are not a JSON object, they are returned as `ToolCall.invalid`;
        that is not an error. Closing the iterator stops the call.

        Raises:
            ModelError: The call failed after the provider's own retries.
        """
        ...

    async def aclose(self) -> None:
        """Close connections, if there are any; the model can be used again."""
        ...


def connection_lost(model: ChatModel, error: BaseException) -> ModelError:
    """Return the `ModelError` for an exception that means the model could not be reached."""
    text = f"{model.name} could not be reached: {type(error).__name__}: {error}".rstrip(": ")
    return ModelError(f"{text}. No answer was kept.", kind="connection", retryable=True)


# Anthropic's messages first, then those of servers with the same protocol, then other vendors'.
_OVERFLOW_MARKERS = (
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum allowed number of input tokens",
    "context window",
    "maximum context length",
    "context length",
    "context size",
    "input is too long",
    "maximum prompt length",  # xAI
    "model token limit",  # Moonshot AI
    "prompt exceeds max length",  # Z.ai
    "too many tokens: ",  # Cohere; Bedrock's "Too many tokens, please wait" is a rate limit
    "number of tokens allowed",  # Gemini behind a gateway
    "range of input length",  # Alibaba
    "maximum model length",  # vLLM
    "`max_new_tokens` must be",  # Together AI, Hugging Face
)


def is_overflow(message: str) -> bool:
    """Whether an error message means that the request exceeds the context window."""
    lowered = message.lower()
    return any(marker in lowered for marker in _OVERFLOW_MARKERS)


_PER_MESSAGE = 4
_PER_BLOCK = 8
_PER_IMAGE = 1_600
_CHARS_PER_TOKEN = 40
"""Base64 characters per token of a document or recording: a PDF page has about 80,000 characters
and costs 2,000 tokens."""
_MAX_CACHED = 4_096

_tool_costs: dict[int, tuple[weakref.ref[Tool], int]] = {}


def text_tokens(text: str) -> int:
    """Return the estimated tokens of a text; at least 1 unless it is empty."""
    if text.isascii():
        return (len(text) + 3) // 4
    beyond_ascii = len(text.encode("utf-8", "surrogatepass")) - len(text)
    return (3 * len(text) + 4 * beyond_ascii + 11) // 12


def json_tokens(value: object) -> int:
    """Return the estimated tokens of JSON data after serialization."""
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


def _ran_provider_tools(answer: AIMessage) -> bool:
    """Whether the answer contains calls or results of tools that the provider runs."""
    found = [block.data for block in answer.content if isinstance(block, ProviderBlock)]
    kinds = [str(one.get("type") or one.get("part_kind")) for one in found if "of" not in one]
    return any("tool" in kind for kind in kinds)


def reported_tokens(messages: Sequence[Message], since: int = 0) -> int | None:
    """Return a lower bound of the next request's input tokens, from the provider's own count.

    The bound is all tokens of the last answer's call, including system prompt and tools, plus an
    estimate of the messages after it. If the provider ran tools of its own for that answer, its
    usage adds up several requests over the same messages, so an earlier answer is used.

    Args:
        messages: The transcript.
        since: Index of the first answer that was produced from the current view of the
            transcript. The usage of older answers no longer applies.

    Returns:
        The tokens, or None if the last usable answer is older than `since` or came without usage.
    """
    for index in range(len(messages) - 1, since - 1, -1):
        message = messages[index]
        if isinstance(message, AIMessage) and not _ran_provider_tools(message):
            if message.usage is None:
                return None
            usage = message.usage
            paid = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
            return paid + usage.output_tokens + messages_tokens(messages[index + 1 :])
    return None


class RunningCount:
    """Incremental token estimates of transcripts: a new count only reads new messages.

    The totals of the `max_threads` most recent threads are remembered. A transcript that was
    replaced or shortened is counted again from its start. A message replaced in the middle goes
    unnoticed until then.
    """

    def __init__(self, max_threads: int = 1_024) -> None:
        self._max_threads = max_threads
        self._known: dict[str, tuple[int, Message, Message, int]] = {}

    def count(self, key: str, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of a transcript; `key` identifies its thread."""
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
