"""Tool results: turns whatever a tool returns into a `ToolResult`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from os import PathLike, fspath
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

from .._internal.json_bounds import MAX_DEPTH, is_too_deep
from .._internal.records import changed
from ..messages.message import (
    Content,
    ContentBlock,
    DocumentBlock,
    TextBlock,
    ToolMessage,
    is_media,
)
from .runtime import ToolResult

__all__ = ["NO_OUTPUT", "as_json", "result_of", "storable_text"]

NO_OUTPUT = "(no output)"
"""What a model sees of a tool that returned nothing; providers refuse empty results."""


def result_of(value: object, name: str = "the tool") -> ToolResult:
    """Return the result that a tool's return value stands for.

    Text and content blocks (one, or a list of blocks and texts) are shown as they are, None and
    empty text as `(no output)`. Anything else becomes JSON with non-ASCII kept:
    pydantic models, dataclasses, enums, dates, sets, numbers and what is made of them. Of a
    `ToolMessage` the content, artifact and status count.

    It never raises: bytes, NaN, values that contain themselves and other things that are no JSON
    data give an error result.

    Args:
        value: What the tool returned.
        name: The tool, for the error.
    """
    try:
        if isinstance(value, ToolResult):
            artifact = None if value.artifact is None else _plain(value.artifact)
            return changed(value, content=_content(value.content), artifact=artifact)
        if isinstance(value, ToolMessage):
            return result_of(ToolResult(value.content, value.artifact, value.status), name)
        return ToolResult(_content(value))
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        return ToolResult(
            f"{name} ran, and may have changed something, but its result cannot be shown: {error}. "
            "The tool must return text, content blocks or JSON data; calling it again will not "
            "help.",
            status="error",
        )


def as_json(value: object) -> str:
    """Return the value as JSON text, non-ASCII kept.

    Raises:
        TypeError: It holds something that is no JSON data, such as bytes.
        ValueError: It holds NaN or infinity, or contains itself.
    """
    return storable_text(_JSON.encode(value))


def _plain(value: object) -> JsonValue:
    data: JsonValue = json.loads(as_json(value))
    if is_too_deep(data):
        raise ValueError(f"its artifact has more than {MAX_DEPTH} levels of objects and lists")
    return data


def _content(value: object) -> Content:
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return storable_text(value) if value.strip() else NO_OUTPUT
    if isinstance(value, TextBlock) or is_media(value):
        return _blocks([value])
    if isinstance(value, list | tuple):
        parts = cast(Sequence[object], value)
        blocks = [TextBlock(one) if isinstance(one, str) else one for one in parts]
        shown = [one for one in blocks if isinstance(one, TextBlock) or is_media(one)]
        # A list of nothing but texts is data, like any other list.
        if len(shown) == len(parts) and not all(isinstance(one, str) for one in parts):
            return _blocks(shown)
    return as_json(cast(object, value))


def _blocks(blocks: Sequence[ContentBlock]) -> Content:
    """Return the blocks without empty ones, which providers refuse."""
    shown = tuple(
        _storable(one) for one in blocks if not isinstance(one, TextBlock) or one.text.strip()
    )
    return shown or NO_OUTPUT


def _storable(block: ContentBlock) -> ContentBlock:
    if isinstance(block, TextBlock):
        return replace(block, text=storable_text(block.text))
    if isinstance(block, DocumentBlock):
        return replace(block, name=storable_text(block.name))
    return block


def storable_text(text: str) -> str:
    """Return the text with halves of surrogate pairs, which no journal takes, replaced by `?`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _jsonable(value: Any) -> Any:
    """Return what `json` shall write in place of a value it does not know."""
    match value:
        case bytes() | bytearray() | memoryview():
            raise TypeError(
                "it holds bytes; decode them to text, or return an ImageBlock for an image"
            )
        case BaseModel():
            return value.model_dump(mode="json")
        case Enum():
            return value.value
        case Mapping():
            return dict(cast(Mapping[Any, Any], value))
        case PathLike():
            return fspath(cast("PathLike[str]", value))
        case set() | frozenset():
            return list(cast(set[Any], value))
        case _ if isinstance(value, Iterator):
            kind = type(cast(object, value)).__name__
            raise TypeError(f"it holds a {kind}, which can be read only once")
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {one.name: getattr(value, one.name) for one in fields(value)}
        case _:
            return to_jsonable_python(value)


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_jsonable)
