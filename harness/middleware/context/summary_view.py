"""The view of a long transcript: pinned requests, summaries, and the recent messages.

A view is a pure function of the transcript and its summaries. It shows the user's first and latest
request word for word, keeps the order, and never separates a call from its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import add
from typing import Annotated, NotRequired, TypedDict

from ..._internal.records import record
from ...messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolMessage,
)
from ...models.base import message_tokens
from ...state.channels import Mark, Reducer
from .context_edits import Frontier

__all__ = [
    "SummarizationState",
    "SummaryChunk",
    "View",
    "build_view",
    "clipped",
    "clipped_view",
    "cuts",
    "latest_request",
    "pinned_places",
    "view_after",
]

SOURCE = "summarization"

_NOTICES = ("memory", "skills")
"""Sources of messages that are newer than their section of the system prompt."""

_CLIP = 4_000
_LEAST_CLIP = 500


@record
class SummaryChunk:
    """The summary of one part of the transcript.

    Attributes:
        upto_message_id: The last message it covers.
        text: The summary.
        tokens: Its estimated size.
        whole: Whether it also replaces all earlier chunks.
        upto_index: The index of that message; a hint that saves a search.
        request_index: The index of the user's latest request up to there, if any; a hint.
        made_at: Length of the transcript when the chunk was made.
    """

    upto_message_id: str
    text: str
    tokens: int
    whole: bool = False
    upto_index: int = 0
    request_index: int | None = None
    made_at: int = 0


class SummarizationState(TypedDict):
    """State of the middleware: its summaries, and the mark up to which it shortens arguments."""

    summaries: Annotated[
        NotRequired[list[SummaryChunk]], Reducer(add, default=list[SummaryChunk]), Mark.PRIVATE
    ]
    shortened_upto: Annotated[NotRequired[Frontier], Mark.PRIVATE]


@record
class View:
    """The view of a transcript that a model gets.

    Attributes:
        messages: Pinned requests, summaries, and the transcript from `start` on.
        chunks: The summaries in it, oldest first.
        start: Index in the transcript of the first message after the summaries.
    """

    messages: Sequence[Message]
    chunks: tuple[SummaryChunk, ...] = ()
    start: int = 0


def build_view(
    messages: Sequence[Message], chunks: Sequence[SummaryChunk], history: str | None = None
) -> View:
    """Return the view of a transcript, in time proportional to the part after the last summary.

    Chunks whose end is no longer in the transcript are ignored. Without chunks, the view is the
    transcript itself.

    Args:
        messages: The transcript.
        chunks: Its summaries, oldest first.
        history: Where the model can read all messages.
    """
    for count in range(len(chunks), 0, -1):
        index = _index_of(messages, chunks[count - 1])
        if index is None:
            continue
        kept = chunks[:count]
        oldest = max((place for place, chunk in enumerate(kept) if chunk.whole), default=0)
        since = None
        if kept[-1].made_at == len(messages):  # another attempt at the same call
            before = _index_of(messages, kept[-2]) if count > 1 else None
            since = 0 if before is None else before + 1
        return view_after(messages, tuple(kept[oldest:]), index + 1, history, since)
    return View(messages)


def view_after(
    messages: Sequence[Message],
    chunks: tuple[SummaryChunk, ...],
    start: int,
    history: str | None = None,
    since: int | None = None,
) -> View:
    """Return the view with these summaries, which cover the transcript up to `start`.

    Args:
        messages: The transcript.
        chunks: Its summaries, oldest first.
        start: The index of the part after them.
        history: The file where the model can read all messages.
        since: The index from which notices of changed memory and skills stay in the view: the
            prompt is built again without them only for the next call. None for none.
    """
    places = set(pinned_places(messages, start, chunks[-1]))
    if since is not None:
        places |= {place for place in range(since, start) if _is_notice(messages[place])}
    pinned = [messages[place] for place in sorted(places)]
    tail = _without_lost_results(_without_old_thinking(messages[start:]))
    return View([*pinned, _summary_message(chunks, history), *tail], chunks, start)


def _is_in_place(messages: Sequence[Message], chunk: SummaryChunk) -> bool:
    """Whether indices are unchanged since the chunk was made, so that its hints apply."""
    place = chunk.upto_index
    return place < len(messages) and messages[place].id == chunk.upto_message_id


def _index_of(messages: Sequence[Message], chunk: SummaryChunk) -> int | None:
    if _is_in_place(messages, chunk):
        return chunk.upto_index
    places = range(len(messages) - 1, -1, -1)
    return next((at for at in places if messages[at].id == chunk.upto_message_id), None)


def _is_request(message: Message) -> bool:
    return isinstance(message, HumanMessage) and message.is_request


def _is_notice(message: Message) -> bool:
    return isinstance(message, HumanMessage) and message.source in _NOTICES


def pinned_places(messages: Sequence[Message], start: int, chunk: SummaryChunk | None) -> list[int]:
    """Return the indices of the user's first and latest request, if they are before `start`."""
    first = next((at for at in range(start) if _is_request(messages[at])), None)
    if first is None:
        return []
    if any(map(_is_request, messages[start:])):
        return [first]
    latest = latest_request(messages, start, chunk)
    return [first] if latest is None or latest == first else [first, latest]


