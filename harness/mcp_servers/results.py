"""Results of an MCP server's tools, as ours."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from ..backends.file_tools.media import binary_notice, media_content
from ..messages.message import ContentBlock, TextBlock
from ..tools.tool import ToolResult

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, TextResourceContents
    from mcp.types import ContentBlock as WireBlock

__all__ = ["tool_result"]


def tool_result(result: CallToolResult) -> ToolResult:
    """Return a server's result as a model and programs of ours take it.

    Text and images stay; links, embedded files, audio and images that no model takes become text
    that says what they are. Structured content is the artifact, and the text too if there is none.
    """
    blocks = [_block(one) for one in result.content]
    artifact = cast(JsonValue, result.structured_content)
    if artifact is not None and not any(isinstance(one, TextBlock) for one in blocks):
        blocks.insert(0, TextBlock(json.dumps(artifact, ensure_ascii=False)))
    status = "error" if result.is_error else "success"
    if all(isinstance(one, TextBlock) for one in blocks):
        text = "\n".join(one.text for one in blocks if isinstance(one, TextBlock))
        return ToolResult(text, artifact, status)
    return ToolResult(tuple(blocks), artifact, status)


def _block(block: WireBlock) -> ContentBlock:
    match block.type:
        case "text":
            return TextBlock(block.text)
        case "image":
            return _binary(f"image of type {block.mime_type}", block.data)
        case "audio":
            return TextBlock(f"[audio, {block.mime_type}; it cannot be shown here]")
        case "resource_link":
            facts = [block.title or block.name, block.description, block.mime_type]
            return TextBlock(f"[resource {block.uri}: {', '.join(filter(None, facts))}]")
        case "resource":
            return _embedded(block.resource)


def _embedded(resource: TextResourceContents | BlobResourceContents) -> ContentBlock:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        kind = resource.mime_type or "text"
        return TextBlock(f"[resource {resource.uri}, {kind}]\n{text}")
    return _binary(f"resource {resource.uri}", str(getattr(resource, "blob", "")))


def _binary(what: str, data: str) -> ContentBlock:
    """Return an image, or a note about anything else.

    The bytes decide, not the type that is claimed: an image that the provider refuses would end
    the thread.
    """
    try:
        content = base64.b64decode(data, validate=True)
        shown = media_content(what, content) or binary_notice(what, content)
    except (binascii.Error, ValueError):
        return TextBlock(f"[{what} is broken: its base64 cannot be decoded]")
    return TextBlock(shown) if isinstance(shown, str) else shown[-1]
