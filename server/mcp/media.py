"""Images and recordings in results."""

from __future__ import annotations

from mcp.types import AudioContent, ImageContent

from ...harness.messages.message import AudioBlock, ImageBlock, MediaBlock

__all__ = ["MAX_MEDIA", "media_block"]

MAX_MEDIA = 700_000
"""Most characters of an encoded image or recording in a result; some clients bear no megabyte."""


def media_block(block: MediaBlock) -> ImageContent | AudioContent | None:
    """Return a block in the protocol's words, None if it is better not shown."""
    if len(block.data) > MAX_MEDIA:
        return None
    match block:
        case ImageBlock(media_type, data):
            return ImageContent(data=data, mime_type=media_type)
        case AudioBlock(media_type, data):
            return AudioContent(data=data, mime_type=media_type)
        case _:
            return None
