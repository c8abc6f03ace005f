"""Items of a store: their names, values and filters, checked the same way for every store.

A value is JSON text: it is returned exactly as it was stored, or it is refused.

A database stores a namespace as its segments, each followed by a unit separator. Segments cannot
contain it, and it sorts before every character that they can contain. So namespaces sort like
tuples, and all namespaces below a prefix are one range of an index.

`matches` defines the meaning of a filter. A store that filters in its database must give the same
results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice, takewhile
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import JsonValue

from .._internal import is_unicode
from .._internal.json_bounds import MAX_DEPTH
from .._internal.records import record
from .base import Filter, InvalidNamespace, InvalidOperation, ListNamespaces, Namespace

__all__ = [
    "ANY",
    "Condition",
    "Operator",
    "begins_with",
    "bounds",
    "check_key",
    "check_namespace",
    "check_pattern",
    "decode",
    "encode",
    "json_text",
    "literal_prefix",
    "matches",
    "parse_filter",
    "select",
    "stored",
    "unstored",
]


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
    """Return the value of a JSON text."""
    return json.loads(text)


def json_text(value: Any, what: str) -> str:
    """Return JSON text; refuse values that JSON cannot represent or would change.

    Args:
        value: The value.
        what: Its name in errors, such as `the value`.

    Raises:
        InvalidOperation: It is not JSON.
    """
    _check(value, what, 0)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an integer of more digits than Python prints
        raise _not_json(what, str(error)) from error


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


ANY = "*"
"""Matches any one segment when namespaces are listed."""

_END = "\x1f"
"""Follows each segment of a stored namespace."""

_PAST = "\x20"
"""Sorts after `_END`, and before all other characters that a segment may contain."""

_LONGEST = 1_024
"""Bytes of a key, and of a namespace: together they have to fit into an index of Postgres."""


def check_namespace(namespace: Any, *, empty: bool = False) -> None:
    """Check that a value is a namespace.

    Args:
        namespace: The value.
        empty: Whether it may have no segments, like a prefix.

    Raises:
        InvalidNamespace: It is not one.
    """
    check_pattern(namespace)
    if not namespace and not empty:
        raise _invalid(namespace, "it has no segment; name at least one, such as ('memories',)")
    if ANY in namespace:
        raise _invalid(namespace, f"{ANY!r} stands for any segment, and only in list_namespaces")


def check_pattern(namespace: Any) -> None:
    """Check that a value is a namespace, in which `*` matches any segment.

    Raises:
        InvalidNamespace: It is not one.
    """
    if isinstance(namespace, str):
        raise _invalid(namespace, f"it is a string, not a tuple; write ({namespace!r},)")
    if not isinstance(namespace, tuple):
        raise _invalid(namespace, f"it is a {type(namespace).__name__}, not a tuple of strings")
    segments = cast("tuple[Any, ...]", namespace)
    for segment in segments:
        problem = _text_problem(segment)
        if problem is None and "." in segment:
            problem = "has a dot; use another character in its place"
        if problem is not None:
            raise _invalid(segments, f"segment {segment!r} {problem}")
    if sum(len(segment.encode()) + 1 for segment in segments) > _LONGEST:
        raise _invalid(segments, f"it is longer than {_LONGEST} bytes")


def check_key(key: Any) -> None:
    """Check that a value is a key.

    Raises:
        InvalidOperation: It is not one.
    """
    problem = _text_problem(key)
    if problem is None and len(key.encode()) > _LONGEST:
        problem = f"is longer than {_LONGEST} bytes"
    if problem is not None:
        raise InvalidOperation(f"the key {_short(key)} {problem}. Nothing was done.")


def stored(namespace: Namespace) -> str:
    """Return a namespace in the form that databases store."""
    return "".join(segment + _END for segment in namespace)


def unstored(text: str) -> Namespace:
    """Return the namespace of a text from a database."""
    return tuple(text.removesuffix(_END).split(_END))


def bounds(prefix: Namespace) -> tuple[str, str]:
    """Return the range of stored namespaces below a prefix of at least one segment.

    The first text is part of the range and the second one is not.
    """
    first = stored(prefix)
    return first, first.removesuffix(_END) + _PAST


def literal_prefix(pattern: Namespace) -> Namespace:
    """Return the segments of a pattern before its first `*`."""
    return tuple(takewhile(lambda segment: segment != ANY, pattern))


def begins_with(namespace: Namespace, prefix: Namespace) -> bool:
    """Return whether a namespace is below a prefix, or is the prefix."""
    return namespace[: len(prefix)] == prefix


def select(namespaces: Iterable[Namespace], asked: ListNamespaces) -> list[Namespace]:
    """Return the matching namespaces, in order, each once."""
    fitting = {
        namespace[: asked.max_depth]
        for namespace in namespaces
        if _fits(namespace[: len(asked.prefix)], asked.prefix)
        and _fits(namespace[max(len(namespace) - len(asked.suffix), 0) :], asked.suffix)
    }
    return list(islice(sorted(fitting), asked.offset, asked.offset + asked.limit))


def _fits(segments: Namespace, pattern: Namespace) -> bool:
    return len(segments) == len(pattern) and all(
        wanted in (ANY, segment) for segment, wanted in zip(segments, pattern, strict=True)
    )


def _text_problem(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, not a string"
    if not text:
        return "is empty"
    if any(character < " " for character in text):
        return "has a control character"
    if not is_unicode(text):
        return "has half of a surrogate pair, which is not text"
    return None


def _invalid(namespace: object, problem: str) -> InvalidNamespace:
    return InvalidNamespace(
        f"the namespace {_short(namespace)} is invalid: {problem}. Nothing was done."
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}…"


Operator: TypeAlias = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]

_OPERATORS = get_args(Operator)


@record
class Condition:
    """Condition of a filter.

    Attributes:
        path: Keys, starting at the outermost object.
        operator: How the value at the path is compared.
        operand: The value to compare it with; for an order, a number or a string.
    """

    path: tuple[str, ...]
    operator: Operator
    operand: JsonValue


def parse_filter(conditions: Filter | None) -> tuple[Condition, ...]:
    """Return the conditions of a filter; all of them must match.

    Raises:
        InvalidOperation: It is not a filter.
    """
    if conditions is None:
        return ()
    if not isinstance(conditions, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOperation(
            f"a filter is an object such as {{'kind': 'note'}}; got {type(conditions).__name__}. "
            "Nothing was done."
        )
    json_text(dict(conditions), "the filter")
    return tuple(
        condition for path, wanted in conditions.items() for condition in _parse(path, wanted)
    )


def matches(value: Mapping[str, JsonValue], conditions: tuple[Condition, ...]) -> bool:
    """Return whether a value meets every condition."""
    return all(_holds(_at(value, one.path), one) for one in conditions)


def _parse(path: str, wanted: JsonValue) -> list[Condition]:
    keys = tuple(path.split("."))
    if not all(keys):
        raise InvalidOperation(
            f"{path!r} in a filter is not a path: write keys joined by single dots, such as "
            "'author.name'. Nothing was done."
        )
    if not isinstance(wanted, dict) or not any(key.startswith("$") for key in wanted):
        return [Condition(keys, "$eq", wanted)]
    return [_condition(keys, operator, operand) for operator, operand in wanted.items()]


def _condition(path: tuple[str, ...], operator: str, operand: JsonValue) -> Condition:
    if operator not in _OPERATORS:
        raise InvalidOperation(
            f"{operator!r} in the filter of {'.'.join(path)!r} is not an operator; use "
            f"{', '.join(_OPERATORS)}, or {{'$eq': …}} to compare with an object. Nothing was done."
        )
    known = cast("Operator", operator)
    if known not in ("$eq", "$ne") and not (_is_number(operand) or isinstance(operand, str)):
        raise InvalidOperation(
            f"{operator} in the filter of {'.'.join(path)!r} compares numbers or strings; got "
            f"{json_text(operand, 'the operand')[:80]}. Nothing was done."
        )
    return Condition(path, known, operand)


def _at(value: Any, path: tuple[str, ...]) -> JsonValue:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(key)
    return value


def _holds(found: JsonValue, condition: Condition) -> bool:
    operand = condition.operand
    if condition.operator == "$eq":
        return _equal(found, operand)
    if condition.operator == "$ne":
        return not _equal(found, operand)
    if _is_number(found) and _is_number(operand):
        return _in_order(*_comparable(found, operand), condition.operator)
    if isinstance(found, str) and isinstance(operand, str):
        return _in_order(found, operand, condition.operator)
    return False


def _in_order(left: Any, right: Any, operator: Operator) -> bool:
    match operator:
        case "$gt":
            return left > right
        case "$gte":
            return left >= right
        case "$lt":
            return left < right
        case _:
            return left <= right


def _equal(left: JsonValue, right: JsonValue) -> bool:
    """Compare as JSON does: true is not 1, but 1.0 is."""
    if _is_number(left) and _is_number(right):
        one, other = _comparable(left, right)
        return one == other
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    # A float and an integer are compared by their JSON text, which is decimal.
    if type(left) is type(right):
        return left, right
    return _decimal(left), _decimal(right)


def _decimal(number: Any) -> Any:
    return Decimal(repr(number)) if isinstance(number, float) else number
