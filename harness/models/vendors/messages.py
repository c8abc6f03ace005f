"""A transcript as the library's messages, and what a vendor wants back of its own answers.

What a part of an answer carries besides its text (signatures, ids, encrypted reasoning) stands in a
`ProviderBlock` right behind the block it belongs to. It travels back only to the vendor it is from,
and only while that block is unchanged. Thinking without it is left out: nobody could check it.
"""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_core import to_json

from ...messages.message import (
    AIMessage,
    Content,
    HumanMessage,
    MediaBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    is_media,
)
from ..wire import CONTINUE, OPENING, clean_text, sendable
from .media import Media
from .naming import ToolNames, wire_id
from .vendors import Vendor

__all__ = ["Transcript", "extras_of", "fingerprint"]

_FAILED = "(This call failed.)"
_EMPTY = "(no output)"

_PART: TypeAdapter[ModelResponsePart] = TypeAdapter(ModelResponsePart)
_EXTRAS = ("id", "signature", "provider_details")
_SELF_CONTAINED = ("builtin-tool-call", "builtin-tool-return", "compaction", "file")


def fingerprint(block: TextBlock | ThinkingBlock | ToolCall) -> str:
    """Return what tells an unchanged block from one that was edited since."""
    match block:
        case TextBlock(text):
            said: bytes = text.encode("utf-8", "surrogatepass")
        case ThinkingBlock(thinking):
            said = thinking.encode("utf-8", "surrogatepass")
        case ToolCall(call_id, name, args):
            said = to_json([call_id, name, args])
    return sha256(said).hexdigest()[:16]


def extras_of(
    part: ModelResponsePart, block: TextBlock | ThinkingBlock | ToolCall | None, vendor: Vendor
) -> ProviderBlock | None:
    """Return what must travel back with a part of an answer, or None if nothing must.

    Args:
        part: As the library read it.
        block: What became of it here; None for a part that only its vendor understands.
        vendor: Whose answer it is.
    """
    data: dict[str, Any] = _PART.dump_python(part, mode="json", exclude_none=True)
    if block is None:
        return ProviderBlock(vendor.name, data)
    if isinstance(part, ThinkingPart) and part.id == "content":
        return None  # thinking between tags in the text; vendors advise against sending it back
    if not any(data.get(key) for key in _EXTRAS):
        return None
    kept: dict[str, JsonValue] = {"of": fingerprint(block), "part_kind": part.part_kind}
    kept |= {key: data[key] for key in (*_EXTRAS, "provider_name") if key in data}
    return ProviderBlock(vendor.name, kept)


