"""Summarization: keeps requests inside the model's window. The transcript is never shortened.

The model sees a view: the user's first and latest request word for word, summaries of the messages
in between, and the recent messages, with calls and results together. Summaries cover all messages
that leave the view, and are kept in a private, append-only channel. If no summary can be made, the
view does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf
from typing import ClassVar, TypeAlias, cast

from ...errors import AgentBuildError, ModelError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import Message
from ...models.base import (
    ChatModel,
    ChatRequest,
    RunningCount,
    messages_tokens,
    reported_tokens,
    system_tokens,
    text_tokens,
    tools_tokens,
)
from ..models.internal_calls import resolved
from .context_edits import EditedPrefixes, Frontier, frontier_place, shortened
from .summaries import (
    SUMMARY_TEMPLATES,
    Size,
    SummaryFailed,
    SummaryTemplate,
    SummaryWork,
    SummaryWriter,
    Trigger,
    checked_size,
    clauses_of,
    compact_request,
)
from .summaries import (
    compact_tool as _tool,
)
from .summary_view import (
    SummarizationState,
    SummaryChunk,
    View,
    build_view,
    clipped_view,
    cuts,
    latest_request,
    pinned_places,
    view_after,
)

__all__ = ["SummarizationMiddleware", "TokenCounter"]


TokenCounter: TypeAlias = Callable[[ChatRequest], Awaitable[int]]
"""Returns the input tokens of a request, such as `AnthropicModel.count_tokens`."""

_log = logging.getLogger(__name__)

_UNKNOWN_WINDOW = 200_000
_NEARLY_FULL = 0.95
_COUNT_FROM = 0.5
"""Fraction of the trigger above which a counter is used; below, an estimate is enough."""


class SummarizationMiddleware(AgentMiddleware):
    """Summarizes old messages when a request gets too large for the model.

    List it after middleware that adds prompt sections or shortens messages, so that it counts the
    actual request, and before middleware that adds to the end of the view.

    Args:
        model: The model that writes the summaries, or its name; None for the request's model.
        trigger: The size of system prompt, tools and messages at which to summarize. With None, it
            summarizes only if the provider refuses a request as too large. An unknown window counts
            as 200,000 tokens.
        keep: How much of the end stays word for word: at least the last message with its calls
            and results, and at most half of the trigger. By default a tenth of the window, or 20
            messages if the window is unknown.
        summary_prompt: The prompt for summaries: `sections`, `handover` (longer, after
            thinking; see `SUMMARY_TEMPLATES`), or a system prompt of your own.
        instructions: Additional instructions.
        max_summary_tokens: The most tokens of one summary.
        max_attempts: The most calls for one summary; after that, the view stays uncut.
        token_counter: Counts requests exactly, once they have half of the trigger's tokens.
            Without one, or if it fails, the larger of two values counts: an estimate, and the usage
            of the last answer plus an estimate of newer messages.
        max_argument_chars: Before anything is summarised, longer arguments of old calls of
            `write_file` and `edit_file` are cut in the view; None for never.
        compact_tool: Whether to add the tool `compact`, with which the model requests a summary.
        history: Path at which `read_file` finds all messages (`history_file(backend)`); the summary
            names it. None if there is no such file.

    Raises:
        AgentBuildError: A size or number is out of range.
    """

    state_schema: ClassVar[type | None] = SummarizationState

    def __init__(
        self,
        model: ChatModel | str | None = None,
        *,
        trigger: Trigger | None = ("fraction", 0.85),
        keep: Size | None = None,
        summary_prompt: str = "sections",
        instructions: str = "",
        max_summary_tokens: int = 4_000,
        max_attempts: int = 3,
        token_counter: TokenCounter | None = None,
        max_argument_chars: int | None = 2_000,
        compact_tool: bool = False,
        history: str | None = None,
    ) -> None:
        self.model = None if model is None else resolved(model, self.name)
        self._trigger = clauses_of(trigger)
        self._keep = None if keep is None else checked_size("keep", keep)
        if max_attempts < 1 or max_summary_tokens < 1:
            raise AgentBuildError("max_attempts and max_summary_tokens must be 1 or more")
        if max_argument_chars is not None and max_argument_chars < 100:
            raise AgentBuildError("max_argument_chars must be 100 or more, or None")
        if not summary_prompt.strip():
            raise AgentBuildError(
                f"summary_prompt is empty; use {', '.join(SUMMARY_TEMPLATES)} or a text of your own"
            )
        own = SummaryTemplate(summary_prompt)
        template = SUMMARY_TEMPLATES.get(summary_prompt, own)
        self._template = template.with_instructions(instructions)
        self._max_summary_tokens = max_summary_tokens
        self._max_attempts = max_attempts
        self._counter = token_counter
        self._max_argument_chars = max_argument_chars
        self._history = history
        self._counts = RunningCount()
        self._short = EditedPrefixes()
        self.tools = (_tool(),) if compact_tool else ()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Show the view; summarize first if it is too large, and again if it is refused."""
        upto = cast("Frontier | None", request.state.get("shortened_upto"))
        request = self._with_short_arguments(request, upto)
        view = self._view(request)
        # An earlier attempt at this call may have made the requested summary.
        is_made = bool(view.chunks) and view.chunks[-1].made_at == len(request.messages)
        work = SummaryWork(asked=None if is_made else compact_request(request.messages))
        size = await self._size(request, view, upto)
        window = _window(request)
        due = self._is_due(size, len(view.messages), window)
        if due:
            request, view, size = self._shorten(request, view, size, work)
            due = self._is_due(size, len(view.messages), window)
        if work.asked is not None or due:
            view = await self._condense(request, view, size, work)
        try:
            response = await handler(_showing(request, view))
        except ModelError as error:
            if error.kind != "overflow":
                raise
            smaller = await self._condense(request, view, None, work)
            if smaller is view:
                raise
            response = await handler(_showing(request, smaller))
        return response.with_update(**work.update) if work.update else response

    def _view(self, request: ModelRequest) -> View:
        return build_view(
            request.messages, request.state.get("summaries", ()), self._history_of(request)
        )

    def _history_of(self, request: ModelRequest) -> str | None:
        return self._history if self._history and request.offers("read_file") else None

    # --- measuring -------------------------------------------------------------------------

    async def _size(self, request: ModelRequest, view: View, upto: Frontier | None) -> int:
        """Return the tokens of the request."""
        runtime = request.runtime
        # Another mark means other messages, even if the first and the last are the same.
        key = f"{runtime.thread_id}/{runtime.ns} {upto.upto_message_id if upto else ''}"
        estimate = _overhead(request) + self._counts.count(key, view.messages)
        since = max(view.start, view.chunks[-1].made_at) if view.chunks else 0
        since = since if upto is None else max(since, upto.made_at)
        tokens = max(estimate, reported_tokens(request.messages, since) or 0)
        if self._counter is None or tokens < _COUNT_FROM * self._token_limit(_window(request)):
            return tokens
        try:
            return await self._counter(_showing(request, view).chat_request())
        except ModelError as error:
            _log.warning("thread %s: tokens not counted (%s)", runtime.thread_id, error.kind)
            return tokens

    def _is_due(self, tokens: int, messages: int, window: int) -> bool:
        have = {"fraction": tokens / window, "tokens": tokens, "messages": messages}
        return any(
            all(have[kind] >= number for kind, number in clause.items()) for clause in self._trigger
        )

    def _token_limit(self, window: int) -> int:
        """Return the tokens of the trigger; 0.85 of the window if it does not count tokens."""
        limits = [
            clause.get("tokens", clause.get("fraction", 0.0) * window) for clause in self._trigger
        ]
        return int(min((limit for limit in limits if limit), default=0.85 * window))

    # --- shortening ------------------------------------------------------------------------

    def _with_short_arguments(self, request: ModelRequest, upto: Frontier | None) -> ModelRequest:
        """Return the request with long arguments cut up to the mark."""
        most, messages = self._max_argument_chars, request.messages
        end = frontier_place(messages, upto)
        if most is None or not end:
            return request
        runtime = request.runtime
        head = self._short.get(
            f"{runtime.thread_id}/{runtime.ns}",
            (upto, most),
            messages,
            end,
            lambda stretch: shortened(stretch, most),
        )
        return request.override(messages=[*head, *messages[end:]])

    def _shorten(
        self, request: ModelRequest, view: View, size: int, work: SummaryWork
    ) -> tuple[ModelRequest, View, int]:
        """Move the mark to the beginning of the kept end, if that frees enough."""
        messages, limit = request.messages, self._token_limit(_window(request))
        end = None
        if self._max_argument_chars is not None:
            end = self._cut(request, view, self._keeping(request, limit))
        if end is None:
            return request, view, size
        upto = Frontier(messages[end - 1].id, end - 1, len(messages))
        shorter = self._with_short_arguments(request, upto)
        freed = messages_tokens(messages[view.start : end])
        freed -= messages_tokens(shorter.messages[view.start : end])
        if freed < max(limit // 10, 1):
            return request, view, size
        work.shortened_upto = upto
        return shorter, self._view(shorter), size - freed

    # --- cutting ---------------------------------------------------------------------------

    async def _condense(
        self, request: ModelRequest, view: View, size: int | None, work: SummaryWork
    ) -> View:
        """Return a smaller view, and store the summary for it; the same view if none is possible.

        A `size` of None means that the provider refused the view. Then as little as possible is
        kept, and long results are clipped, or all results if none is long and nothing else helps.
        """
        limit = self._token_limit(_window(request))
        keeping = self._keeping(request, limit)
        if size is None:
            keeping = (0.0, 0.0)
        elif work.asked is not None:
            keeping = (min(keeping[0], size // 10), keeping[1])
        cut = self._cut(request, view, keeping)
        messages, before = request.messages, view
        wanted = size is None or work.asked is not None
        if cut is not None and (wanted or self._is_worth_it(request, view, cut, size or 0, limit)):
            merge = sum(chunk.tokens for chunk in view.chunks) > limit // 4
            part = messages[view.start : cut]
            text = await self._write(request, view, part, work.asked or "", merge=merge)
            if text is not None:
                chunk = SummaryChunk(
                    upto_message_id=messages[cut - 1].id,
                    text=text,
                    tokens=text_tokens(text),
                    whole=merge,
                    upto_index=cut - 1,
                    request_index=latest_request(messages, cut, None),
                    made_at=len(messages),
                )
                # It is paid for, so it is kept even if the call fails.
                await request.runtime.keep({"summaries": [chunk]})
                chunks = (chunk,) if merge else (*view.chunks, chunk)
                since = None if size is None else view.start
                view = view_after(messages, chunks, cut, self._history_of(request), since)
        if size is None or self._overflows(request, view):
            refused = size is None and view is before
            view = clipped_view(view, self._history_of(request), harder=refused)
        return view

    def _overflows(self, request: ModelRequest, view: View) -> bool:
        """Whether the provider will probably refuse the view."""
        window = request.model.context_window
        tokens = _overhead(request) + messages_tokens(view.messages)
        return window is not None and tokens > _NEARLY_FULL * window

    def _cut(self, request: ModelRequest, view: View, keeping: tuple[float, float]) -> int | None:
        """Return the index of the first message to keep, or None if nothing can be removed."""
        messages = request.messages
        stored = {one.id for one in cast(Iterable[Message], request.state.get("messages", ()))}
        places = [
            place
            for place in cuts(messages, view.start)
            if not stored or messages[place - 1].id in stored
        ]
        chosen, end, tokens = None, len(messages), 0
        most_tokens, most_messages = keeping
        for cut in reversed(places):
            tokens += messages_tokens(messages[cut:end])
            end = cut
            too_much = tokens > most_tokens or len(messages) - cut > most_messages
            if chosen is not None and too_much:
                break
            chosen = cut
        if chosen is None:
            return None
        pinned = pinned_places(messages, chosen, None)
        only_pins = all(place in pinned for place in range(view.start, chosen))
        return None if only_pins else chosen

    def _keeping(self, request: ModelRequest, limit: int) -> tuple[float, float]:
        """Return the most tokens and messages that stay word for word."""
        window = request.model.context_window
        default: Size = ("messages", 20) if window is None else ("fraction", 0.10)
        kind, number = self._keep or default
        tokens: float = limit // 2
        messages = min(
            (one["messages"] // 2 for one in self._trigger if "messages" in one), default=inf
        )
        if kind == "messages":
            return tokens, min(messages, number)
        share = number * _window(request) if kind == "fraction" else number
        return min(tokens, share), messages

    def _is_worth_it(
        self, request: ModelRequest, view: View, cut: int, size: int, limit: int
    ) -> bool:
        """Whether a summary gets below the trigger, or at least gains much.

        If the part that must stay is too large by itself, a summary at every call would be useless.
        """
        stay = frozenset(pinned_places(request.messages, cut, None))
        gone = [request.messages[at] for at in range(view.start, cut) if at not in stay]
        gain, left = messages_tokens(gone), len(view.messages) - len(gone)
        return gain >= limit // 10 or not self._is_due(size - gain, left, _window(request))

    async def _write(
        self, request: ModelRequest, view: View, part: Sequence[Message], focus: str, *, merge: bool
    ) -> str | None:
        writer = SummaryWriter(
            self.model or request.model,
            request.runtime.meter,
            self._template.with_instructions(focus),
            self._max_summary_tokens,
            self._max_attempts,
        )
        earlier = "\n\n".join(chunk.text for chunk in view.chunks)
        try:
            return await writer.write(part, earlier, merge=merge)
        except SummaryFailed as failure:
            _log.warning(
                "thread %s: no summary of %d messages (%s); the request is sent uncut",
                request.runtime.thread_id,
                len(part),
                failure,
            )
            return None


def _window(request: ModelRequest) -> int:
    return request.model.context_window or _UNKNOWN_WINDOW


def _overhead(request: ModelRequest) -> int:
    return system_tokens(request.system) + tools_tokens(request.tools)


def _showing(request: ModelRequest, view: View) -> ModelRequest:
    if view.messages is request.messages:
        return request
    return request.override(messages=view.messages, cache_messages=())
