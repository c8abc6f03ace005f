"""Shells that stay open between commands: how they are started, limited and ended.

The names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bubblewrap import BubblewrapExecutionPolicy
    from .docker import DockerExecutionPolicy
    from .policies import (
        ExecutionPolicy,
        HostExecutionPolicy,
        Launch,
        Layout,
        Mount,
        SandboxPolicy,
        ShellLimits,
        base_environment,
    )

__all__ = [
    "BubblewrapExecutionPolicy",
    "DockerExecutionPolicy",
    "ExecutionPolicy",
    "HostExecutionPolicy",
    "Launch",
    "Layout",
    "Mount",
    "SandboxPolicy",
    "ShellLimits",
    "base_environment",
]

_HOMES = {"BubblewrapExecutionPolicy": "bubblewrap", "DockerExecutionPolicy": "docker"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'policies')}"), name)
