"""Images, recordings and links in results."""

from __future__ import annotations

from mcp.types import AudioContent, CallToolResult, ImageContent

from ...harness.messages.message import AudioBlock, ImageBlock, MediaBlock
from .requests import Context, client_name

__all__ = ["MAX_MEDIA", "drop_links", "media_block"]

MAX_MEDIA = 700_000
"""Most characters of an encoded image or recording in a result; some clients refuse a megabyte."""

_SHOW_LINKS = ("claude-", "cursor", "gemini-cli", "visual studio code", "deep-agent")
"""Clients that show links to resources, by the start of their name."""


def drop_links(ctx: Context, result: CallToolResult) -> None:
    """Take links out of a result, unless the client is known to show them.

    Adapters of agent frameworks hand a link on to their model's API as a file, and the API refuses
    the request. What a link says stands in the text, too.
    """
    has_links = any(one.type == "resource_link" for one in result.content)
    if has_links and not client_name(ctx).lower().startswith(_SHOW_LINKS):
        result.content = [one for one in result.content if one.type != "resource_link"]


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
