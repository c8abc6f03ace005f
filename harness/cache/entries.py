"""Typed values in a cache, whose failures never become a run's."""

from __future__ import annotations

import logging
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from .base import Cache

__all__ = ["Entries"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Entries(Generic[T]):
    """Values of one type in a cache, as JSON of that type.

    Reading validates and imports nothing that the data names. Whatever goes wrong with the cache
    is logged once and counts as a miss.

    Args:
        cache: Where they are.
        value_type: Annotation of the values.
    """

    def __init__(self, cache: Cache, value_type: Any) -> None:
        self._cache = cache
        self._adapter: TypeAdapter[T] = TypeAdapter(value_type)
        self._warned = False

    async def get(self, key: str) -> T | None:
        """Return the value, or None."""
        try:
            data = await self._cache.get(key)
            return None if data is None else self._adapter.validate_json(data)
        except ValidationError:
            # Its text would put the entry's content into the log.
            logger.log(self._level(), "%s: an entry is damaged and counts as a miss", self._name)
        except Exception as error:
            text = "%s: cannot be read, so nothing comes from it: %s"
            logger.log(self._level(), text, self._name, error, exc_info=error)
        return None

    async def set(self, key: str, value: T, ttl: float | None) -> None:
        """Store a value if that is possible."""
        try:
            await self._cache.set(key, self._adapter.dump_json(value), ttl)
        except Exception as error:
            text = "%s: cannot be written, so nothing goes to it: %s"
            logger.log(self._level(), text, self._name, error, exc_info=error)

    @property
    def _name(self) -> str:
        return type(self._cache).__name__

    def _level(self) -> int:
        """Return how severe a failure is: the first is a warning, the rest are the same again."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        return level
