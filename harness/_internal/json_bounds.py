"""Limits of untrusted JSON: how deep it may be, and schema checks with a time limit.

A schema may come from an untrusted source, such as a tool of an MCP server, and the data from a
model. The validation library searches with `re`, which can take forever. Here RE2 is used instead;
expressions that it does not support, such as look-ahead, get a short time limit.

Stored JSON has a maximum depth. Many JSON parsers, also in clients, stop at about two hundred
levels, so a thread with deeper data could be stored but never read again. Such data is refused on
arrival.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pydantic_core import from_json

from .patterns import PatternError

if TYPE_CHECKING:
    from jsonschema import ValidationError

__all__ = [
    "MAX_DEPTH",
    "bounded",
    "can_be_read",
    "is_too_deep",
    "main_problem",
    "no_constant",
    "problems_of",
]


_DATA = ("const", "default", "enum", "example", "examples")
_SECONDS = 0.05
"""Time limit for a search with an expression that RE2 does not support."""

_MOST_PROBLEMS = 1_000

_UNTIL: ContextVar[float | None] = ContextVar("until", default=None)
"""Deadline of the current validation, on the monotonic clock."""


class _TooSlow(Exception):
    """A search took too long; the validation is stopped."""


def problems_of(
    validator: Any, data: object, *, seconds: float | None = None
) -> list[ValidationError]:
    """Return the validation errors of JSON data.

    Args:
        validator: A validator from `bounded`.
        data: JSON data.
        seconds: Time limit, after which the data counts as invalid; None for no limit.
    """
    from jsonschema import ValidationError  # slow to import

    found: list[ValidationError] = []
    token = _UNTIL.set(None if seconds is None else time.monotonic() + seconds)
    try:
        for one in validator.iter_errors(data):
            found.append(one)
            if len(found) >= _MOST_PROBLEMS:
                break
    except _TooSlow as slow:
        found.append(ValidationError(str(slow)))
    finally:
        _UNTIL.reset(token)
    return found


def main_problem(validator: Any, data: object) -> str | None:
    """Return the most relevant validation error as text; None if the data is valid."""
    module: Any = import_module("jsonschema.exceptions")
    found = problems_of(validator, data)
    return str(module.best_match(found).message) if found else None


def bounded(schema: Mapping[str, Any], default: Any = None) -> Any:
    """Return a validator of `jsonschema` with limited search times.

    Args:
        schema: A valid schema.
        default: Validator class for schemas without `$schema`; by default the newest dialect.
    """
    from jsonschema.validators import validator_for

    kind = validator_for(schema) if default is None else validator_for(schema, default=default)
    return _bounded(kind)(_of_one_dialect(schema))


@cache
def _bounded(kind: Any) -> Any:
    module: Any = import_module("jsonschema.validators")  # its types are not complete
    keywords = {name: _timed(one) for name, one in kind.VALIDATORS.items()} | {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties(kind),
    }
    return module.extend(kind, keywords)


def _timed(keyword: Callable[..., Iterator[ValidationError] | None]) -> Callable[..., Any]:
    """Return a keyword check that is skipped once the time is over."""

    def timed(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError] | None:
        until = _UNTIL.get()
        if until is not None and time.monotonic() > until:
            raise _TooSlow("it takes too long to compare with its schema; make both simpler")
        return keyword(validator, value, instance, schema)

    return timed


def _of_one_dialect(node: Any) -> Any:
    """Return a schema without `$schema`: with it, the library would use its own validator."""
    if isinstance(node, Mapping):
        return {
            key: value if key in _DATA else _of_one_dialect(value)
            for key, value in cast("Mapping[str, Any]", node).items()
            if key != "$schema" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_of_one_dialect(one) for one in cast("list[Any]", node)]
    return node


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    if validator.is_type(instance, "string") and not _finds(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, given: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in given.items():
        for key, value in instance.items():
            if _finds(pattern, key):
                yield from validator.descend(value, below, path=key, schema_path=pattern)


def _additional_properties(kind: Any) -> Any:
    """Return `additionalProperties` without its search: matching keys are removed before."""
    plain = kind.VALIDATORS["additionalProperties"]

    def additional(
        validator: Any, given: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties", {})
        if patterns and validator.is_type(instance, "object"):
            instance = {
                key: value
                for key, value in instance.items()
                if not any(_finds(one, key) for one in patterns)
            }
            schema = {key: one for key, one in schema.items() if key != "patternProperties"}
        yield from plain(validator, given, instance, schema) or ()

    return additional


def _finds(pattern: str, text: str) -> bool:
    """Return whether an expression is found in a text.

    Raises:
        _TooSlow: The search took too long.
    """
    import regex

    test = _linear(pattern)
    if test is not None:
        return test(text)
    try:
        return regex.search(pattern, text, timeout=_SECONDS) is not None
    except TimeoutError as error:
        raise _TooSlow(
            f"a text of {len(text)} characters was not compared with the pattern {pattern!r:.200}, "
            "which takes too long; make it shorter"
        ) from error
    except regex.error as error:
        raise _TooSlow(
            f"the pattern {pattern!r:.200} is not a valid expression: {error}"
        ) from error


@lru_cache(256)
def _linear(pattern: str) -> Callable[[str], bool] | None:
    from .patterns import linear_test  # imported late to start faster

    try:
        return linear_test(re.compile(pattern))
    except (PatternError, re.error, OverflowError, RecursionError):
        return None


MAX_DEPTH = 100
"""Maximum levels of objects and lists in a call's arguments, an artifact or a value. The message
and the list around them add a few levels."""

_NESTED = (dict, list)


def is_too_deep(value: object) -> bool:
    """Return whether JSON data has more than `MAX_DEPTH` levels of objects and lists."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            elif isinstance(one, list):
                inner += one
        if not inner:
            return False
        level = inner
    return any(isinstance(one, _NESTED) for one in level)


def no_constant(name: str) -> NoReturn:
    """Refuse `NaN` and the infinities, which Python's reader takes for JSON."""
    raise ValueError(f"{name} is not JSON")


def can_be_read(data: bytes) -> bool:
    """Return whether JSON text is not nested more deeply than parsers allow."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return True
    try:
        from_json(data)
    except ValueError:
        return False
    return True
