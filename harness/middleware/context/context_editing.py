"""Context editing: clears old tool results, and media that a model cannot read, from its view.

Old results are cleared in steps, so that the prompt cache stays valid. Everything before a
*frontier* is shown edited, everything after it unchanged. The frontier is in the thread's state. It
moves only if the request is too large again and a move frees enough; between two moves, each
request begins with the previous one.

Images, documents and recordings that a model cannot read are replaced by a notice. Otherwise the
request would be refused, now and on every later turn of the thread.

Only the view changes, never the transcript: another model may see everything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, NotRequired, TypeAlias, TypedDict, cast, get_args

from ..._internal.records import record
from ...backends.base import size_text
from ...errors import AgentBuildError, MiddlewareError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import (
    AIMessage,
    ContentBlock,
    HumanMessage,
    MediaBlock,
    Message,
    TextBlock,
    is_media,
)
from ...models.base import (
    RunningCount,
    message_tokens,
    reported_tokens,
    system_tokens,
    tools_tokens,
)
from ...state.channels import Mark
from .context_edits import (
    ClearToolUsesEdit,
    ContextEdit,
    EditedMessages,
    EditedPrefixes,
    Frontier,
    frontier_place,
)
from .summary_view import SOURCE, SummaryChunk, build_view

__all__ = [
    "ClearToolUsesEdit",
    "ContextEdit",
    "ContextEditingMiddleware",
    "ContextEditingState",
    "Frontier",
    "MediaSupport",
    "TokenCounter",
    "UnsupportedContentMiddleware",
]


TokenCounter: TypeAlias = Callable[[Sequence[Message]], int]
"""Counts the tokens of messages; system prompt and tools are counted separately."""

_CountMethod: TypeAlias = Literal["approximate", "model"]


class ContextEditingState(TypedDict):
    """State of the middleware: the reach of each edit, by its index in `edits`."""

    edit_frontiers: Annotated[NotRequired[dict[str, Frontier]], Mark.PRIVATE]


class ContextEditingMiddleware(AgentMiddleware):
    """Shows the model edited old parts of the transcript once a request gets too large.

    List it before `SummarizationMiddleware`: results are cleared first, and only a view that is
    still too large is summarized. Summarized messages are no longer counted here. A summary is made
    from the model's view, so it cannot contain the text of cleared results.

    Args:
        edits: The edits, in this order.
        token_count_method: `approximate` estimates; `model` uses the provider's count for the last
            answer, if there is one, and estimates only newer messages.
        token_counter: Counts messages instead of both.

    Raises:
        AgentBuildError: There is no edit, or an argument is invalid.
    """

    state_schema: ClassVar[type | None] = ContextEditingState

    def __init__(
        self,
        edits: Sequence[ContextEdit] | None = None,
        *,
        token_count_method: _CountMethod = "approximate",
        token_counter: TokenCounter | None = None,
    ) -> None:
        self.edits = (ClearToolUsesEdit(),) if edits is None else tuple(edits)
        if not self.edits:
            raise AgentBuildError("ContextEditingMiddleware: edits= is empty, so nothing is done")
        for edit in self.edits:
            if not all(callable(getattr(edit, name, None)) for name in ("advance", "edited")):
                raise AgentBuildError(
                    f"edits= takes edits such as ClearToolUsesEdit(), or your own with the methods "
                    f"of ContextEdit; got {edit!r}"
                )
        if token_count_method not in get_args(_CountMethod):
            raise AgentBuildError(
                f"token_count_method is one of {', '.join(get_args(_CountMethod))}; got "
                f"{token_count_method!r}"
            )
        if token_counter is not None and not callable(token_counter):
            raise AgentBuildError(f"token_counter is a function; got {token_counter!r}")
        self._by_report = token_count_method == "model"
        self._counter = token_counter
        self._counts = RunningCount()
        self._prefixes = EditedPrefixes()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Show the edited view, after moving the frontiers if it is too large."""
        known: Mapping[str, Frontier] = request.state.get("edit_frontiers") or {}
        frontiers = dict(known)
        shown = _shown(request)
        view = request.messages
        for place, edit in enumerate(self.edits):
            view = self._edited(shown, view, edit, str(place), frontiers)
        if view is not request.messages:
            request = request.override(messages=view)
        response = await handler(request)
        return response if frontiers == known else response.with_update(edit_frontiers=frontiers)

    def _edited(
        self,
        shown: _Shown,
        messages: Sequence[Message],
        edit: ContextEdit,
        name: str,
        frontiers: dict[str, Frontier],
    ) -> Sequence[Message]:
        """Return the view after one edit, whose frontier moves if necessary."""
        key = f"{shown.thread}/{name}"
        at = frontier_place(messages, frontiers.get(name))
        made_at = frontiers[name].made_at if at else 0
        edited = _Edited(edit, shown.start, at, made_at)
        view = edited.view(messages, self._prefixes, key)
        tokens = self._tokens(shown, view, f"{key}/{shown.start}/{at}", made_at)
        target = edit.advance(messages, view, max(at, shown.start), tokens)
        if target is None or target <= at:
            return view
        frontiers[name] = Frontier(messages[target - 1].id, target - 1, len(messages))
        moved = replace(edited, at=target, made_at=len(messages))
        return moved.view(messages, self._prefixes, key)

    def _tokens(self, shown: _Shown, view: Sequence[Message], key: str, made_at: int) -> int:
        """Return the tokens of the request, including system prompt and tools."""
        request, start = shown.request, shown.start
        if self._counter is None and self._by_report:
            reported = reported_tokens(view, max(start, made_at))
            if reported is not None:
                return reported
        seen = view[start:] if start else view
        tokens = shown.summaries + system_tokens(request.system) + tools_tokens(request.tools)
        if self._counter is not None:
            return tokens + self._counter(seen)
        return tokens + self._counts.count(key, seen)


