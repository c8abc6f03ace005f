"""Shows a model a notice in the place of images, documents and recordings that it cannot take.

A request that holds one would be refused, on every later turn of the thread too, since the log
keeps it. Only the view changes: another model may take it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import replace

from ..._internal.records import record
from ...backends.base import size_text
from ...errors import AgentBuildError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import AIMessage, ContentBlock, MediaBlock, Message, TextBlock, is_media
from .edited_prefix import EditedMessages

__all__ = ["MediaSupport", "UnsupportedContentMiddleware"]


@record
class MediaSupport:
    """Which images, or which of another kind, a model takes.

    Attributes:
        media_types: Such as `image/png`; empty for none.
        max_base64: Most characters of the encoded data; None for no bound.
    """

    media_types: Collection[str] = ()
    max_base64: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.media_types, str):
            raise AgentBuildError(f"media_types is a collection; write [{self.media_types!r}]")

    def takes(self, block: MediaBlock) -> bool:
        """Whether the model takes it."""
        small = self.max_base64 is None or len(block.data) <= self.max_base64
        return small and block.media_type in self.media_types


_Described = Mapping[str, MediaSupport]

_KNOWN: Mapping[str, _Described] = {
    "image": {
        "anthropic:": MediaSupport(
            ("image/gif", "image/jpeg", "image/png", "image/webp"), max_base64=5 << 20
        )
    },
    "document": {"anthropic:": MediaSupport(("application/pdf",), max_base64=30 << 20)},
    "audio": {"anthropic:": MediaSupport()},
    "video": {"anthropic:": MediaSupport()},
}

_WORDS = {
    "image": ("An image", "cannot see images", "images"),
    "document": ("A document", "cannot read documents", "documents"),
    "audio": ("A recording", "cannot hear recordings", "recordings"),
    "video": ("A film", "cannot see films", "films"),
}
"""What a block of a kind is called, what a model without support for it cannot do, and many."""


class UnsupportedContentMiddleware(AgentMiddleware):
    """Replaces what the request's model does not take by a text that says so.

    List it after middleware that chooses the model.

    Args:
        images: Which images models take, by the beginning of their name, such as
            `{"anthropic:my-local-model": MediaSupport()}` for one without eyes. The longest
            beginning counts; it goes before what is known of providers. A model that is not
            described anywhere gets everything.
        documents: Likewise documents, such as `application/pdf`.
        audio: Likewise recordings.
        video: Likewise films.

    Raises:
        AgentBuildError: A value is no `MediaSupport`.
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
        """Show the view without what the model would refuse."""
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
        """Return what a model takes by kind, as far as that is described."""
        found: dict[str, MediaSupport] = {}
        for kind, described in self._described.items():
            starts = [start for start in described if model.startswith(start)]
            if starts:
                found[kind] = described[max(starts, key=len)]
        return found


def _supported(message: Message, support: _Described) -> Message:
    if isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    blocks: tuple[ContentBlock, ...] = tuple(_shown(block, support) for block in message.content)
    same = all(map(operator.is_, blocks, message.content))
    return message if same else replace(message, content=blocks)


def _shown(block: ContentBlock, support: _Described) -> ContentBlock:
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
