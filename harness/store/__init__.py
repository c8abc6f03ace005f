"""Long-term memory: JSON objects by namespace and key, beyond threads and runs.

The names below are imported when they are first used; only `PostgresStore` and
`RedisStore` need an extra. `import *` leaves out those whose extra is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._internal import importable

if TYPE_CHECKING:
    from .base import (
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
    from .memory import MemoryStore
    from .postgres import PostgresStore
    from .prepared_operations import PlannedStore
    from .redis import RedisStore
    from .sqlite import SqliteStore

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
    "RedisStore",
    "Result",
    "Search",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreOptions",
    "Ttl",
]

_HOMES = {
    "MemoryStore": ".memory",
    "PlannedStore": ".prepared_operations",
    "PostgresStore": ".postgres",
    "RedisStore": ".redis",
    "SqliteStore": ".sqlite",
}
_OPTIONAL = ("PostgresStore", "RedisStore")
# `import *` calls `__getattr__` for them, and gets the names that can be imported here.
_NAMES: Sequence[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return importable(__name__, _NAMES, _OPTIONAL)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, ".base"), __name__), name)
