"""Long-term memory: JSON objects by namespace and key, beyond threads and runs.

The names below are imported when they are first used; only `PostgresStore` needs an extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.store.base import (
        Delete,
        Embed,
        Filter,
        Get,
        Index,
        InvalidNamespace,
        InvalidOperation,
        Item,
        ListNamespaces,
        Namespace,
        NewerStore,
        Operation,
        Put,
        Result,
        Search,
        Store,
        StoreError,
        StoreOptions,
        Ttl,
    )
    from harness.store.memory import MemoryStore
    from harness.store.planned import PlannedStore
    from harness.store.postgres import PostgresStore
    from harness.store.sqlite import SqliteStore

__all__ = [
    "Delete",
    "Embed",
    "Filter",
    "Get",
    "Index",
    "InvalidNamespace",
    "InvalidOperation",
    "Item",
    "ListNamespaces",
    "MemoryStore",
    "Namespace",
    "NewerStore",
    "Operation",
    "PlannedStore",
    "PostgresStore",
    "Put",
    "Result",
    "Search",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreOptions",
    "Ttl",
]

_HOMES = {
    "MemoryStore": "harness.store.memory",
    "PlannedStore": "harness.store.planned",
    "PostgresStore": "harness.store.postgres",
    "SqliteStore": "harness.store.sqlite",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'harness.store' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "harness.store.base")), name)
