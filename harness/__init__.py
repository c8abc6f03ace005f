"""A durable deep-agent engine. It knows nothing of MCP and is usable on its own.

The names below are imported when they are first used, so `import harness` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.agent import Agent, RunOptions, RunResult, StateSnapshot, create_agent
    from harness.backends.directory import DirectoryBackend
    from harness.backends.state import StateBackend
    from harness.checkpoint.memory import MemoryCheckpointer
    from harness.checkpoint.sqlite import SqliteCheckpointer
    from harness.deep_agent import create_deep_agent
    from harness.limits import Limits
    from harness.loop.middleware import AgentMiddleware, hook_config
    from harness.loop.requests import Command, ModelRequest, ModelResponse, ToolCallRequest
    from harness.models.registry import init_chat_model
    from harness.policy import Policy, Rule
    from harness.tools import ToolResult, ToolRuntime, tool

__all__ = [
    "Agent",
    "AgentMiddleware",
    "Command",
    "DirectoryBackend",
    "Limits",
    "MemoryCheckpointer",
    "ModelRequest",
    "ModelResponse",
    "Policy",
    "Rule",
    "RunOptions",
    "RunResult",
    "SqliteCheckpointer",
    "StateBackend",
    "StateSnapshot",
    "ToolCallRequest",
    "ToolResult",
    "ToolRuntime",
    "create_agent",
    "create_deep_agent",
    "hook_config",
    "init_chat_model",
    "tool",
]

_HOMES = {
    "harness.agent": ("Agent", "RunOptions", "RunResult", "StateSnapshot", "create_agent"),
    "harness.backends.directory": ("DirectoryBackend",),
    "harness.backends.state": ("StateBackend",),
    "harness.checkpoint.memory": ("MemoryCheckpointer",),
    "harness.checkpoint.sqlite": ("SqliteCheckpointer",),
    "harness.deep_agent": ("create_deep_agent",),
    "harness.limits": ("Limits",),
    "harness.loop.middleware": ("AgentMiddleware", "hook_config"),
    "harness.loop.requests": ("Command", "ModelRequest", "ModelResponse", "ToolCallRequest"),
    "harness.models.registry": ("init_chat_model",),
    "harness.policy": ("Policy", "Rule"),
    "harness.tools": ("ToolResult", "ToolRuntime", "tool"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
