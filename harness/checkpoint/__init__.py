"""The journal: what is stored, and where.

The names below are imported when they are first used; `PostgresCheckpointer`, `RedisCheckpointer`,
`EncryptedCheckpointer` and `Keyring` need extras.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.checkpoint.base import Checkpoint, Checkpointer, EventLimits, Run, RunEvent
    from harness.checkpoint.encryption import EncryptedCheckpointer
    from harness.checkpoint.keyring import Keyring
    from harness.checkpoint.memory import MemoryCheckpointer
    from harness.checkpoint.postgres import PostgresCheckpointer
    from harness.checkpoint.redis import RedisCheckpointer
    from harness.checkpoint.shrinking import prune_to_size
    from harness.checkpoint.sqlite import SqliteCheckpointer
    from harness.checkpoint.transfer import export_thread, import_thread

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
    "prune_to_size": "shrinking",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'harness.checkpoint' has no attribute {name!r}")
    return getattr(import_module(f"harness.checkpoint.{_HOMES.get(name, 'base')}"), name)