@record
class _Shown:
    """View of a transcript with its edits.

    Attributes:
        request: The request.
        thread: The key of the transcript.
        start: Index of the first message that is not summarized.
        summaries: Tokens of the summaries before it.
    """

    request: ModelRequest
    thread: str
    start: int = 0
    summaries: int = 0


@record
class _Edited:
    """An edit and its reach.

    Attributes:
        edit: The edit.
        start: Index where its part begins.
        at: Index where its part ends.
        made_at: Length of the transcript when the frontier moved there.
    """

    edit: ContextEdit
    start: int
    at: int
    made_at: int

    def view(
        self, messages: Sequence[Message], prefixes: EditedPrefixes, key: str
    ) -> Sequence[Message]:
        """Return the transcript with this part edited.

        A provider's count for an answer from before the edit does not apply to this view, so the
        last of these answers is shown without it.
        """
        if self.at <= self.start:
            return messages
        reported = _last_answer(messages, min(self.made_at, len(messages)))
        end = self.at if reported is None else max(self.at, reported + 1)
        terms = (self.start, self.at, reported)
        prefix = prefixes.get(key, terms, messages, end, partial(self._prefix, reported))
        return [*prefix, *messages[end:]]

    def _prefix(self, reported: int | None, messages: Sequence[Message]) -> Sequence[Message]:
        part = messages[self.start : self.at]
        edited = self.edit.edited(part)
        if [one.id for one in edited] != [one.id for one in part]:
            raise MiddlewareError(
                f"{self.edit!r} did not return the messages it was given one for one, with their "
                "ids; the model was not asked"
            )
        made = [*messages[: self.start], *edited, *messages[self.at :]]
        if reported is not None:
            made[reported] = replace(cast(AIMessage, made[reported]), usage=None)
        return made


def _shown(request: ModelRequest) -> _Shown:
    thread = f"{request.runtime.thread_id}/{request.runtime.ns}"
    chunks: Sequence[SummaryChunk] = request.state.get("summaries") or ()
    view = build_view(request.messages, chunks) if chunks else None
    if view is None or not view.chunks:
        return _Shown(request, thread)
    tokens = 0
    for message in view.messages:
        tokens += message_tokens(message)
        if isinstance(message, HumanMessage) and message.source == SOURCE:
            break
    return _Shown(request, thread, view.start, tokens)


def _last_answer(messages: Sequence[Message], end: int) -> int | None:
    places = range(end - 1, -1, -1)
    return next((at for at in places if isinstance(messages[at], AIMessage)), None)


@record
class MediaSupport:
    """Media that a model can read: images, or another kind.

    Attributes:
        media_types: Media types, such as `image/png`; empty for none.
        max_base64: The most characters of the encoded data; None for no limit.
    """

    media_types: Collection[str] = ()
    max_base64: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.media_types, str):
            raise AgentBuildError(f"media_types is a collection; write [{self.media_types!r}]")

    def takes(self, block: MediaBlock) -> bool:
        """Whether the model can read it."""
        small = self.max_base64 is None or len(block.data) <= self.max_base64
        return small and block.media_type in self.media_types


