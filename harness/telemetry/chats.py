"""Spans and metrics of model calls, by agents and by middleware."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from ..loop.hooks.requests import ModelRequest, Runtime
from ..messages.message import AIMessage
from ..models.base import ChatModel, ChatRequest, Delta
from . import conventions
from .conventions import Attributes, Metrics, answer_json, messages_json, system_json
from .spans import error_type, note_raised

__all__ = ["Chat", "Chats", "current"]

_SETTINGS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
}


class Chat:
    """A model call in progress.

    Args:
        span: Span of the call.
        metrics: Instruments that count the call.
        counted: Attributes for the metrics.
        capture_content: Whether to record the model's answer in the span.
    """

    def __init__(
        self, span: Span, metrics: Metrics, counted: Attributes, *, capture_content: bool
    ) -> None:
        self._span = span
        self._metrics = metrics
        self._counted = counted
        self._capture = capture_content
        self._begun = time.perf_counter()
        self._first: float | None = None
        self._cached = False

    def watched(self, model: ChatModel) -> ChatModel:
        """Return a wrapper of the model that records the time of the first piece."""
        return _Watched(model, self)

    def note_piece(self) -> None:
        """Record that a piece of the answer has arrived."""
        if self._first is None:
            self._first = time.perf_counter() - self._begun

    def note_cached(self, answer: AIMessage) -> None:
        """Record an answer from a cache: it counts in no metric and has no tokens."""
        self._cached = True
        self._span.set_attribute(conventions.CACHED, True)
        self._describe(answer, {})

    def note_answer(self, answer: AIMessage) -> None:
        """Record the model's answer, and count its tokens."""
        told: dict[str, AttributeValue] = {}
        if answer.model:
            told[conventions.RESPONSE_MODEL] = model = _provider_and_model(answer.model)[1]
            self._counted[conventions.RESPONSE_MODEL] = self._metrics.few(model)
        usage = answer.usage
        if usage is not None:
            self._metrics.count_tokens(usage, self._counted)
            told[conventions.INPUT_TOKENS] = usage.total - usage.output_tokens
            told[conventions.OUTPUT_TOKENS] = usage.output_tokens
            told[conventions.CACHE_READ_TOKENS] = usage.cache_read_tokens
            told[conventions.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
        if self._first is not None:
            told[conventions.FIRST_CHUNK] = self._first
        self._describe(answer, told)

    def note_raised(self, raised: BaseException) -> None:
        """Record the exception that ended the call."""
        if note_raised(self._span, raised, texts=self._capture) == "error":
            self._counted[conventions.ERROR] = error_type(raised)

    def end(self) -> None:
        """Count the call and end its span."""
        if not self._cached:
            self._metrics.operations.record(time.perf_counter() - self._begun, self._counted)
            if self._first is not None:
                self._metrics.first_chunks.record(self._first, self._counted)
        self._span.end()

    def _describe(self, answer: AIMessage, told: dict[str, AttributeValue]) -> None:
        if not self._span.is_recording():
            return
        if answer.stop_reason:
            told[conventions.FINISH_REASONS] = (answer.stop_reason,)
        if self._capture:
            told[conventions.OUTPUT_MESSAGES] = answer_json(answer)
        self._span.set_attributes(told)


class Chats:
    """Creates a `chat` span for each model call, and counts the calls.

    Args:
        tracer: Creates the spans.
        metrics: Instruments that count the calls.
        capture_content: Whether to record inputs and outputs of models in spans.
    """

    def __init__(self, tracer: Tracer, metrics: Metrics, *, capture_content: bool) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._capture = capture_content

    @contextmanager
    def begun(
        self,
        model: ChatModel,
        request: ModelRequest | ChatRequest,
        runtime: Runtime,
        parent: Context,
        internal: str = "",
    ) -> Generator[Chat]:
        """Trace a model call until the block ends.

        Args:
            model: The called model.
            request: The request.
            runtime: Runtime of the agent.
            parent: Context of the parent span.
            internal: Purpose of a middleware's call; empty for the agent's own calls.
        """
        provider, name = _provider_and_model(model.name)
        told: dict[str, AttributeValue] = {
            conventions.OPERATION: "chat",
            conventions.PROVIDER: provider,
            conventions.REQUEST_MODEL: name,
            conventions.CONVERSATION: runtime.thread_id,
            conventions.AGENT: runtime.agent_name,
            conventions.RUN: runtime.run_id,
        }
        if internal:
            told[conventions.INTERNAL] = internal
        span = self._tracer.start_span(f"chat {name}", parent, SpanKind.CLIENT, attributes=told)
        if span.is_recording():
            self._describe(span, request)
        counted: Attributes = {
            conventions.OPERATION: "chat",
            conventions.PROVIDER: self._metrics.few(provider),
            conventions.REQUEST_MODEL: self._metrics.few(name),
        }
        chat = Chat(span, self._metrics, counted, capture_content=self._capture)
        try:
            with current(trace.set_span_in_context(span)):
                yield chat
        except BaseException as raised:
            chat.note_raised(raised)
            raise
        finally:
            chat.end()

    def _describe(self, span: Span, request: ModelRequest | ChatRequest) -> None:
        settings: Mapping[str, Any] = request.settings
        for name, attribute in _SETTINGS.items():
            value: Any = settings.get(name)
            if isinstance(value, int | float):
                span.set_attribute(attribute, value)
        if self._capture:
            span.set_attribute(conventions.SYSTEM, system_json(request.system))
            span.set_attribute(conventions.INPUT_MESSAGES, messages_json(request.messages))


class _Watched:
    """Wrapper of a model that records when pieces of the answer arrive."""

    def __init__(self, model: ChatModel, chat: Chat) -> None:
        self._model = model
        self._chat = chat
        self.name = model.name
        self.context_window = model.context_window
        self.native_output = model.native_output
        self.aclose = model.aclose

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage]:
        async with aclosing(self._model.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Delta):
                    self._chat.note_piece()
                yield piece


@contextmanager
def current(context: Context) -> Generator[None]:
    """Make a context the current one."""
    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)


def _provider_and_model(name: str) -> tuple[str, str]:
    """Return provider and model of a name such as `anthropic:claude-…`."""
    provider, colon, model = name.partition(":")
    return (provider, model) if colon else ("unknown", name)
