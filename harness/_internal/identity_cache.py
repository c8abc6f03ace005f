"""Identity cache: values computed from a tuple, kept for as long as the tuple lives.

An agent offers its model the same tuple of tools at every call; to hash its tools would cost more
than what is computed of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["IdentityCache"]

KeyT = TypeVar("KeyT", bound=tuple[Any, ...])
ValueT = TypeVar("ValueT")


class IdentityCache(Generic[KeyT, ValueT]):
    """Calls a function once per tuple.

    Args:
        compute: The function; what it returns is shared, so nobody may change it.
        size: How many tuples are remembered; then it begins afresh.
    """

    def __init__(self, compute: Callable[[KeyT], ValueT], size: int = 64) -> None:
        self._compute = compute
        self._size = size
        # The tuple is kept with its value: while it lives nothing else can have its id.
        self._known: dict[int, tuple[KeyT, ValueT]] = {}

    def __call__(self, key: KeyT) -> ValueT:
        """Return the function's value of a tuple."""
        known = self._known.get(id(key))
        if known is None:
            if len(self._known) >= self._size:
                self._known.clear()
            known = self._known[id(key)] = (key, self._compute(key))
        return known[1]
