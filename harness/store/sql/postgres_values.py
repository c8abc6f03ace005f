"""Postgres values: encodes what Postgres cannot hold, such as NUL, and search vectors.

NUL is written as two U+0001, and U+0001 as U+0001 U+0002. That can be undone, and strings keep
their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from pydantic import JsonValue

from ..values import decode, json_text

__all__ = ["escaped_json", "escaped_text", "text_search_query", "text_search_vector", "unescaped"]

_ESCAPES = str.maketrans({"\x00": "\x01\x01", "\x01": "\x01\x02"})

_ESCAPED = re.compile("\x01[\x01\x02]")

_LAST_PLACE = 16_383
"""The largest place of a word that Postgres keeps."""

_MOST_PLACES = 255
"""How many places of one word Postgres keeps."""


def escaped_text(text: str) -> str:
    """Return a string as Postgres can hold it."""
    return text.translate(_ESCAPES)


def escaped_json(text: str) -> str:
    """Return JSON text as Postgres can hold it."""
    if "\\u0000" not in text and "\\u0001" not in text:
        return text
    return json_text(_each_string(decode(text), escaped_text), "the value")


def unescaped(text: str) -> dict[str, JsonValue]:
    """Return the value that was stored as this JSON text."""
    value = decode(text)
    return _each_string(value, _unescaped_text) if "\\u0001" in text else value


def text_search_vector(words: Sequence[str]) -> str:
    """Return words and their places as a `tsvector`; words are letters, digits and marks only."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, start=1):
        known = places.setdefault(word, [])
        if len(known) < _MOST_PLACES:
            known.append(min(place, _LAST_PLACE))
    return " ".join(f"'{word}':{','.join(map(str, places[word]))}" for word in places)


def text_search_query(words: Sequence[str]) -> str:
    """Return a `tsquery` that any of the words fulfils."""
    return " | ".join(f"'{word}'" for word in words)


def _unescaped_text(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\x00" if found[0] == "\x01\x01" else "\x01", text)


def _each_string(value: Any, change: Any) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_each_string(element, change) for element in cast("list[Any]", value)]
        case dict():
            entries = cast("dict[str, Any]", value).items()
            return {change(key): _each_string(element, change) for key, element in entries}
        case _:
            return value
