"""Values as JSON text: what is stored is exactly what comes back, or it is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from .._internal.json_bounds import MAX_DEPTH
from .base import InvalidOperation

__all__ = ["decode", "encode", "is_unicode", "json_text"]


def encode(value: Mapping[str, JsonValue]) -> str:
    """Return a value as JSON text.

    Raises:
        InvalidOperation: It is not a JSON object.
    """
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOperation(
            f"a value is a JSON object (a dict); got {type(value).__name__}. Nothing was done; "
            "wrap it, such as {'value': …}."
        )
    return json_text(dict(value), "the value")


def decode(text: str) -> dict[str, JsonValue]:
    """Return the value that a JSON text stands for."""
    return json.loads(text)


def json_text(value: Any, what: str) -> str:
    """Return JSON text, refusing what JSON cannot say or would say as something else.

    Args:
        value: What was given.
        what: What to call it, such as `the value`.

    Raises:
        InvalidOperation: It is not JSON.
    """
    _check(value, what, 0)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an integer of more digits than Python prints
        raise _not_json(what, str(error)) from error


def is_unicode(text: str) -> bool:
    """Return whether a string is text: one that was cut inside of a character is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(value: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _not_json(where[:80], f"it is nested more than {MAX_DEPTH} levels deep, or a cycle")
    match value:
        case None | bool() | int():
            pass
        case str():
            if not is_unicode(value):
                raise _not_json(where, "the string has half of a surrogate pair")
        case float():
            if not math.isfinite(value):
                raise _not_json(where, f"there is no {value}")
        case list():
            _check_elements(value, where, depth)  # pyright: ignore[reportUnknownArgumentType]
        case dict():
            _check_entries(value, where, depth)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise _not_json(where, f"{type(value).__name__} is none of its types")


def _check_elements(value: list[Any], where: str, depth: int) -> None:
    for index, element in enumerate(value):
        _check(element, f"{where}[{index}]", depth + 1)


def _check_entries(value: dict[Any, Any], where: str, depth: int) -> None:
    for key, element in value.items():
        if not isinstance(key, str) or not is_unicode(key):
            raise _not_json(where, f"the key {key!r} is not text")
        _check(element, f"{where}.{key}", depth + 1)


def _not_json(where: str, problem: str) -> InvalidOperation:
    return InvalidOperation(
        f"{where} is not JSON: {problem}. Nothing was done; give objects, lists, strings, finite "
        "numbers, booleans and null only."
    )
