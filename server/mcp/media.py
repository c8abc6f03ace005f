"""Contents of results: images, recordings, files and links."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping
from contextlib import suppress

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ImageContent,
    ReadResourceResult,
    TextResourceContents,
)

from ...harness.backends.file_tools.results import media_type_of
from ...harness.messages.message import AudioBlock, ImageBlock, MediaBlock
from ..auth.caller import current_client

__all__ = ["MAX_MEDIA", "drop_links", "file_contents", "media_block", "text_contents"]

MAX_MEDIA = 700_000
"""Most characters of an encoded image or recording in a result; some clients refuse a megabyte."""

_SHOW_LINKS = ("claude-", "cursor", "gemini-cli", "visual studio code", "deep-agent")
"""Beginnings of the names of clients that show links to resources."""


def drop_links(result: CallToolResult) -> None:
    """Remove links from a result, unless the client is known to show them.

    Adapters of agent frameworks pass a link to their model's API as a file, and the API refuses the
    request. The text contains the same information as the links.
    """
    has_links = any(one.type == "resource_link" for one in result.content)
    if has_links and not current_client.get().lower().startswith(_SHOW_LINKS):
        result.content = [one for one in result.content if one.type != "resource_link"]


def media_block(block: MediaBlock) -> ImageContent | AudioContent | None:
    """Return a content block of the protocol; None if it should not be shown."""
    if len(block.data) > MAX_MEDIA:
        return None
    match block:
        case ImageBlock(media_type, data):
            return ImageContent(data=data, mime_type=media_type)
        case AudioBlock(media_type, data):
            return AudioContent(data=data, mime_type=media_type)
        case _:
            return None


_TEXT_TYPES: Mapping[str, str] = {".md": "text/markdown", ".yaml": "text/yaml", ".yml": "text/yaml"}


def file_contents(uri: str, data: bytes, path: str) -> ReadResourceResult:
    """Return a file as a content block; the type of media comes from the bytes, not the name."""
    media = media_type_of(data)
    suffix = path[path.rfind(".") :].lower()
    mime = media or _TEXT_TYPES.get(suffix) or mimetypes.guess_type(path)[0]
    if media is None:
        with suppress(UnicodeDecodeError):
            return text_contents(uri, data.decode(), mime or "text/plain")
    blob = base64.b64encode(data).decode()
    mime = mime or "application/octet-stream"
    contents = BlobResourceContents(uri=uri, mime_type=mime, blob=blob)
    return ReadResourceResult(contents=[contents])


def text_contents(uri: str, text: str, mime: str) -> ReadResourceResult:
    """Return a text as the contents of a resource."""
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime, text=text)])
