"""Refused media: images and other files that a provider does not accept, left out of requests.

Providers check more than the type of a file: its pixels, pages and password, or how many there are.
They refuse the whole request, and so every later request of the thread, which has the same message.
So a refused request is repeated without its newest media, and then without any. A text with the
provider's reason takes the place of what was left out, also in later requests.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import TypeAlias

from .._internal.records import changed
from ..errors import ModelError
from ..messages.message import AIMessage, MediaBlock, Message, TextBlock, is_media
from .base import ChatRequest, Delta

__all__ = ["RefusedMedia", "others_follow"]

_Ask: TypeAlias = Callable[[ChatRequest], AsyncGenerator[Delta | AIMessage, None]]

_MOST_KNOWN = 1_000
_MOST_REASON = 300
_REASON = re.compile(r"(?:\)|failed): (.*?)\.? No answer was kept", re.DOTALL)
_ABOUT_MEDIA = re.compile(r"\b(image|pdf|document|audio|video|media|multi-?modal|vision)", re.I)


_OTHERS_FOLLOW: ContextVar[bool] = ContextVar("others_follow", default=False)


@contextmanager
def others_follow() -> Generator[None]:
    """Have models raise refusals in this block: the next model may accept all media."""
    token = _OTHERS_FOLLOW.set(True)
    try:
        yield
    finally:
        _OTHERS_FOLLOW.reset(token)


class RefusedMedia:
    """The media that one model refused. Only this process remembers them."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # reasons by digest

    def without(self, request: ChatRequest) -> ChatRequest:
        """Return a request without media that were refused earlier."""
        return _left_out(request, self._known) if self._known else request

    async def answered(
        self, ask: _Ask, request: ChatRequest
    ) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield the parts of an answer; if media are refused, of the answer without them.

        Args:
            ask: Sends a request.
            request: The call.

        Raises:
            ModelError: The call failed for another reason, or another model is asked next.
        """
        raises = _OTHERS_FOLLOW.get()
        request = request if raises else self.without(request)
        refused: dict[str, str] = {}
        while True:
            try:
                async with aclosing(ask(request)) as parts:
                    async for part in parts:
                        self._note(refused)
                        yield part
                return
            except ModelError as error:
                more = {} if raises else _refused(request, error, every=bool(refused))
                if not more:
                    raise
                refused |= more
                request = _left_out(request, refused)

    def _note(self, refused: dict[str, str]) -> None:
        """Remember media without which a request is accepted."""
        self._known |= refused
        refused.clear()
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


def _digest(block: MediaBlock) -> str:
    # The type, too: a file that was refused because of a wrong type may come with the right one.
    text = f"{block.media_type} {block.data}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _media(message: Message) -> list[MediaBlock]:
    return [] if isinstance(message.content, str) else [*filter(is_media, message.content)]


def _refused(request: ChatRequest, error: ModelError, *, every: bool) -> dict[str, str]:
    """Return the media that the provider probably refused, with its reason; empty if none.

    These are all, or the newest: those before were usually accepted with an earlier request.
    """
    found = _REASON.search(str(error))
    reason = found[1] if found is not None else ""
    if error.kind != "invalid_request" or not _ABOUT_MEDIA.search(reason):
        return {}
    newest: list[MediaBlock] = []
    for message in reversed(request.messages):
        newest += _media(message)
        if newest and not every and isinstance(message, AIMessage):
            break
    return {_digest(one): reason[:_MOST_REASON] for one in newest}


def _left_out(request: ChatRequest, refused: Mapping[str, str]) -> ChatRequest:
    def shown(block: object) -> object:
        reason = refused.get(_digest(block)) if is_media(block) else None
        if reason is None or not is_media(block):
            return block
        what = f"{block.type}, {block.media_type}"
        return TextBlock(f"[{what}: left out, because the provider refused it: {reason}]")

    def cleaned(message: Message) -> Message:
        if not _media(message):
            return message
        return changed(message, content=tuple(map(shown, message.content)))

    return changed(request, messages=[cleaned(one) for one in request.messages])
