"""Middleware that ships: each in a file of its own, imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..loop.run.interrupts import InterruptOnConfig
    from .background_subagents import BackgroundSubAgentMiddleware
    from .commands.execute import ExecuteMiddleware
    from .commands.shell import ShellToolMiddleware
    from .context.context_editing import ContextEditingMiddleware
    from .context.context_edits import ClearToolUsesEdit, ContextEdit
    from .context.summarization import SummarizationMiddleware
    from .context.unsupported_content import MediaSupport, UnsupportedContentMiddleware
    from .file_search import FilesystemFileSearchMiddleware
    from .filesystem import FilesystemMiddleware
    from .instructions.memory import MemoryMiddleware
    from .instructions.skills import SkillsMiddleware
    from .limits.budget_warning import BudgetWarningMiddleware
    from .limits.model_call_limit import ModelCallLimitMiddleware
    from .limits.repeat_guard import RepeatGuardMiddleware
    from .limits.tool_call_limit import ToolCallLimitMiddleware
    from .models.model_fallback import ModelFallbackMiddleware
    from .models.model_retry import ModelRetryMiddleware
    from .models.prompt_caching import PromptCachingMiddleware
    from .models.provider_tool_search import ProviderToolSearchMiddleware
    from .pii import PIIMiddleware
    from .pii_threads import redact_thread
    from .rubric import Evaluation, RubricMiddleware
    from .stack import Placed
    from .subagents import SubAgentMiddleware
    from .todo_list import TodoListMiddleware
    from .tools.human_in_the_loop import HumanInTheLoopMiddleware
    from .tools.patch_tool_calls import PatchToolCallsMiddleware
    from .tools.tool_descriptions import ToolDescriptionMiddleware
    from .tools.tool_emulation import LLMToolEmulator
    from .tools.tool_error import ToolErrorMiddleware
    from .tools.tool_exclusion import ToolExclusionMiddleware
    from .tools.tool_retry import ToolRetryMiddleware
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
    "BudgetWarningMiddleware": "limits.budget_warning",
    "ClearToolUsesEdit": "context.context_edits",
    "ContextEdit": "context.context_edits",
    "ContextEditingMiddleware": "context.context_editing",
    "Evaluation": "rubric",
    "ExecuteMiddleware": "commands.execute",
    "FilesystemFileSearchMiddleware": "file_search",
    "FilesystemMiddleware": "filesystem",
    "HumanInTheLoopMiddleware": "tools.human_in_the_loop",
    "MediaSupport": "context.unsupported_content",
    "InterruptOnConfig": "tools.human_in_the_loop",
    "LLMToolEmulator": "tools.tool_emulation",
    "LLMToolSelectorMiddleware": "tools.tool_selection",
    "MemoryMiddleware": "instructions.memory",
    "ModelCallLimitMiddleware": "limits.model_call_limit",
    "ModelFallbackMiddleware": "models.model_fallback",
    "ModelRetryMiddleware": "models.model_retry",
    "PIIMiddleware": "pii",
    "PatchToolCallsMiddleware": "tools.patch_tool_calls",
    "Placed": "stack",
    "PromptCachingMiddleware": "models.prompt_caching",
    "ProviderToolSearchMiddleware": "models.provider_tool_search",
    "RepeatGuardMiddleware": "limits.repeat_guard",
    "RubricMiddleware": "rubric",
    "ShellToolMiddleware": "commands.shell",
    "SkillsMiddleware": "instructions.skills",
    "SubAgentMiddleware": "subagents",
    "SummarizationMiddleware": "context.summarization",
    "TodoListMiddleware": "todo_list",
    "ToolCallLimitMiddleware": "limits.tool_call_limit",
    "ToolDescriptionMiddleware": "tools.tool_descriptions",
    "ToolErrorMiddleware": "tools.tool_error",
    "ToolExclusionMiddleware": "tools.tool_exclusion",
    "ToolRetryMiddleware": "tools.tool_retry",
    "UnsupportedContentMiddleware": "context.unsupported_content",
    "redact_thread": "pii_threads",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
