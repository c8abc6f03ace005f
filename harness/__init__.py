"""A durable deep-agent engine. It is usable on its own.

The names below are imported when they are first used, so `import harness` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.agent import Agent, RunOptions, RunResult, StateSnapshot, create_agent
    from harness.backends.composite import CompositeBackend
    from harness.backends.directory import DirectoryBackend
    from harness.backends.state import StateBackend
    from harness.backends.store import StoreBackend
    from harness.backends.transfer import Transfer, download_files, upload_files
    from harness.cache.memory import MemoryCache
    from harness.cache.sqlite import SqliteCache
    from harness.checkpoint.memory import MemoryCheckpointer
    from harness.checkpoint.sqlite import SqliteCheckpointer
    from harness.deep_agent import create_deep_agent
    from harness.errors import AgentBuildError, HarnessError, ModelError, ToolError
    from harness.limits import LimitReached, Limits
    from harness.loop.decorators import (
        after_agent,
        after_model,
        before_agent,
        before_model,
        dynamic_prompt,
        wrap_model_call,
        wrap_tool_call,
    )
    from harness.loop.events import Event
    from harness.loop.middleware import AgentMiddleware, hook_config
    from harness.loop.requests import (
        Command,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        Runtime,
        Send,
        ToolCallRequest,
    )
    from harness.loop.run_context import RunControl
    from harness.mcp_servers.config import HttpServer, SseServer, StdioServer
    from harness.messages import AIMessage, HumanMessage, RemoveMessage, ToolCall, ToolMessage
    from harness.middleware.human_in_the_loop import HumanInTheLoopMiddleware, InterruptOnConfig
    from harness.models.registry import init_chat_model
    from harness.models.scripted import ScriptedModel
    from harness.policy import Policy, PolicyError, PolicyFiles, Rule, Verdict
    from harness.profiles import Profile, ProfileRegistry
    from harness.state import Mark, Overwrite, Reducer
    from harness.store.base import Store
    from harness.store.memory import MemoryStore
    from harness.store.sqlite import SqliteStore
    from harness.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
    from harness.subagents.background.launcher import BackgroundSubAgents
    from harness.subagents.definitions import CompiledSubAgent, SubAgent
    from harness.subagents.registry import SubAgentRegistry
    from harness.subagents.remote import remote_subagent
    from harness.tools import (
        CachePolicy,
        Injected,
        RetryPolicy,
        Tool,
        ToolResult,
        ToolRuntime,
        tool,
    )

__all__ = [
    "AIMessage",
    "Agent",
    "AgentBuildError",
    "AgentMiddleware",
    "AutoStrategy",
    "BackgroundSubAgents",
    "CachePolicy",
    "Command",
    "CompiledSubAgent",
    "CompositeBackend",
    "DirectoryBackend",
    "Event",
    "ExtendedModelResponse",
    "HarnessError",
    "HttpServer",
    "HumanInTheLoopMiddleware",
    "HumanMessage",
    "Injected",
    "InterruptOnConfig",
    "LimitReached",
    "Limits",
    "Mark",
    "MemoryCache",
    "MemoryCheckpointer",
    "MemoryStore",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "Overwrite",
    "Policy",
    "PolicyError",
    "PolicyFiles",
    "Profile",
    "ProfileRegistry",
    "ProviderStrategy",
    "Reducer",
    "RemoveMessage",
    "RetryPolicy",
    "Rule",
    "RunControl",
    "RunOptions",
    "RunResult",
    "Runtime",
    "ScriptedModel",
    "Send",
    "SqliteCache",
    "SqliteCheckpointer",
    "SqliteStore",
    "SseServer",
    "StateBackend",
    "StateSnapshot",
    "StdioServer",
    "Store",
    "StoreBackend",
    "SubAgent",
    "SubAgentRegistry",
    "Tool",
    "ToolCall",
    "ToolCallRequest",
    "ToolError",
    "ToolMessage",
    "ToolResult",
    "ToolRuntime",
    "ToolStrategy",
    "Transfer",
    "Verdict",
    "after_agent",
    "after_model",
    "before_agent",
    "before_model",
    "create_agent",
    "create_deep_agent",
    "download_files",
    "dynamic_prompt",
    "hook_config",
    "init_chat_model",
    "remote_subagent",
    "tool",
    "upload_files",
    "wrap_model_call",
    "wrap_tool_call",
]

_HOMES = {
    "harness.profiles": (
        "Profile",
        "ProfileRegistry",
    ),
    "harness.backends.store": ("StoreBackend",),
    "harness.backends.composite": ("CompositeBackend",),
    "harness.agent": (
        "Agent",
        "RunOptions",
        "RunResult",
        "StateSnapshot",
        "create_agent",
    ),
    "harness.backends.directory": ("DirectoryBackend",),
    "harness.backends.transfer": ("Transfer", "download_files", "upload_files"),
    "harness.backends.state": ("StateBackend",),
    "harness.cache.memory": ("MemoryCache",),
    "harness.cache.sqlite": ("SqliteCache",),
    "harness.checkpoint.memory": ("MemoryCheckpointer",),
    "harness.checkpoint.sqlite": ("SqliteCheckpointer",),
    "harness.deep_agent": ("create_deep_agent",),
    "harness.errors": (
        "AgentBuildError",
        "HarnessError",
        "ModelError",
        "ToolError",
    ),
    "harness.limits": (
        "LimitReached",
        "Limits",
    ),
    "harness.loop.decorators": (
        "after_agent",
        "after_model",
        "before_agent",
        "before_model",
        "dynamic_prompt",
        "wrap_model_call",
        "wrap_tool_call",
    ),
    "harness.loop.events": ("Event",),
    "harness.loop.middleware": (
        "AgentMiddleware",
        "hook_config",
    ),
    "harness.loop.requests": (
        "Command",
        "ExtendedModelResponse",
        "ModelRequest",
        "ModelResponse",
        "Runtime",
        "Send",
        "ToolCallRequest",
    ),
    "harness.loop.run_context": ("RunControl",),
    "harness.mcp_servers.config": (
        "HttpServer",
        "SseServer",
        "StdioServer",
    ),
    "harness.messages": (
        "AIMessage",
        "HumanMessage",
        "RemoveMessage",
        "ToolCall",
        "ToolMessage",
    ),
    "harness.middleware.human_in_the_loop": (
        "HumanInTheLoopMiddleware",
        "InterruptOnConfig",
    ),
    "harness.models.registry": ("init_chat_model",),
    "harness.models.scripted": ("ScriptedModel",),
    "harness.policy": (
        "Policy",
        "PolicyError",
        "PolicyFiles",
        "Rule",
        "Verdict",
    ),
    "harness.state": (
        "Mark",
        "Overwrite",
        "Reducer",
    ),
    "harness.store.base": ("Store",),
    "harness.store.memory": ("MemoryStore",),
    "harness.store.sqlite": ("SqliteStore",),
    "harness.structured_output": (
        "AutoStrategy",
        "ProviderStrategy",
        "ToolStrategy",
    ),
    "harness.subagents.background.launcher": ("BackgroundSubAgents",),
    "harness.subagents.definitions": (
        "CompiledSubAgent",
        "SubAgent",
    ),
    "harness.subagents.registry": ("SubAgentRegistry",),
    "harness.subagents.remote": ("remote_subagent",),
    "harness.tools": (
        "CachePolicy",
        "Injected",
        "RetryPolicy",
        "Tool",
        "ToolResult",
        "ToolRuntime",
        "tool",
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
