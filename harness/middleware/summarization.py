"""Keeps requests inside the model's window by summarising old messages. The log is never shortened.

What the model sees is a view: the user's first and latest request word for word, summaries of
what was cut, and the recent messages, calls and results together. Summaries are made from
everything that leaves the view and kept in a private, append-only channel; when none can be made,
the view stays as it was (peers B8, C3, E12).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, Literal, TypeAlias, cast

from harness.errors import AgentBuildError, ModelError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse
from harness.messages import Message
from harness.middleware.summary_view import (
    SummarizationState,
    SummaryChunk,
    View,
    build_view,
    clipped,
    cuts,
    latest_request,
    pinned_places,
    view_after,
)
from harness.middleware.summary_writer import SUMMARY_PROMPT, SummaryFailed, SummaryWriter
from harness.models.base import ChatModel
from harness.token_counting import (
    RunningCount,
    messages_tokens,
    reported_tokens,
    system_tokens,
    text_tokens,
    tools_tokens,
)

__all__ = [
    "Size",
    "SummarizationMiddleware",
    "SummarizationState",
    "SummaryChunk",
    "Trigger",
    "View",
    "build_view",
]

Size: TypeAlias = tuple[Literal["fraction", "tokens", "messages"], float]
"""A part of the model's window (above 0, up to 1), a number of tokens, or one of messages."""

Trigger: TypeAlias = Size | Mapping[str, float] | Sequence["Size | Mapping[str, float]"]
"""One size; a mapping of sizes, all of which must be met; or a list, any of which will do."""

_log = logging.getLogger(__name__)

_UNKNOWN_WINDOW = 200_000
_NEARLY_FULL = 0.95
_COUNTED = ("tokens", "messages")


