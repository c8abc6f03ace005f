"""Built-in middleware: one file for each or for a family, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..loop.run.interrupts import InterruptOnConfig
    from .background_subagents import BackgroundSubAgentMiddleware
    from .call_limits import ModelCallLimitMiddleware, ToolCallLimitMiddleware
    from .commands.execute import ExecuteMiddleware
    from .commands.shell import ShellToolMiddleware
    from .context.context_editing import (
        ContextEditingMiddleware,
        MediaSupport,
        UnsupportedContentMiddleware,
    )
    from .context.context_edits import ClearToolUsesEdit, ContextEdit
    from .context.summarization import SummarizationMiddleware
    from .file_search import FilesystemFileSearchMiddleware
    from .filesystem import FilesystemMiddleware
    from .memory import MemoryMiddleware
    from .models.model_fallback import ModelFallbackMiddleware
    from .models.model_retry import ModelRetryMiddleware
    from .models.provider_features import PromptCachingMiddleware, ProviderToolSearchMiddleware
    from .pii import PIIMiddleware, redact_thread
    from .repeat_guard import BudgetWarningMiddleware, RepeatGuardMiddleware
    from .rubric import Evaluation, RubricMiddleware
    from .skills import SkillsMiddleware
    from .stack import Placed
    from .subagents import SubAgentMiddleware
    from .todo_list import TodoListMiddleware
    from .tools.offered_tools import ToolDescriptionMiddleware, ToolExclusionMiddleware
    from .tools.tool_calls import HumanInTheLoopMiddleware, PatchToolCallsMiddleware
    from .tools.tool_results import LLMToolEmulator, ToolErrorMiddleware, ToolRetryMiddleware
    from .tools.tool_selection import LLMToolSelectorMiddleware

__all__ = [
    "BackgroundSubAgentMiddleware",
    "BudgetWarningMiddleware",
    "ClearToolUsesEdit",
    "ContextEdit",
    "ContextEditingMiddleware",
    "Evaluation",
    "ExecuteMiddleware",
    "FilesystemFileSearchMiddleware",
    "FilesystemMiddleware",
    "HumanInTheLoopMiddleware",
    "InterruptOnConfig",
    "LLMToolEmulator",
    "LLMToolSelectorMiddleware",
    "MediaSupport",
    "MemoryMiddleware",
    "ModelCallLimitMiddleware",
    "ModelFallbackMiddleware",
    "ModelRetryMiddleware",
    "PIIMiddleware",
    "PatchToolCallsMiddleware",
    "Placed",
    "PromptCachingMiddleware",
    "ProviderToolSearchMiddleware",
    "RepeatGuardMiddleware",
    "RubricMiddleware",
    "ShellToolMiddleware",
    "SkillsMiddleware",
    "SubAgentMiddleware",
    "SummarizationMiddleware",
    "TodoListMiddleware",
    "ToolCallLimitMiddleware",
    "ToolDescriptionMiddleware",
    "ToolErrorMiddleware",
    "ToolExclusionMiddleware",
    "ToolRetryMiddleware",
    "UnsupportedContentMiddleware",
    "redact_thread",
]

_HOMES = {
    "BackgroundSubAgentMiddleware": "background_subagents",
    "BudgetWarningMiddleware": "repeat_guard",
    "ClearToolUsesEdit": "context.context_edits",
    "ContextEdit": "context.context_edits",
    "ContextEditingMiddleware": "context.context_editing",
    "Evaluation": "rubric",
    "ExecuteMiddleware": "commands.execute",
    "FilesystemFileSearchMiddleware": "file_search",
    "FilesystemMiddleware": "filesystem",
    "HumanInTheLoopMiddleware": "tools.tool_calls",
    "MediaSupport": "context.context_editing",
    "InterruptOnConfig": "tools.tool_calls",
    "LLMToolEmulator": "tools.tool_results",
    "LLMToolSelectorMiddleware": "tools.tool_selection",
    "MemoryMiddleware": "memory",
    "ModelCallLimitMiddleware": "call_limits",
    "ModelFallbackMiddleware": "models.model_fallback",
    "ModelRetryMiddleware": "models.model_retry",
    "PIIMiddleware": "pii",
    "PatchToolCallsMiddleware": "tools.tool_calls",
    "Placed": "stack",
    "PromptCachingMiddleware": "models.provider_features",
    "ProviderToolSearchMiddleware": "models.provider_features",
    "RepeatGuardMiddleware": "repeat_guard",
    "RubricMiddleware": "rubric",
    "ShellToolMiddleware": "commands.shell",
    "SkillsMiddleware": "skills",
    "SubAgentMiddleware": "subagents",
    "SummarizationMiddleware": "context.summarization",
    "TodoListMiddleware": "todo_list",
    "ToolCallLimitMiddleware": "call_limits",
    "ToolDescriptionMiddleware": "tools.offered_tools",
    "ToolErrorMiddleware": "tools.tool_results",
    "ToolExclusionMiddleware": "tools.offered_tools",
    "ToolRetryMiddleware": "tools.tool_results",
    "UnsupportedContentMiddleware": "context.context_editing",
    "redact_thread": "pii",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
