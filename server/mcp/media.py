"""Images, recordings and links in results."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.types import AudioContent, ContentBlock, ImageContent

from ...harness.messages.message import AudioBlock, ImageBlock, MediaBlock

__all__ = ["MAX_MEDIA", "media_block", "shown_blocks"]

MAX_MEDIA = 700_000
"""Most characters of an encoded image or recording in a result; some clients bear no megabyte."""

_SHOW_LINKS = ("claude-", "cursor", "gemini-cli", "visual studio code", "deep-agent")
"""Clients that show links to resources, by the start of their name."""


def shown_blocks(blocks: Sequence[ContentBlock], client: str) -> list[ContentBlock]:
    """Return the blocks of a result that do a client no harm.

    Adapters of agent frameworks hand a link on to their model's API as a file, and the API refuses
    the request. What a link says stands in the text, too.

    Args:
        blocks: All of them.
        client: What the client calls itself; empty if it does not say.
    """
    if client.lower().startswith(_SHOW_LINKS):
        return [*blocks]
    return [one for one in blocks if one.type != "resource_link"]


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
