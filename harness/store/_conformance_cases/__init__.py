"""Conformance cases of stores, one function each. `harness.store.conformance` runs them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from ..base import Item, Namespace, Put, Store, StoreOptions

__all__ = [
    "HandClock",
    "OpenStore",
    "equal",
    "json_equal",
    "keys",
    "letters",
    "only",
    "put_all",
    "refused",
]

OpenStore: TypeAlias = Callable[[StoreOptions], AbstractAsyncContextManager[Store]]
"""Opens a new, empty store that is made with these options, and closes it."""


class HandClock:
    """A clock that is set by hand.

    Attributes:
        now: Unix time in seconds.
    """

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


async def letters(texts: Sequence[str]) -> list[list[float]]:
    """Return for each text how often it has each letter from a to z: an embedding for tests."""
    return [[float(text.lower().count(chr(97 + n))) for n in range(26)] for text in texts]


def broken(what: str) -> AssertionError:
    """Return the error for a promise that is not kept."""
    return AssertionError(what)


def equal(actual: object, expected: object, what: str) -> None:
    """Compare two things.

    Raises:
        AssertionError: They differ.
    """
    if actual != expected:
        raise broken(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def json_equal(actual: object, expected: object, what: str) -> None:
    """Compare two values as JSON, in which true is not 1.

    Raises:
        AssertionError: They differ.
    """
    equal(json.dumps(actual, sort_keys=True), json.dumps(expected, sort_keys=True), what)


async def refused(operation: Awaitable[object], error: type[Exception], what: str) -> Exception:
    """Wait for an operation to be refused; return its error.

    Raises:
        AssertionError: It succeeds, or fails with another error.
    """
    try:
        result = await operation
    except error as refusal:
        return refusal
    except Exception as other:
        raise broken(f"{what}: expected {error.__name__}, got {other!r}") from other
    raise broken(f"{what}: expected {error.__name__}, but it returned {_short(result)}")


def keys(items: Iterable[Item]) -> list[str]:
    """Return the keys of items."""
    return [item.key for item in items]


def only(items: Sequence[Item]) -> Item:
    """Return the only one of some items.

    Raises:
        AssertionError: There is no item, or more than one.
    """
    equal(len(items), 1, f"items among {keys(items)}")
    return items[0]


async def put_all(store: Store, values: dict[str, dict[str, Any]], namespace: Namespace) -> None:
    """Put values under their keys."""
    await store.batch([Put(namespace, key, value) for key, value in values.items()])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:497]}…"
