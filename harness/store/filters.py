"""Conditions on values: how they are read, and what fulfils them.

`matches` is the meaning of a filter. A store that asks its database instead has to agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import JsonValue

from .._internal.records import record
from .base import Filter, InvalidOperation
from .values import json_text

__all__ = ["Condition", "Operator", "matches", "parse_filter"]

Operator: TypeAlias = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]

_OPERATORS = get_args(Operator)


@record
class Condition:
    """One thing that has to hold.

    Attributes:
        path: Keys from the outermost object in.
        operator: How what is there is compared.
        operand: What it is compared with; for an order, a number or a string.
    """

    path: tuple[str, ...]
    operator: Operator
    operand: JsonValue


def parse_filter(conditions: Filter | None) -> tuple[Condition, ...]:
    """Return the conditions of a filter; all of them have to hold.

    Raises:
        InvalidOperation: It is none.
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
    """Return whether a value fulfils every condition."""
    return all(_holds(_at(value, one.path), one) for one in conditions)


def _parse(path: str, wanted: JsonValue) -> list[Condition]:
    keys = tuple(path.split("."))
    if not all(keys):
        raise InvalidOperation(
            f"{path!r} in a filter is no path: write keys joined by single dots, such as "
            "'author.name'. Nothing was done."
        )
    if not isinstance(wanted, dict) or not any(key.startswith("$") for key in wanted):
        return [Condition(keys, "$eq", wanted)]
    return [_condition(keys, operator, operand) for operator, operand in wanted.items()]


def _condition(path: tuple[str, ...], operator: str, operand: JsonValue) -> Condition:
    if operator not in _OPERATORS:
        raise InvalidOperation(
            f"{operator!r} in the filter of {'.'.join(path)!r} is no operator; use "
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
    # A float and an integer are compared by what their JSON says, which is decimal.
    if type(left) is type(right):
        return left, right
    return _decimal(left), _decimal(right)


def _decimal(number: Any) -> Any:
    return Decimal(repr(number)) if isinstance(number, float) else number