_Described = Mapping[str, MediaSupport]

_CLAUDE = ("anthropic:", "anthropic-bedrock:", "anthropic-vertex:")

_KNOWN: Mapping[str, _Described] = {
    "image": dict.fromkeys(
        _CLAUDE,
        MediaSupport(("image/gif", "image/jpeg", "image/png", "image/webp"), max_base64=5 << 20),
    ),
    "document": dict.fromkeys(_CLAUDE, MediaSupport(("application/pdf",), max_base64=30 << 20)),
    "audio": dict.fromkeys(_CLAUDE, MediaSupport()),
    "video": dict.fromkeys(_CLAUDE, MediaSupport()),
}

_WORDS = {
    "image": ("An image", "cannot see images", "images"),
    "document": ("A document", "cannot read documents", "documents"),
    "audio": ("A recording", "cannot hear recordings", "recordings"),
    "video": ("A film", "cannot see films", "films"),
}
"""Words for each kind of block: its name, the verb for reading it, and the plural."""


class UnsupportedContentMiddleware(AgentMiddleware):
    """Replaces content that the model cannot read by a notice.

    List it after middleware that chooses the model.

    Args:
        images: The images that models can read, by the beginning of their names, such as
            `{"anthropic:my-local-model": MediaSupport()}` for a model without vision. The longest
            beginning applies, and takes precedence over built-in knowledge of providers. A model
            that is not described anywhere gets everything.
        documents: The same for documents, such as `application/pdf`.
        audio: The same for recordings.
        video: The same for videos.

    Raises:
        AgentBuildError: A value is not a `MediaSupport`.
    """

    def __init__(
        self,
        images: _Described | None = None,
        *,
        documents: _Described | None = None,
        audio: _Described | None = None,
        video: _Described | None = None,
    ) -> None:
        given = {"images": images, "documents": documents, "audio": audio, "video": video}
        for argument, described in given.items():
            for name, support in (described or {}).items():
                if not isinstance(support, MediaSupport):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise AgentBuildError(
                        f"{argument}[{name!r}] is a MediaSupport(media_types, max_base64); got "
                        f"{support!r}"
                    )
        self._described = {
            kind: {**known, **(described or {})}
            for (kind, known), described in zip(_KNOWN.items(), given.values(), strict=True)
        }
        self._views = EditedMessages()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Show the view without content that the model would refuse."""
        support = self._support(request.model.name)
        if not support:
            return await handler(request)
        view = self._views.get(
            f"{request.runtime.thread_id}/{request.runtime.ns}",
            request.model.name,
            request.messages,
            lambda message: _supported(message, support),
        )
        if view is not request.messages:
            request = request.override(messages=view)
        return await handler(request)

    def _support(self, model: str) -> _Described:
        """Return the media that a model can read, by kind, as far as they are described."""
        found: dict[str, MediaSupport] = {}
        for kind, described in self._described.items():
            starts = [start for start in described if model.startswith(start)]
            if starts:
                found[kind] = described[max(starts, key=len)]
        return found


def _supported(message: Message, support: _Described) -> Message:
    if isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    blocks: tuple[ContentBlock, ...] = tuple(
        _shown_content(block, support) for block in message.content
    )
    same = all(map(operator.is_, blocks, message.content))
    return message if same else replace(message, content=blocks)


def _shown_content(block: ContentBlock, support: _Described) -> ContentBlock:
    if not is_media(block):
        return block
    described = support.get(block.type)
    return block if described is None or described.takes(block) else _notice(block, described)


def _notice(block: MediaBlock, support: MediaSupport) -> TextBlock:
    one, cannot, many = _WORDS[block.type]
    what = f"{one} ({block.media_type}, {size_text(len(block.data) * 3 // 4)}) was left out here"
    if not support.media_types:
        return TextBlock(f"[{what}: this model {cannot}.]")
    if block.media_type not in support.media_types:
        types = ", ".join(sorted(support.media_types))
        return TextBlock(f"[{what}: this model takes {types} only.]")
    bound = size_text((support.max_base64 or 0) * 3 // 4)
    return TextBlock(f"[{what}: this model takes {many} of at most {bound}.]")
