"""Vault: the values behind reversible tokens, kept on the server apart from threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.base import Namespace, Store

__all__ = ["StoreVault", "Vault"]


class Vault(Protocol):
    """Keeps values by token. A scope is what may see them: a thread and its copies."""

    async def keep(self, scope: str, values: Mapping[str, str]) -> None:
        """Store values by token; those that are there already are the same.

        Raises:
            HarnessError: They cannot be stored; the run ends before anything names them.
        """
        ...

    async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
        """Return the values of those tokens that are known."""
        ...


class StoreVault:
    """Keeps values in a long-term store, which nothing shows to a model.

    Args:
        store: The store. Let it be another file or server than the journal: whoever reads both
            can undo the tokens.
        namespace: Where in it.
    """

    def __init__(self, store: Store, namespace: Namespace = ("redaction",)) -> None:
        self._store = store
        self._namespace = namespace

    async def keep(self, scope: str, values: Mapping[str, str]) -> None:
        """Store values by token."""
        from ..store.base import Put

        place = (*self._namespace, scope)
        await self._store.batch(
            [
                Put(place, token, {"value": value}, index=False, ttl=None)
                for token, value in values.items()
            ]
        )

    async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
        """Return the values of those tokens that are known."""
        from ..store.base import Get, Item

        wanted = list(dict.fromkeys(tokens))
        place = (*self._namespace, scope)
        found = await self._store.batch([Get(place, one) for one in wanted])
        values: dict[str, str] = {}
        for token, item in zip(wanted, found, strict=True):
            value = item.value.get("value") if isinstance(item, Item) else None
            if isinstance(value, str):
                values[token] = value
        return values
