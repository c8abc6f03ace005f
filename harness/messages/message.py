"""Messages, content blocks and the reducer that keeps a transcript.

Everything here is a frozen dataclass: a message that is in the journal never changes, and the
same object can be shared by any number of states. Shapes follow what model providers send;
`ToolCall` is a content block, so an answer keeps the order of its thinking, text and calls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Annotated, Literal, TypeAlias, TypeGuard

from pydantic import Discriminator, JsonValue

from .._internal.records import record

__all__ = [
    "REMOVE_ALL",
    "AIMessage",
    "AudioBlock",
    "Content",
    "ContentBlock",
    "DocumentBlock",
    "HumanMessage",
    "ImageBlock",
    "MediaBlock",
    "Message",
    "ProviderBlock",
    "RedactedThinkingBlock",
    "RemoveMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "VideoBlock",
    "is_media",
    "new_id",
    "pending_tool_calls",
    "text_of",
]


def new_id(prefix: str) -> str:
    """Return an unguessable id such as `msg_9f86d081884c7d65` (64 bits of randomness)."""
    return f"{prefix}_{os.urandom(8).hex()}"


_message_id = partial(new_id, "msg")


@record
class TextBlock:
    """Plain text."""

    text: str
    type: Literal["text"] = "text"


@record
class ImageBlock:
    """An image; `data` is base64 without line breaks."""

    media_type: str
    data: str
    type: Literal["image"] = "image"


@record
class DocumentBlock:
    """A document such as a PDF (`application/pdf`); `data` as for an image.

    Attributes:
        media_type: Its type.
        data: Base64 without line breaks.
        name: What to call it; empty if it has no name.
    """

    media_type: str
    data: str
    name: str = ""
    type: Literal["document"] = "document"


@record
class AudioBlock:
    """A recording; `data` as for an image."""

    media_type: str
    data: str
    type: Literal["audio"] = "audio"


@record
class VideoBlock:
    """A film; `data` as for an image."""

    media_type: str
    data: str
    type: Literal["video"] = "video"


@record
class ThinkingBlock:
    """A model's reasoning. The signature is the provider's and must travel back unchanged."""

    thinking: str
    signature: str = ""
    type: Literal["thinking"] = "thinking"


@record
class RedactedThinkingBlock:
    """Reasoning that the provider encrypted; kept only to be sent back."""

    data: str
    type: Literal["redacted_thinking"] = "redacted_thinking"


@record
class ProviderBlock:
    """A block only its provider understands (a server-side tool's use or result), kept verbatim."""

    provider: str
    data: dict[str, JsonValue]
    type: Literal["provider"] = "provider"


@record
class ToolCall:
    """A model's request to run one tool.

    Attributes:
        id: Pairs the call with its `ToolMessage`; unique within a transcript.
        name: The tool's name.
        args: The arguments. Empty when they could not be parsed.
        invalid: The raw text of arguments that are not a JSON object, else None. Such a call is
            answered with an error at once, so that the model can repair it.
    """

    id: str
    name: str
    args: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    invalid: str | None = None
    type: Literal["tool_call"] = "tool_call"


MediaBlock: TypeAlias = ImageBlock | DocumentBlock | AudioBlock | VideoBlock
"""What is no text. Not every model takes every kind; see `UnsupportedContentMiddleware`."""

ContentBlock: TypeAlias = Annotated[
    TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock, Discriminator("type")
]
"""What a person or a tool can say."""

Content: TypeAlias = str | tuple[ContentBlock, ...]

AnswerBlock: TypeAlias = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCall | ProviderBlock,
    Discriminator("type"),
]
"""What a model can say."""


@record
class Usage:
    """Tokens of one model call. `input_tokens` excludes what came from or went to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total(self) -> int:
        """All of them together."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON data."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
        }

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


@record
class HumanMessage:
    """Message of the user, or of middleware in the user's place.

    Attributes:
        content: Text, or blocks.
        source: None for the user; else who wrote it, such as a middleware's name.
        id: Unique; a message with a known id replaces the old one.
    """

    content: Content
    source: str | None = None
    id: str = field(default_factory=_message_id)
    type: Literal["human"] = "human"

    @property
    def text(self) -> str:
        """All text of the message."""
        return text_of(self.content)

    @property
    def is_request(self) -> bool:
        """Whether it is from the user, or to a subagent from its caller."""
        return self.source in (None, "task")


@record
class AIMessage:
    """A model's answer, or a driving client's in its place.

    Attributes:
        content: Blocks in the order they were produced; text is made into one.
        model: Id of the model that answered.
        stop_reason: The provider's word for why it stopped.
        usage: Tokens, if known.
        source: None for the agent's model; `client` for a driven call; else a middleware's name.
        name: The agent's name.
        id: Unique.
    """

    content: tuple[AnswerBlock, ...]
    model: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    source: str | None = None
    name: str | None = None
    id: str = field(default_factory=_message_id)
    type: Literal["ai"] = "ai"

    def __post_init__(self) -> None:
        if isinstance(self.content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "content", (TextBlock(self.content),) if self.content else ())

    @property
    def text(self) -> str:
        """All text of the answer, without thinking."""
        return "".join([block.text for block in self.content if block.type == "text"])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the answer, in order."""
        return tuple([block for block in self.content if block.type == "tool_call"])


@record
class ToolMessage:
    """The result of one tool call.

    Attributes:
        tool_call_id: Which call it answers.
        content: What the model sees.
        name: The tool that ran.
        status: `error` when the call failed, was refused or never ran.
        artifact: Machine-readable form of the result, for programs; the model does not see it.
        id: Unique.
    """

    tool_call_id: str
    content: Content
    name: str = ""
    status: Literal["success", "error"] = "success"
    artifact: JsonValue = None
    id: str = field(default_factory=_message_id)
    type: Literal["tool"] = "tool"

    @property
    def text(self) -> str:
        """All text of the result."""
        return self.content if isinstance(self.content, str) else text_of(self.content)


Message: TypeAlias = Annotated[HumanMessage | AIMessage | ToolMessage, Discriminator("type")]

REMOVE_ALL = "__all__"
"""Id for `RemoveMessage` that drops everything before it."""


@record
class RemoveMessage:
    """A write that deletes the message with this id, or all of them (`REMOVE_ALL`)."""

    id: str
    type: Literal["remove"] = "remove"


MessageWrite: TypeAlias = Annotated[
    HumanMessage | AIMessage | ToolMessage | RemoveMessage, Discriminator("type")
]


_MEDIA = (ImageBlock, DocumentBlock, AudioBlock, VideoBlock)


def is_media(value: object) -> TypeGuard[MediaBlock]:
    """Whether something is an image, a document, a recording or a film."""
    return isinstance(value, _MEDIA)


def text_of(content: Content) -> str:
    """Return the text of a message's content; images and the like are left out."""
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def newest_tool_calls(messages: Sequence[Message]) -> tuple[tuple[ToolCall, ...], set[str]]:
    """Return the calls of the last answer, and the ids of the results that follow it."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message.tool_calls, answered
    return (), answered


def pending_tool_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last answer that have no result yet."""
    calls, answered = newest_tool_calls(messages)
    return tuple([one for one in calls if one.id not in answered]) if answered else calls
