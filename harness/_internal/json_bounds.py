"""Limits of untrusted JSON: how deep it may be, and schema checks with a time limit.

A schema may come from a stranger, such as an MCP server's tool, and the data from a model. The
validation library searches with `re`, which can take for ever. Here RE2 searches; what it cannot
do, such as look-ahead, gets a short time limit.

JSON that is stored has a maximum depth. Many readers of JSON, clients' included, stop at about two
hundred levels, so a thread with deeper data could be stored but never read again. Such data is
refused on arrival.
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
"""For one search with an expression that RE2 does not take."""

_MOST_PROBLEMS = 1_000

_UNTIL: ContextVar[float | None] = ContextVar("until", default=None)
"""When the comparison that is under way has to end, on the monotonic clock."""


class _TooSlow(Exception):
    """A search took too long; the rest is not looked at."""


def problems_of(
    validator: Any, data: object, *, seconds: float | None = None
) -> list[ValidationError]:
    """Return what is wrong with data.

    Args:
        validator: What `bounded` returned.
        data: JSON data.
        seconds: How long that may take, after which it counts as wrong; None for no bound.
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
    """Return what says best why data does not fit; None if it does."""
    module: Any = import_module("jsonschema.exceptions")
    found = problems_of(validator, data)
    return str(module.best_match(found).message) if found else None


def bounded(schema: Mapping[str, Any], default: Any = None) -> Any:
    """Return a validator of `jsonschema` whose searches are bounded.

    Args:
        schema: A valid schema.
        default: The class of one that does not say its dialect; by default the newest.
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
    """Return a keyword that is not looked at once the time is over."""

    def timed(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError] | None:
        until = _UNTIL.get()
        if until is not None and time.monotonic() > until:
            raise _TooSlow("it takes too long to compare with its schema; make both simpler")
        return keyword(validator, value, instance, schema)

    return timed


def _of_one_dialect(node: Any) -> Any:
    """Return a schema without `$schema`, with which the library would use its own class."""
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
    """Return the keyword without its search: what a pattern fits is taken out before."""
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
    """Whether an expression is found in a text.

    Raises:
        _TooSlow: It takes too long to say.
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
    from .patterns import linear_test  # not needed to begin serving

    try:
        return linear_test(re.compile(pattern))
    except (PatternError, re.error, OverflowError, RecursionError):
        return None


MAX_DEPTH = 100
"""Levels of objects and lists that arguments of a call, an artifact or a value may have. What is
around them, a message in a list of messages, has some more."""

_NESTED = (dict, list)


def is_too_deep(value: object) -> bool:
    """Whether JSON data has more than `MAX_DEPTH` levels of objects and lists."""
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
    """Whether JSON is nested no more deeply than its readers go."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return True
    try:
        from_json(data)
    except ValueError:
        return False
    return True
