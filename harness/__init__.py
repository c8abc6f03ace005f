"""A durable deep-agent engine, usable without the server.

The names below are imported when they are first used, so importing this costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent, RunOptions, RunResult, StateSnapshot, create_agent
    from .backends.composite import CompositeBackend
    from .backends.directory import DirectoryBackend
    from .backends.state import StateBackend
    from .backends.store import StoreBackend
    from .backends.transfer import Transfer, download_files, upload_files
    from .cache import MemoryCache, SqliteCache
    from .checkpoint.memory import MemoryCheckpointer
    from .checkpoint.sqlite import SqliteCheckpointer
    from .deep_agent import create_deep_agent
    from .errors import AgentBuildError, HarnessError, ModelError, ToolError
    from .limits.limits import LimitReached, Limits
    from .loop.hooks.decorators import (
        after_agent,
        after_model,
        before_agent,
        before_model,
        dynamic_prompt,
        wrap_model_call,
        wrap_tool_call,
    )
    from .loop.hooks.middleware import AgentMiddleware, hook_config
    from .loop.hooks.requests import (
        Command,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        Runtime,
        Send,
        ToolCallRequest,
    )
    from .loop.run.caller_messages import CallerMessage
    from .loop.run.choices import RunChoices
    from .loop.run.context import RunControl
    from .loop.run.events import Event
    from .loop.run.interrupts import InterruptOnConfig
    from .mcp_servers.config import HttpServer, SseServer, StdioServer
    from .messages.message import AIMessage, HumanMessage, RemoveMessage, ToolCall, ToolMessage
    from .middleware.tools.tool_calls import HumanInTheLoopMiddleware
    from .models.registry import init_chat_model
    from .models.scripted import ScriptedModel
    from .policy import Policy, PolicyError, PolicyFiles, Rule, Verdict
    from .profiles import Profile, ProfileRegistry
    from .state.channels import Mark, Overwrite, Reducer
    from .store.base import Store
    from .store.memory import MemoryStore
    from .store.sqlite import SqliteStore
    from .structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
    from .subagents.background.launcher import BackgroundSubAgents
    from .subagents.definitions import CompiledSubAgent, SubAgent
    from .subagents.registry import SubAgentRegistry
    from .subagents.remote import remote_subagent
    from .tools.tool import (
        CachePolicy,
        Injected,
        RetryPolicy,
        Tool,
        ToolResult,
        ToolRuntime,
        tool,
    )

if __name__ == "harness":
    raise ImportError("harness is a part of a package: import deep_agent_mcp.harness instead")

__all__ = [
    "AIMessage",
    "Agent",
    "AgentBuildError",
    "AgentMiddleware",
    "AutoStrategy",
    "BackgroundSubAgents",
    "CachePolicy",
    "CallerMessage",
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
    "RunChoices",
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
    ".profiles": (
        "Profile",
        "ProfileRegistry",
    ),
    ".backends.store": ("StoreBackend",),
    ".backends.composite": ("CompositeBackend",),
    ".agent": (
        "Agent",
        "RunOptions",
        "RunResult",
        "StateSnapshot",
        "create_agent",
    ),
    ".backends.directory": ("DirectoryBackend",),
    ".backends.transfer": ("Transfer", "download_files", "upload_files"),
    ".backends.state": ("StateBackend",),
    ".cache": ("MemoryCache", "SqliteCache"),
    ".checkpoint.memory": ("MemoryCheckpointer",),
    ".checkpoint.sqlite": ("SqliteCheckpointer",),
    ".deep_agent": ("create_deep_agent",),
    ".errors": (
        "AgentBuildError",
        "HarnessError",
        "ModelError",
        "ToolError",
    ),
    ".limits.limits": (
        "LimitReached",
        "Limits",
    ),
    ".loop.run.caller_messages": ("CallerMessage",),
    ".loop.run.choices": ("RunChoices",),
    ".loop.hooks.decorators": (
        "after_agent",
        "after_model",
        "before_agent",
        "before_model",
        "dynamic_prompt",
        "wrap_model_call",
        "wrap_tool_call",
    ),
    ".loop.run.events": ("Event",),
    ".loop.hooks.middleware": (
        "AgentMiddleware",
        "hook_config",
    ),
    ".loop.hooks.requests": (
        "Command",
        "ExtendedModelResponse",
        "ModelRequest",
        "ModelResponse",
        "Runtime",
        "Send",
        "ToolCallRequest",
    ),
    ".loop.run.context": ("RunControl",),
    ".mcp_servers.config": (
        "HttpServer",
        "SseServer",
        "StdioServer",
    ),
    ".messages.message": (
        "AIMessage",
        "HumanMessage",
        "RemoveMessage",
        "ToolCall",
        "ToolMessage",
    ),
    ".middleware.tools.tool_calls": (
        "HumanInTheLoopMiddleware",
        "InterruptOnConfig",
    ),
    ".models.registry": ("init_chat_model",),
    ".models.scripted": ("ScriptedModel",),
    ".policy": (
        "Policy",
        "PolicyError",
        "PolicyFiles",
        "Rule",
        "Verdict",
    ),
    ".state.channels": (
        "Mark",
        "Overwrite",
        "Reducer",
    ),
    ".store.base": ("Store",),
    ".store.memory": ("MemoryStore",),
    ".store.sqlite": ("SqliteStore",),
    ".structured_output": (
        "AutoStrategy",
        "ProviderStrategy",
        "ToolStrategy",
    ),
    ".subagents.background.launcher": ("BackgroundSubAgents",),
    ".subagents.definitions": (
        "CompiledSubAgent",
        "SubAgent",
    ),
    ".subagents.registry": ("SubAgentRegistry",),
    ".subagents.remote": ("remote_subagent",),
    ".tools.tool": (
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
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