class Transcript:
    """One request's messages on their way to a vendor.

    Args:
        vendor: Whose model is asked.
        system: The name that the library knows that vendor by.
        names: The names of the tools.
        media: What the model can see and hear.
    """

    def __init__(self, vendor: Vendor, system: str, names: ToolNames, media: Media) -> None:
        self._vendor = vendor
        self._system = system
        self._names = names
        self._media = media
        self._ids: dict[str, str] = {}
        self._called: dict[str, str] = {}

    def render(self, messages: Sequence[Message]) -> list[ModelMessage]:
        """Return the messages: user and model by turns, results right behind their calls."""
        rendered: list[ModelMessage] = []
        results: list[ToolReturnPart] = []
        said: list[UserPromptPart] = []

        def close() -> None:
            if results or said:
                rendered.append(ModelRequest([*results, *said]))
            results.clear()
            said.clear()

        for message in messages:
            match message:
                case HumanMessage(content):
                    said += self._prompt(content)
                case ToolMessage():
                    results.append(self._result(message))
                case AIMessage():
                    parts = self._answer(message)
                    if not parts:
                        continue
                    close()
                    self._add(parts, rendered)
        close()
        if not rendered or isinstance(rendered[-1], ModelResponse):
            rendered.append(ModelRequest([UserPromptPart(CONTINUE)]))
        return rendered

    def _add(self, parts: Sequence[ModelResponsePart], rendered: list[ModelMessage]) -> None:
        """Add an answer; two with nothing between them are one."""
        if not rendered:
            rendered.append(ModelRequest([UserPromptPart(OPENING)]))
        last = rendered[-1]
        if isinstance(last, ModelResponse):
            rendered[-1] = ModelResponse([*last.parts, *parts], provider_name=self._system)
        else:
            rendered.append(ModelResponse(parts, provider_name=self._system))

    def _prompt(self, content: Content) -> list[UserPromptPart]:
        if isinstance(content, str):
            return [UserPromptPart(clean_text(content))] if content.strip() else []
        items = self._items(content)
        return [UserPromptPart(items)] if items else []

    def _items(self, content: Iterable[TextBlock | MediaBlock]) -> list[UserContent]:
        items: list[UserContent] = []
        for block in content:
            if isinstance(block, TextBlock):
                items += [clean_text(block.text)] if block.text.strip() else []
            else:
                items.append(self._medium(block))
        return items

    def _medium(self, block: MediaBlock) -> UserContent:
        if not self._media.takes(block):
            return f"[{block.type}, {block.media_type}: left out, as this model does not take it]"
        try:
            data = base64.b64decode(block.data, validate=True)
        except binascii.Error:
            return f"[{block.type}, {block.media_type}: left out, as its data is not base64]"
        return BinaryContent(data, media_type=block.media_type)

    def _result(self, message: ToolMessage) -> ToolReturnPart:
        content: Any = message.content
        if isinstance(content, str):
            content = clean_text(content)
        elif any(is_media(block) for block in content):
            content = self._items(content)
        else:
            content = clean_text(message.text)
        failed = message.status == "error"
        if not content:
            content = _FAILED if failed else _EMPTY
        name = self._called.get(message.tool_call_id) or message.name
        return ToolReturnPart(
            self._names.wire(name),
            content,
            self._ids.get(message.tool_call_id)
            or wire_id(message.tool_call_id, self._vendor.id_length),
            outcome="failed" if failed else "success",
        )

    def _answer(self, message: AIMessage) -> list[ModelResponsePart]:
        own = (message.model or "").startswith(f"{self._vendor.name}:")
        parts: list[ModelResponsePart] = []
        blocks = message.content
        for place, block in enumerate(blocks):
            following = blocks[place + 1] if place + 1 < len(blocks) else None
            extras = self._own_data(following)
            match block:
                case TextBlock(text) if text.strip():
                    part = TextPart(clean_text(text))
                    parts.append(_with(part, extras, block))
                case ThinkingBlock(thinking):
                    part = _with(ThinkingPart(clean_text(thinking)), extras, block)
                    parts += [part] if part.provider_name is not None else []
                case ToolCall():
                    parts.append(_with(self._call(block, own), extras, block))
                case ProviderBlock():
                    parts += self._self_contained(block)
                case _:
                    pass
        spoken = any(not isinstance(part, ThinkingPart) for part in parts)
        return parts if spoken else []

    def _call(self, call: ToolCall, own: bool) -> ToolCallPart:
        # An id of the vendor's own goes back as it came: some read a meaning into it.
        wire = call.id if own else wire_id(call.id, self._vendor.id_length)
        self._ids[call.id], self._called[call.id] = wire, call.name
        return ToolCallPart(self._names.wire(call.name), sendable(call.args), wire)

    def _own_data(self, block: object) -> dict[str, Any] | None:
        if isinstance(block, ProviderBlock) and block.provider == self._vendor.name:
            return block.data
        return None

    def _self_contained(self, block: ProviderBlock) -> list[ModelResponsePart]:
        data = self._own_data(block)
        if data is None or "of" in data:
            return []
        try:
            return [_PART.validate_python(data)]
        except ValidationError:  # of a version of the library that wrote it differently
            return []


def _with(part: Any, extras: dict[str, Any] | None, block: Any) -> Any:
    """Return a part with what its vendor wants back, if that is of the block as it still is."""
    if extras is None or extras.get("part_kind") != part.part_kind:
        return part
    if extras.get("of") != fingerprint(block):
        return part
    return replace(
        part, **{key: extras[key] for key in (*_EXTRAS, "provider_name") if key in extras}
    )
