"""Conversion of transcripts to the library's messages, including data for the same vendor only.

A vendor's answer may contain extra data besides its text: signatures, ids or encrypted reasoning.
It is stored in a `ProviderBlock` right after its block. It is only sent back to the same vendor,
and only if the block is unchanged. Thinking without such data is left out, because no vendor could
verify it.

Tool names and call ids are shortened if necessary: vendors allow fewer characters and shorter names
than MCP servers. A shortened name ends with a digest, and is the same each time.

Images, documents and recordings are sent to models that accept them. Other models get a short text
instead.
"""

# The library is an optional extra, so its types may be missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, cast

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

from ..._internal import clean_text
from ..._internal.records import record
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
from ..wire import CONTINUE, OPENING, sendable
from . import Vendor

__all__ = ["Media", "ToolNames", "Transcript", "extras_of", "fingerprint", "media_of", "wire_id"]


_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_PDF = frozenset({"application/pdf"})
_SOUND = frozenset({"audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"})
_FILMS = frozenset({"video/mp4", "video/webm", "video/quicktime"})
_GOOGLES = frozenset(
    {"audio/aac", "audio/aiff", "audio/flac", "audio/ogg", "image/heic", "image/heif", "video/3gpp"}
)
"""Additional media types that Gemini accepts."""


@record
class Media:
    """Media types that a model accepts, by kind of block."""

    image: frozenset[str]
    document: frozenset[str]
    audio: frozenset[str]
    video: frozenset[str]

    def takes(self, block: MediaBlock) -> bool:
        """Whether the model accepts a block."""
        return block.media_type in cast("frozenset[str]", getattr(self, block.type))


def media_of(profile: Any, api: str) -> Media:
    """Return the media types that a model accepts, from the library's profile of it.

    Args:
        profile: A `ModelProfile`; as in the library, a missing key means yes.
        api: The protocol. Chat Completions and Mistral's support no video, and PDFs only partly.
    """

    def taken(key: str, types: frozenset[str], default: bool = True) -> frozenset[str]:
        return types if profile.get(key, default) else frozenset()

    more = _GOOGLES if api in ("google", "google-cloud") else frozenset[str]()
    documents = _PDF & profile.get("supported_document_media_types", _PDF)
    films = api in ("google", "google-cloud", "bedrock")
    sound = api in ("google", "google-cloud", "chat")
    return Media(
        taken("supports_image_input", _IMAGES | more),
        taken("supports_document_input", documents),
        taken("supports_audio_file_input", _SOUND | more, sound) if sound else frozenset(),
        taken("supports_video_input", _FILMS | more, films) if films else frozenset(),
    )


_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_BAD = re.compile(r"[^a-zA-Z0-9_-]")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ALPHANUMERIC = re.compile(r"[a-zA-Z0-9]+")
_SHORT = 9
"""Ids of this length or less only contain letters and digits: Mistral, which limits ids to this
length, accepts no others."""


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _wire_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    readable = _BAD.sub("_", name)[:50]
    return f"{readable if readable[:1].isalpha() else '_' + readable}_{_digest(name, 8)}"


class ToolNames:
    """Mapping between our tool names and the vendor's, in both directions, for one request.

    Args:
        names: Our names of the request's tools.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._ours = {_wire_name(name): name for name in names}

    @property
    def known(self) -> Collection[str]:
        """The vendor's names of the request's tools."""
        return self._ours.keys()

    def wire(self, name: str) -> str:
        """Return the vendor's name of a tool."""
        return _wire_name(name) if name else "unknown"

    def ours(self, name: str) -> str:
        """Return our name of a tool that a model called; an unknown name is returned unchanged."""
        return self._ours.get(name, name)


def wire_id(call_id: str, length: int) -> str:
    """Return an id that a vendor accepts; equal ids stay equal, so calls match their results.

    Args:
        call_id: Id of a call, perhaps from another vendor's model.
        length: Maximum length.
    """
    allowed = _ALPHANUMERIC if length <= _SHORT else _ID
    fits = len(call_id) == length if length <= _SHORT else len(call_id) <= length
    if fits and allowed.fullmatch(call_id):
        return call_id
    return _digest(call_id, length) if length <= _SHORT else f"call_{_digest(call_id, 24)}"


_FAILED = "(This call failed.)"
_EMPTY = "(no output)"

_PART: TypeAdapter[ModelResponsePart] = TypeAdapter(ModelResponsePart)
_EXTRAS = ("id", "signature", "provider_details")


def fingerprint(block: TextBlock | ThinkingBlock | ToolCall) -> str:
    """Return a digest that shows whether a block was edited."""
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
    """Return the extra data of an answer's part that must be sent back later, or None.

    Args:
        part: The library's part.
        block: The block made from it; None for a part that only its vendor understands.
        vendor: The vendor of the answer.
    """
    data: dict[str, Any] = _PART.dump_python(part, mode="json", exclude_none=True)
    if block is None:
        return ProviderBlock(vendor.name, data)
    if isinstance(part, ThinkingPart) and part.id == "content":
        return None  # thinking in tags inside the text; vendors advise against sending it back
    if not any(data.get(key) for key in _EXTRAS):
        return None
    kept: dict[str, JsonValue] = {"of": fingerprint(block), "part_kind": part.part_kind}
    kept |= {key: data[key] for key in (*_EXTRAS, "provider_name") if key in data}
    return ProviderBlock(vendor.name, kept)


class Transcript:
    """Converter of one request's messages to the library's messages.

    Args:
        vendor: The model's vendor.
        system: The library's name of the vendor.
        names: The names of the request's tools.
        media: Media types that the model accepts.
    """

    def __init__(self, vendor: Vendor, system: str, names: ToolNames, media: Media) -> None:
        self._vendor = vendor
        self._system = system
        self._names = names
        self._media = media
        self._open: dict[str, list[tuple[str, str]]] = {}

    def render(self, messages: Sequence[Message]) -> list[ModelMessage]:
        """Return messages of user and model in turns, with results right after their calls."""
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
        """Add an answer; consecutive answers are merged."""
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
        wire, name = self._called(message)
        return ToolReturnPart(
            self._names.wire(name), content, wire, outcome="failed" if failed else "success"
        )

    def _called(self, message: ToolMessage) -> tuple[str, str]:
        """Return id and name of a result's call, as sent to the vendor."""
        calls = self._open.get(message.tool_call_id)
        if calls is None:
            return wire_id(message.tool_call_id, self._vendor.id_length), message.name
        wire, name = calls.pop(0) if len(calls) > 1 else calls[0]
        return wire, name or message.name

    def _answer(self, message: AIMessage) -> list[ModelResponsePart]:
        own = (message.model or "").startswith(f"{self._vendor.name}:")
        parts: list[ModelResponsePart] = []
        self._open = {}
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
        # The vendor's own ids are sent back unchanged, because some of them have a meaning.
        known = self._open.setdefault(call.id, [])
        if known:  # a duplicate id in one answer: some vendors match results to calls by id
            wire = wire_id(f"{call.id}-{len(known)}", self._vendor.id_length)
        else:
            wire = call.id if own else wire_id(call.id, self._vendor.id_length)
        known.append((wire, call.name))
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
        except ValidationError:  # another version of the library wrote it
            return []


def _with(part: Any, extras: dict[str, Any] | None, block: Any) -> Any:
    """Return a part with its vendor's extra data, if the block is unchanged since."""
    if extras is None or extras.get("part_kind") != part.part_kind:
        return part
    if extras.get("of") != fingerprint(block):
        return part
    return replace(
        part, **{key: extras[key] for key in (*_EXTRAS, "provider_name") if key in extras}
    )
