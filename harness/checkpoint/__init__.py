"""The journal: stores threads, runs, questions and events; one module for each kind of storage.

The names below are imported at their first use; `PostgresCheckpointer`, `RedisCheckpointer`,
`EncryptedCheckpointer` and `Keyring` need extras. `import *` omits the first two if their extras
are not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._internal import importable

if TYPE_CHECKING:
    from .base import Checkpoint, Checkpointer, EventLimits, Run, RunEvent
    from .encryption import EncryptedCheckpointer
    from .keyring import Keyring
    from .maintenance import prune_to_size
    from .memory import MemoryCheckpointer
    from .postgres import PostgresCheckpointer
    from .redis import RedisCheckpointer
    from .sqlite import SqliteCheckpointer
    from .transfer import export_thread, import_thread

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "EncryptedCheckpointer",
    "EventLimits",
    "Keyring",
    "MemoryCheckpointer",
    "PostgresCheckpointer",
    "RedisCheckpointer",
    "Run",
    "RunEvent",
    "SqliteCheckpointer",
    "export_thread",
    "import_thread",
    "prune_to_size",
]

_HOMES = {
    "EncryptedCheckpointer": "encryption",
    "Keyring": "keyring",
    "MemoryCheckpointer": "memory",
    "PostgresCheckpointer": "postgres",
    "RedisCheckpointer": "redis",
    "SqliteCheckpointer": "sqlite",
    "export_thread": "transfer",
    "import_thread": "transfer",
    "prune_to_size": "maintenance",
}
_OPTIONAL = ("PostgresCheckpointer", "RedisCheckpointer")
# So that `import *` calls `__getattr__` for it, and gets what can be imported here.
_NAMES: Sequence[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return importable(__name__, _NAMES, _OPTIONAL)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'base')}"), name)
