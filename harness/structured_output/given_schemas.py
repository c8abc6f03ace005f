"""Given schemas: checks a JSON schema that a caller sends, before a run starts.

It may be no schema at all, be made to take long, or refer to an address that a validator would
fetch. What is accepted here can be kept; how long an answer is compared is bounded, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue

from .._internal.json_bounds import is_too_deep
from ..errors import AgentBuildError, HarnessError
from ..models.wire import resolve
from . import AutoStrategy, StructuredOutput

__all__ = ["MAX_SCHEMA_BYTES", "InvalidSchema", "checked_schema"]

MAX_SCHEMA_BYTES = 32_000
"""Size of its JSON. A model reads all of it, and once more at each repair."""

_DEEPEST = 32
"""Levels of objects and lists in a schema."""

_MOST_PARTS = 10_000
"""Objects and lists in a schema whose references are written out."""

_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$id")
"""What leads out of the schema, or changes where its references lead."""


class InvalidSchema(HarnessError):
    """A JSON schema cannot be the format of an answer; the text says why."""


def checked_schema(
    schema: Mapping[str, JsonValue], tools: Collection[str] = ()
) -> dict[str, JsonValue]:
    """Return a schema that answers can be held to; it takes some milliseconds.

    Args:
        schema: JSON data.
        tools: Names of the tools of whoever answers. The schema becomes a tool beside them, and
            gets another title if it has the name of one.

    Raises:
        InvalidSchema: It is not the schema of an object, is too large or too deep, or refers to
            something that is not in it.
    """
    if is_too_deep(dict(schema)) or _depth(schema) > _DEEPEST:
        raise InvalidSchema(f"it has more than {_DEEPEST} levels; make it flatter")
    size = len(json.dumps(dict(schema)))
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it has {size:,} bytes of JSON; at most {MAX_SCHEMA_BYTES:,} are kept")
    kept = {key: value for key, value in schema.items() if key != "$id"}
    for name, value in _members(kept):
        if name in _ELSEWHERE and isinstance(value, str):
            raise InvalidSchema(f"it has {name!r}; refer to parts of it with $ref and $defs")
    if not {"type", "properties", "oneOf", "anyOf", "$ref"} & kept.keys() or (
        kept.get("type", "object") != "object"
    ):
        raise InvalidSchema(
            'it is not the schema of an object, {"type": "object", "properties": …}; put an answer '
            "of another type into a property"
        )
    _require_bounded(kept)
    try:
        named = StructuredOutput.of(AutoStrategy(kept)).members
        if not named.keys().isdisjoint(tools):
            kept["title"] = "final_answer"
        StructuredOutput.of(AutoStrategy(kept), tools)
    except AgentBuildError as error:
        raise InvalidSchema(str(error).removeprefix("response_format: ")) from error
    except RecursionError as error:
        raise InvalidSchema("it refers to itself without end") from error
    except Exception as error:  # the library stumbles over some of what is no schema
        raise InvalidSchema(f"it is not a JSON schema ({type(error).__name__}: {error})") from error
    return kept


def _require_bounded(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is small, and large once its references are written out.

    Some vendors are sent it so. A reference to what is being written out stays one.
    """
    left = [_MOST_PARTS]

    def write_out(node: Any, seen: tuple[str, ...]) -> None:
        left[0] -= 1
        if left[0] < 0 or len(seen) > _DEEPEST:
            raise InvalidSchema(
                f"it has more than {_MOST_PARTS:,} parts, or {_DEEPEST} references below each "
                "other, once its references are written out; make it simpler"
            )
        ref = cast("dict[str, Any]", node).get("$ref") if isinstance(node, dict) else None
        if isinstance(ref, str) and ref not in seen:
            try:
                write_out(resolve(schema, ref), (*seen, ref))
            except LookupError as error:
                raise InvalidSchema(str(error)) from error
        for inner in _within(node):
            if _is_nested(inner):
                write_out(inner, seen)

    # Definitions count where they are referred to.
    write_out({key: one for key, one in schema.items() if key not in ("$defs", "definitions")}, ())


def _depth(value: object) -> int:
    """Return the levels of objects and lists; there are not too many to go down."""
    level, depth = [value], 0
    while level:
        depth += 1
        level = [inner for one in level for inner in _within(one) if _is_nested(inner)]
    return depth


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list)


def _within(value: Any) -> Collection[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _members(value: object) -> Iterator[tuple[str, object]]:
    """Yield the names and values of all objects in JSON data."""
    if isinstance(value, dict):
        yield from cast("dict[str, object]", value).items()
    for inner in _within(value):
        yield from _members(inner)
