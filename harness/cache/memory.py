"""A cache in the memory of this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["MemoryCache"]


class MemoryCache:
    """A `Cache` that keeps the entries used last.

    Args:
        max_entries: Entries kept; the one that was not used for the longest time goes first.
        clock: Seconds that only grow.

    Raises:
        ValueError: `max_entries` is not positive.
    """

    def __init__(
        self, max_entries: int = 1_024, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be positive; got {max_entries}")
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None if there is none or its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expires = entry
        if expires is not None and expires <= self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value; see `Cache`."""
        self._entries[key] = (value, None if ttl is None else self._clock() + ttl)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    async def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
