"""The rules for namespaces and keys, written once for every store.

A database keeps a namespace as its segments, each followed by a unit separator, which no segment
contains and which sorts before every character that one may contain. So namespaces sort as tuples
do, and what is below a prefix is one range of an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Any, cast

from .base import InvalidNamespace, InvalidOperation, ListNamespaces, Namespace
from .values import is_unicode

__all__ = [
    "ANY",
    "begins_with",
    "bounds",
    "check_key",
    "check_namespace",
    "check_pattern",
    "literal_prefix",
    "select",
    "stored",
    "unstored",
]

ANY = "*"
"""Stands for any one segment where namespaces are listed."""

_END = "\x1f"
"""Follows each segment of a stored namespace."""

_PAST = "\x20"
"""Sorts after `_END`, and before all that a segment may contain, but for itself."""

_LONGEST = 1_024
"""Bytes of a key, and of a namespace: together they have to fit into an index of Postgres."""


def check_namespace(namespace: Any, *, empty: bool = False) -> None:
    """Refuse what is not a namespace.

    Args:
        namespace: What was given.
        empty: Whether it may have no segments, as a prefix may.

    Raises:
        InvalidNamespace: It is not one.
    """
    check_pattern(namespace)
    if not namespace and not empty:
        raise _invalid(namespace, "it has no segment; name at least one, such as ('memories',)")
    if ANY in namespace:
        raise _invalid(namespace, f"{ANY!r} stands for any segment, and only in list_namespaces")


def check_pattern(namespace: Any) -> None:
    """Refuse what is not a namespace in which `*` stands for any segment.

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
    """Refuse what is not a key.

    Raises:
        InvalidOperation: It is not one.
    """
    problem = _text_problem(key)
    if problem is None and len(key.encode()) > _LONGEST:
        problem = f"is longer than {_LONGEST} bytes"
    if problem is not None:
        raise InvalidOperation(f"the key {_short(key)} {problem}. Nothing was done.")


def stored(namespace: Namespace) -> str:
    """Return a namespace as databases keep it."""
    return "".join(segment + _END for segment in namespace)


def unstored(text: str) -> Namespace:
    """Return the namespace that a database keeps as this text."""
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
    """Return the namespaces that were asked for, in order, each once."""
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
