"""JSON schemas of tools for an API that takes only some: the rest is told in words.

A model reads it in the tool's description. Calls are held to the whole schema where they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue

__all__ = ["taken_and_told"]

_COMBINED = ("allOf", "anyOf", "oneOf")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_Schema = dict[str, JsonValue]


def taken_and_told(schema: Mapping[str, JsonValue]) -> tuple[_Schema, str]:
    """Return what the Messages API takes of a tool's schema, and what it does not, in words.

    It refuses `allOf`, `anyOf` and `oneOf` at the top, and properties there with other characters
    than letters, digits, `_`, `.` and `-`, or more than 64; one such tool spoils every request.

    Args:
        schema: The schema of an object.
    """
    taken = {key: value for key, value in schema.items() if key not in _COMBINED}
    told: _Schema = {key: schema[key] for key in _COMBINED if key in schema}
    own = cast(_Schema, schema.get("properties") or {})
    properties = {**_of_branches(told), **own}
    odd = {name: one for name, one in properties.items() if not _KEY.fullmatch(name)}
    if not told and not odd:
        return taken, ""
    taken["properties"] = {name: one for name, one in properties.items() if name not in odd}
    if odd:
        required = cast(list[str], schema.get("required") or [])
        taken["required"] = [name for name in required if name not in odd]
        told |= {
            "properties": {name: one for name, one in own.items() if name in odd},
            "required": [name for name in required if name in odd],
        }
        taken.pop("additionalProperties", None)  # it would forbid them
    rest = json.dumps(told, ensure_ascii=False)
    return taken, f"The arguments must also fit this JSON schema: {rest}"


def _of_branches(combined: Mapping[str, Any]) -> _Schema:
    """Return the properties that branches name; where they differ, any of what they say."""
    found: dict[str, list[JsonValue]] = {}
    for name, one in _named(combined):
        known = found.setdefault(name, [])
        if one not in known:
            known.append(one)
    return {name: ones[0] if len(ones) == 1 else {"anyOf": ones} for name, ones in found.items()}


def _named(combined: Mapping[str, Any]) -> Iterator[tuple[str, JsonValue]]:
    for branches in combined.values():
        for branch in branches:
            if isinstance(branch, dict):
                yield from cast("dict[str, Any]", branch).get("properties", {}).items()