def latest_request(
    messages: Sequence[Message], start: int, chunk: SummaryChunk | None
) -> int | None:
    """Return the index of the last request before `start`, which `chunk` may know."""
    if chunk is not None and _is_in_place(messages, chunk):
        hint = chunk.request_index
        if hint is not None and _is_request(messages[hint]):
            return hint
    return next((at for at in range(start - 1, -1, -1) if _is_request(messages[at])), None)


def _summary_message(chunks: Sequence[SummaryChunk], history: str | None) -> HumanMessage:
    detail = f" What it leaves out can be looked up in {history}." if history else ""
    text = "\n\n".join(f"<summary>\n{chunk.text}\n</summary>" for chunk in chunks)
    return HumanMessage(
        "Older messages were replaced by this summary. Requests above it are the user's own "
        f"words; what follows it is what happened since.{detail}\n\n{text}",
        source=SOURCE,
        id=f"summary_{chunks[-1].upto_message_id}",
    )


def _without_old_thinking(tail: Sequence[Message]) -> list[Message]:
    """Drop reasoning that was signed for a longer prompt, except in the current turn."""
    turn = next((at for at in range(len(tail) - 1, -1, -1) if _is_request(tail[at])), 0)
    kept: list[Message] = []
    for place, message in enumerate(tail):
        if place < turn and isinstance(message, AIMessage):
            blocks = tuple(
                block
                for block in message.content
                if not isinstance(block, ThinkingBlock | RedactedThinkingBlock)
            )
            if len(blocks) < len(message.content):
                if blocks:
                    kept.append(replace(message, content=blocks))
                continue
        kept.append(message)
    return kept


def _without_lost_results(tail: Sequence[Message]) -> list[Message]:
    """Drop results whose call is not in the tail, because providers refuse them."""
    called: set[str] = set()
    kept: list[Message] = []
    for message in tail:
        if isinstance(message, AIMessage):
            called.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id not in called:
            continue
        kept.append(message)
    return kept


def cuts(messages: Sequence[Message], start: int) -> list[int]:
    """Return the indices after `start` at which no call is separated from its result."""
    called: dict[str, int] = {}
    reach: dict[int, int] = {}
    for place in range(start, len(messages)):
        message = messages[place]
        if isinstance(message, AIMessage):
            called.update((call.id, place) for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in called:
            reach[called[message.tool_call_id]] = place
    places: list[int] = []
    furthest = start
    for place in range(start + 1, len(messages)):
        furthest = max(furthest, reach.get(place - 1, -1))
        if place > furthest:
            places.append(place)
    return places


def clipped_view(view: View, history: str | None = None, *, harder: bool = False) -> View:
    """Return the view with long results clipped; the same one if none is long.

    Args:
        view: The view.
        history: Where the model can read all messages.
        harder: If none is long, clip all to a third of their average length.
    """
    messages = [clipped(message, history) for message in view.messages]
    if harder and _same(messages, view.messages):
        sizes = [len(one.text) for one in messages if isinstance(one, ToolMessage)]
        most = sum(sizes) // (3 * len(sizes)) if sizes else 0
        if most >= _LEAST_CLIP:
            messages = [clipped(message, history, most) for message in messages]
    return view if _same(messages, view.messages) else replace(view, messages=messages)


def _same(messages: Sequence[Message], others: Sequence[Message]) -> bool:
    return all(new is old for new, old in zip(messages, others, strict=True))


def clipped(message: Message, history: str | None = None, most: int = _CLIP) -> Message:
    """Return a result with its middle left out if it is long; others unchanged.

    Args:
        message: The message.
        history: Where the model can read all messages.
        most: The most characters, and tokens, of a result that is not long.
    """
    if not isinstance(message, ToolMessage):
        return message
    text = message.text
    if len(text) <= most and message_tokens(message) <= most:
        return message
    left_out = max(len(text) - most, 0)
    way = f"look them up in {history}" if history else "get them again in smaller parts"
    note = (
        f"\n[{left_out} characters and all images were left out here to fit the model's window. "
        f"If they matter, {way}.]\n"
    )
    head, tail = text[: most * 3 // 4], text[max(len(text) - most // 4, most * 3 // 4) :]
    return replace(message, content=f"{head}{note}{tail}")
