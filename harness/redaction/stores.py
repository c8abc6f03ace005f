"""Redacted store: a long-term store as tools and hooks of a redacting agent see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from .._internal.records import changed
from ..store.base import Index, Namespace, Operation, Put, Result, Ttl
from .rules import Keys, Redactor
from .values import clean_json

if TYPE_CHECKING:
    from ..store.base import Store

__all__ = ["ScreenedStore", "unscreened"]


class ScreenedStore:
    """A store whose values are clean before they are stored; all else is the store's own.

    Namespaces and keys stay as they are, since they are what an item is found by.

    Args:
        store: The store.
        redactor: What cleans values.
        keys: Whose tokens are stored before what names them.
    """

    def __init__(self, store: Store, redactor: Redactor, keys: Keys) -> None:
        self.plain = store
        self._redactor = redactor
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, JsonValue],
        *,
        index: Index | None = None,
        ttl: Ttl = "default",
    ) -> None:
        """Store an item; see `Store.put`.

        Raises:
            PIIDetectionError: A rule blocks a text in it; nothing was stored.
        """
        value = self._clean(value)
        await self._keys.store()
        await self.plain.put(namespace, key, value, index=index, ttl=ttl)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Carry out operations; see `Store.batch`.

        Raises:
            PIIDetectionError: A rule blocks a text in one of them; nothing was done.
        """
        operations = [
            changed(one, value=self._clean(one.value)) if isinstance(one, Put) else one
            for one in operations
        ]
        await self._keys.store()
        return await self.plain.batch(operations)

    def _clean(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        if not isinstance(value, dict):
            return value  # the store says what it thinks of it
        return cast("dict[str, JsonValue]", clean_json(value, self._redactor))


def unscreened(store: Store | None) -> Store | None:
    """Return the store itself, for files: theirs is content that must stay as it was written."""
    return store.plain if isinstance(store, ScreenedStore) else store
