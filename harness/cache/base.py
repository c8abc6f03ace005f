"""The cache protocol: bytes by key, with an optional lifetime."""

from __future__ import annotations

from typing import Protocol

from ..errors import HarnessError

__all__ = ["Cache", "CacheError"]


class CacheError(HarnessError):
    """A cache could not be read or written. A run goes on without it."""


class Cache(Protocol):
    """Bytes by key. Implementations are safe for concurrent calls.

    An entry may vanish at any time. Nothing makes callers that ask for the same missing key wait
    for each other: each does the work, and the last one's value stays.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None if there is none or its time is over.

        Raises:
            CacheError: The cache cannot be read.
        """
        ...

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value, in place of an older one.

        Args:
            key: The key.
            value: The value.
            ttl: Seconds it may be used; None for as long as there is room.

        Raises:
            CacheError: The cache cannot be written.
        """
        ...

    async def clear(self) -> None:
        """Remove everything.

        Raises:
            CacheError: The cache cannot be written.
        """
        ...