class SummarizationMiddleware(AgentMiddleware):
    """Summarises old messages when a request gets too large for the model (peers B8, C3).

    List it after middleware that adds prompt sections or shortens messages, so that it counts
    what is sent, and before middleware that adds to the end of the view.

    Args:
        model: Who writes the summaries; the request's model if None.
        trigger: When to summarise, counting system prompt, tools and messages. None never does
            so in advance, only when the provider refuses a request as too large. An unknown
            window counts as 200,000 tokens.
        keep: How much of the end stays word for word; at least the last message with what
            belongs to it, and never more than half of what triggers. By default a tenth of the
            window, or 20 messages if that is unknown.
        prompt: Instructions for the summary.
        max_summary_tokens: Length of one summary at most.
        max_attempts: Calls for one summary at most; after that the view stays uncut.

    Raises:
        AgentBuildError: A size or number is out of range.
    """

    state_schema: ClassVar[type | None] = SummarizationState

    def __init__(
        self,
        model: ChatModel | None = None,
        *,
        trigger: Trigger | None = ("fraction", 0.85),
        keep: Size | None = None,
        prompt: str = SUMMARY_PROMPT,
        max_summary_tokens: int = 4_000,
        max_attempts: int = 3,
    ) -> None:
        self.model = model
        self._trigger = _clauses(trigger)
        self._keep = None if keep is None else _checked("keep", keep)
        if max_attempts < 1 or max_summary_tokens < 1:
            raise AgentBuildError("max_attempts and max_summary_tokens must be 1 or more")
        self._prompt = prompt
        self._max_summary_tokens = max_summary_tokens
        self._max_attempts = max_attempts
        self._counts = RunningCount()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Show the view, summarise first if it is too large, and once more if it is refused."""
        view = build_view(request.messages, request.state.get("summaries", ()))
        made: list[SummaryChunk] = []
        size = self._size(request, view)
        if self._is_due(size, len(view.messages), _window(request)):
            view = await self._condense(request, view, size, made)
        try:
            response = await handler(_showing(request, view))
        except ModelError as error:
            if error.kind != "overflow":
                raise
            smaller = await self._condense(request, view, None, made)
            if smaller is view:
                raise
            response = await handler(_showing(request, smaller))
        return response.with_update(summaries=made) if made else response

    # --- measuring -------------------------------------------------------------------------

    def _size(self, request: ModelRequest, view: View) -> int:
        """Return the larger of our estimate and the provider's count, in tokens."""
        runtime = request.runtime
        key = f"{runtime.thread_id}/{runtime.ns}"
        estimate = _overhead(request) + self._counts.count(key, view.messages)
        since = max(view.start, view.chunks[-1].made_at) if view.chunks else 0
        return max(estimate, reported_tokens(request.messages, since) or 0)

    def _is_due(self, tokens: int, messages: int, window: int) -> bool:
        have = {"fraction": tokens / window, "tokens": tokens, "messages": messages}
        return any(
            all(have[kind] >= number for kind, number in clause.items()) for clause in self._trigger
        )

    def _token_limit(self, window: int) -> int:
        """Return at how many tokens the trigger bites; 0.85 of the window if it counts none."""
        limits = [
            clause.get("tokens", clause.get("fraction", 0.0) * window) for clause in self._trigger
        ]
        return int(min((limit for limit in limits if limit), default=0.85 * window))

    # --- cutting ---------------------------------------------------------------------------

    async def _condense(
        self, request: ModelRequest, view: View, size: int | None, made: list[SummaryChunk]
    ) -> View:
        """Return a smaller view, adding the summary it needed to `made`; the same one if none.

        A `size` of None means that the provider refused the view: then as little as possible is
        kept, and long results are clipped.
        """
        limit = self._token_limit(_window(request))
        cut = self._cut(request, view, limit, hard=size is None)
        messages = request.messages
        if cut is not None and (size is None or self._is_worth_it(request, view, cut, size, limit)):
            merge = sum(chunk.tokens for chunk in view.chunks) > limit // 4
            text = await self._write(request, view, messages[view.start : cut], merge=merge)
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
                made.append(chunk)
                view = view_after(messages, (chunk,) if merge else (*view.chunks, chunk), cut)
        if size is None or self._overflows(request, view):
            shorter = [clipped(message) for message in view.messages]
            if any(new is not old for new, old in zip(shorter, view.messages, strict=True)):
                view = replace(view, messages=shorter)
        return view

    def _overflows(self, request: ModelRequest, view: View) -> bool:
        """Whether the provider will refuse the view, as far as one can tell."""
        window = request.model.context_window
        tokens = _overhead(request) + messages_tokens(view.messages)
        return window is not None and tokens > _NEARLY_FULL * window

    def _cut(self, request: ModelRequest, view: View, limit: int, *, hard: bool) -> int | None:
        """Return where the kept end shall begin, or None if nothing before it could go."""
        messages = request.messages
        stored = {one.id for one in cast(Iterable[Message], request.state.get("messages", ()))}
        places = [
            place
            for place in cuts(messages, view.start)
            if not stored or messages[place - 1].id in stored
        ]
        chosen, end, tokens = None, len(messages), 0
        most_tokens, most_messages = (0, 0) if hard else self._keeping(request, limit)
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

        If what must stay is too large by itself, a summary at every call would only cost.
        """
        stay = frozenset(pinned_places(request.messages, cut, None))
        gone = [request.messages[at] for at in range(view.start, cut) if at not in stay]
        gain, left = messages_tokens(gone), len(view.messages) - len(gone)
        return gain >= limit // 10 or not self._is_due(size - gain, left, _window(request))

    async def _write(
        self, request: ModelRequest, view: View, part: Sequence[Message], *, merge: bool
    ) -> str | None:
        writer = SummaryWriter(
            self.model or request.model,
            request.runtime.meter,
            self._prompt,
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


def _clauses(trigger: Trigger | None) -> tuple[Mapping[str, float], ...]:
    """Return a trigger as a list of mappings; any mapping will do, all of its sizes must be met."""
    if trigger is None:
        return ()
    if isinstance(trigger, Mapping) or (len(trigger) == 2 and isinstance(trigger[0], str)):
        trigger = (cast("Size | Mapping[str, float]", trigger),)
    clauses: list[Mapping[str, float]] = []
    for one in cast("Sequence[Size | Mapping[str, float]]", trigger):
        pairs = list(one.items()) if isinstance(one, Mapping) else [one]
        if not pairs:
            raise AgentBuildError("trigger: an empty mapping would always be met")
        clauses.append(dict(_checked("trigger", pair) for pair in pairs))
    return tuple(clauses)


def _checked(what: str, size: object) -> Size:
    """Return a size; raise `AgentBuildError` if it is none. Sizes come from files too."""
    kind, number = cast(tuple[object, object], size) if _is_pair(size) else (None, None)
    if isinstance(number, bool) or not isinstance(number, int | float):
        number = 0
    if 0 < number <= 1 if kind == "fraction" else kind in _COUNTED and number >= 1:
        return cast(Size, size)
    raise AgentBuildError(
        f'{what}: {size!r} is no size. Use ("fraction", 0 to 1), ("tokens", 1 or more) or '
        '("messages", 1 or more).'
    )


def _is_pair(size: object) -> bool:
    return isinstance(size, tuple) and len(cast(tuple[object, ...], size)) == 2
