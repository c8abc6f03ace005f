"""Middleware that ships: each in a file of its own, imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .background_subagents import BackgroundSubAgentMiddleware
    from .budget_warning import BudgetWarningMiddleware
    from .context_editing import ContextEditingMiddleware
    from .context_edits import ClearToolUsesEdit, ContextEdit
    from .execute import ExecuteMiddleware
    from .file_search import FilesystemFileSearchMiddleware
    from .filesystem import FilesystemMiddleware
    from .human_in_the_loop import HumanInTheLoopMiddleware, InterruptOnConfig
    from .memory import MemoryMiddleware
    from .model_call_limit import ModelCallLimitMiddleware
    from .model_fallback import ModelFallbackMiddleware
    from .model_retry import ModelRetryMiddleware
    from .patch_tool_calls import PatchToolCallsMiddleware
    from .pii import PIIMiddleware
    from .pii_threads import redact_thread
    from .prompt_caching import PromptCachingMiddleware
    from .provider_tool_search import ProviderToolSearchMiddleware
    from .repeat_guard import RepeatGuardMiddleware
    from .rubric import Evaluation, RubricMiddleware
    from .shell import ShellToolMiddleware
    from .skills import SkillsMiddleware
    from .subagents import SubAgentMiddleware
    from .summarization import SummarizationMiddleware
    from .todo_list import TodoListMiddleware
    from .tool_call_limit import ToolCallLimitMiddleware
    from .tool_descriptions import ToolDescriptionMiddleware
    from .tool_emulation import LLMToolEmulator
    from .tool_error import ToolErrorMiddleware
    from .tool_exclusion import ToolExclusionMiddleware
    from .tool_retry import ToolRetryMiddleware
    from .tool_selection import LLMToolSelectorMiddleware
    from .unsupported_content import MediaSupport, UnsupportedContentMiddleware

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
    "BudgetWarningMiddleware": "budget_warning",
    "ClearToolUsesEdit": "context_edits",
    "ContextEdit": "context_edits",
    "ContextEditingMiddleware": "context_editing",
    "Evaluation": "rubric",
    "ExecuteMiddleware": "execute",
    "FilesystemFileSearchMiddleware": "file_search",
    "FilesystemMiddleware": "filesystem",
    "HumanInTheLoopMiddleware": "human_in_the_loop",
    "MediaSupport": "unsupported_content",
    "InterruptOnConfig": "human_in_the_loop",
    "LLMToolEmulator": "tool_emulation",
    "LLMToolSelectorMiddleware": "tool_selection",
    "MemoryMiddleware": "memory",
    "ModelCallLimitMiddleware": "model_call_limit",
    "ModelFallbackMiddleware": "model_fallback",
    "ModelRetryMiddleware": "model_retry",
    "PIIMiddleware": "pii",
    "PatchToolCallsMiddleware": "patch_tool_calls",
    "PromptCachingMiddleware": "prompt_caching",
    "ProviderToolSearchMiddleware": "provider_tool_search",
    "RepeatGuardMiddleware": "repeat_guard",
    "RubricMiddleware": "rubric",
    "ShellToolMiddleware": "shell",
    "SkillsMiddleware": "skills",
    "SubAgentMiddleware": "subagents",
    "SummarizationMiddleware": "summarization",
    "TodoListMiddleware": "todo_list",
    "ToolCallLimitMiddleware": "tool_call_limit",
    "ToolDescriptionMiddleware": "tool_descriptions",
    "ToolErrorMiddleware": "tool_error",
    "ToolExclusionMiddleware": "tool_exclusion",
    "ToolRetryMiddleware": "tool_retry",
    "UnsupportedContentMiddleware": "unsupported_content",
    "redact_thread": "pii_threads",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
