"""Middleware that ships: each in a file of its own, imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.middleware.background_subagents import BackgroundSubAgentMiddleware
    from harness.middleware.budget_warning import BudgetWarningMiddleware
    from harness.middleware.context_editing import ContextEditingMiddleware
    from harness.middleware.context_edits import ClearToolUsesEdit, ContextEdit
    from harness.middleware.execute import ExecuteMiddleware
    from harness.middleware.file_search import FilesystemFileSearchMiddleware
    from harness.middleware.filesystem import FilesystemMiddleware
    from harness.middleware.human_in_the_loop import HumanInTheLoopMiddleware, InterruptOnConfig
    from harness.middleware.memory import MemoryMiddleware
    from harness.middleware.model_call_limit import ModelCallLimitMiddleware
    from harness.middleware.model_fallback import ModelFallbackMiddleware
    from harness.middleware.model_retry import ModelRetryMiddleware
    from harness.middleware.patch_tool_calls import PatchToolCallsMiddleware
    from harness.middleware.pii import PIIMiddleware
    from harness.middleware.pii_threads import redact_thread
    from harness.middleware.prompt_caching import PromptCachingMiddleware
    from harness.middleware.provider_tool_search import ProviderToolSearchMiddleware
    from harness.middleware.repeat_guard import RepeatGuardMiddleware
    from harness.middleware.rubric import Evaluation, RubricMiddleware
    from harness.middleware.shell import ShellToolMiddleware
    from harness.middleware.skills import SkillsMiddleware
    from harness.middleware.subagents import SubAgentMiddleware
    from harness.middleware.summarization import SummarizationMiddleware
    from harness.middleware.todo_list import TodoListMiddleware
    from harness.middleware.tool_call_limit import ToolCallLimitMiddleware
    from harness.middleware.tool_descriptions import ToolDescriptionMiddleware
    from harness.middleware.tool_emulation import LLMToolEmulator
    from harness.middleware.tool_error import ToolErrorMiddleware
    from harness.middleware.tool_exclusion import ToolExclusionMiddleware
    from harness.middleware.tool_retry import ToolRetryMiddleware
    from harness.middleware.tool_selection import LLMToolSelectorMiddleware
    from harness.middleware.unsupported_content import MediaSupport, UnsupportedContentMiddleware

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
        raise AttributeError(f"module 'harness.middleware' has no attribute {name!r}")
    return getattr(import_module(f"harness.middleware.{_HOMES[name]}"), name)
