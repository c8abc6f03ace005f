"""Nesting limit: the depth of JSON that can be stored.

Readers of JSON, those of clients too, go down some two hundred levels. What is nested more deeply
could be stored, and its thread never be read again, so it is refused where it comes in.
"""

from __future__ import annotations

from typing import cast

from pydantic_core import from_json

__all__ = ["MAX_DEPTH", "can_be_read", "is_too_deep"]

MAX_DEPTH = 100
"""Levels of objects and lists that arguments of a call, an artifact or a value may have. What is
around them, a message in a list of messages, has some more."""


_NESTED = (dict, list)


def is_too_deep(value: object) -> bool:
    """Whether JSON data has more than `MAX_DEPTH` levels of objects and lists."""
    level = [value]
    for _ in range(MAX_DEPTH):
        nested: list[object] = [one for one in level if isinstance(one, _NESTED)]
        level = [inner for one in nested for inner in _within(one)]
        if not level:
            return False
    return any(isinstance(one, _NESTED) for one in level)


def _within(nested: object) -> list[object]:
    if isinstance(nested, dict):
        return list(cast("dict[str, object]", nested).values())
    return cast("list[object]", nested)


def can_be_read(data: bytes) -> bool:
    """Whether JSON is nested no more deeply than its readers go."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return True
    try:
        from_json(data)
    except ValueError:
        return False
    return True
