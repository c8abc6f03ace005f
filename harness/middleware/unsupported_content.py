"""Shows a model a notice in the place of images that it cannot take.

A request that holds one would be refused, on every later turn of the thread too, since the log
keeps it. Only the view changes: another model may take the image (peers C4.2).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from harness.backends.tree import size_text
from harness.errors import AgentBuildError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse
from harness.messages import AIMessage, ContentBlock, ImageBlock, Message, TextBlock
from harness.middleware.edited_prefix import EditedMessages

__all__ = ["ImageSupport", "UnsupportedContentMiddleware"]


@dataclass(frozen=True, slots=True)
class ImageSupport:
    """Which images a model takes.

    Attributes:
        media_types: Such as `image/png`; empty for none.
        max_base64: Most characters of the encoded data; None for no bound.
    """

    media_types: Collection[str] = ()
    max_base64: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.media_types, str):
            raise AgentBuildError(f"media_types is a collection; write [{self.media_types!r}]")

    def takes(self, image: ImageBlock) -> bool:
        """Whether the model takes an image."""
        small = self.max_base64 is None or len(image.data) <= self.max_base64
        return small and image.media_type in self.media_types


_KNOWN: Mapping[str, ImageSupport] = {
    "anthropic:": ImageSupport(
        ("image/gif", "image/jpeg", "image/png", "image/webp"), max_base64=5 << 20
    ),
}


class UnsupportedContentMiddleware(AgentMiddleware):
    """Replaces images that the request's model does not take by a text that says so.

    List it after middleware that chooses the model.

    Args:
        images: What models take, by the beginning of their name, such as
            `{"anthropic:my-local-model": ImageSupport()}` for one without eyes. The longest
            beginning counts; it goes before what is known of providers. A model that is not
            described anywhere gets everything.

    Raises:
        AgentBuildError: A value is no `ImageSupport`.
    """

    def __init__(self, images: Mapping[str, ImageSupport] | None = None) -> None:
        for name, support in (images or {}).items():
            if not isinstance(support, ImageSupport):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise AgentBuildError(
                    f"images[{name!r}] is an ImageSupport(media_types, max_base64); got {support!r}"
                )
        self._images = {**_KNOWN, **(images or {})}
        self._views = EditedMessages()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Show the view without what the model would refuse."""
        support = self._support(request.model.name)
        if support is None:
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

    def _support(self, model: str) -> ImageSupport | None:
        described = [start for start in self._images if model.startswith(start)]
        return self._images[max(described, key=len)] if described else None


def _supported(message: Message, support: ImageSupport) -> Message:
    if isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    blocks: tuple[ContentBlock, ...] = tuple(
        _notice(block, support)
        if isinstance(block, ImageBlock) and not support.takes(block)
        else block
        for block in message.content
    )
    same = all(map(operator.is_, blocks, message.content))
    return message if same else replace(message, content=blocks)


def _notice(image: ImageBlock, support: ImageSupport) -> TextBlock:
    what = f"An image ({image.media_type}, {size_text(len(image.data) * 3 // 4)}) was left out here"
    if not support.media_types:
        return TextBlock(f"[{what}: this model cannot see images.]")
    if image.media_type not in support.media_types:
        types = ", ".join(sorted(support.media_types))
        return TextBlock(f"[{what}: this model takes {types} only.]")
    bound = size_text((support.max_base64 or 0) * 3 // 4)
    return TextBlock(f"[{what}: this model takes images of at most {bound}.]")
