"""The chat model protocol: messages and tools in, deltas and one answer out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import JsonValue

from .._internal.records import record
from ..errors import ModelError
from ..messages.message import AIMessage, Message
from ..tools.spec import ToolSpec

__all__ = [
    "ChatModel",
    "ChatRequest",
    "Delta",
    "PromptSection",
    "ToolChoice",
    "connection_lost",
]


@record
class PromptSection:
    """A named part of the system prompt.

    A deep agent's prompt begins with `base` (what all of them are told), `profile` (what its
    model is told) and `agent` (what its author says); sections of middleware follow.

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
    """A model. Implementations are safe for concurrent calls."""

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
