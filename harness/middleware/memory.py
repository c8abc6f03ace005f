"""Memory: AGENTS.md-style files in the system prompt, and notices when they change.

The prompt's text is fixed when the thread starts, so the provider's prompt cache stays valid. If a
file changes later, the model gets it as a message before its next call; the agent sees its own
edits at once. If a summary removes such a message from the model's view, the prompt is built again:
it must never be older than what the model has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, NotRequired, TypedDict, cast

import anyio.to_thread

from .._internal.records import record
from ..errors import AgentBuildError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse, Runtime
from ..memory import MemoryFile, MemoryFiles, MemorySnapshot
from ..messages.message import HumanMessage, Message
from ..state.channels import Mark, State
from .context.summary_view import SummaryChunk

__all__ = ["SYSTEM_PROMPT", "MemoryMiddleware", "MemoryState", "MemoryTold", "is_cut"]


def is_cut(state: State, source: str) -> bool:
    """Whether a summary has removed the last notice of a source from the model's view."""
    chunks = cast(Sequence[SummaryChunk], state.get("summaries") or ())
    if not chunks:
        return False
    messages = cast(Sequence[Message], state.get("messages") or ())
    for place in range(len(messages) - 1, chunks[-1].upto_index, -1):
        message = messages[place]
        if isinstance(message, HumanMessage) and message.source == source:
            return False
    return True


SYSTEM_PROMPT = """\
## Memory

These files have what you should know in every conversation. Follow them as the user's standing
wishes; what the user says now comes first. They can be out of date: when you see that one is
wrong, say so.

When the user corrects you, or tells you something that will matter beyond this task (how things
are done here, what they prefer, where things are), add it to the file it belongs in with
edit_file, in a sentence, before you go on. Don't record what only concerns this task, and never
passwords, keys or other secrets. A file that changes is shown to you again in a message; the
newest version counts.

{agent_memory}"""
"""The text of the section; the files replace the slot."""

_SLOT = "{agent_memory}"


@record
class MemoryTold:
    """The memory last shown to the model: a digest of each file, or the error of a broken one."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    errors: dict[str, str] = field(default_factory=dict[str, str])


class MemoryState(TypedDict):
    """State of a thread's memory.

    Attributes:
        memory_section: Its section of the system prompt.
        memory_pinned: The memory in that section.
        memory_told: The memory in later notices.
    """

    memory_section: Annotated[NotRequired[str], Mark.PRIVATE]
    memory_pinned: Annotated[NotRequired[MemoryTold], Mark.PRIVATE]
    memory_told: Annotated[NotRequired[MemoryTold], Mark.PRIVATE]


class MemoryMiddleware(AgentMiddleware):
    """Gives the model the contents of the memory files, and notices when they change.

    Args:
        files: The files; shared by any number of agents.
        system_prompt: The section `memory` of the system prompt, with `{agent_memory}` for the
            files. None adds no section; changes are still announced.

    Raises:
        AgentBuildError: `system_prompt` has no such slot.
    """

    state_schema = MemoryState

    def __init__(self, files: MemoryFiles, *, system_prompt: str | None = SYSTEM_PROMPT) -> None:
        if system_prompt is not None and _SLOT not in system_prompt:
            raise AgentBuildError(
                f"system_prompt of MemoryMiddleware needs {_SLOT} where the files shall be; with "
                "None nothing is added to the prompt"
            )
        self._files = files
        self._template = system_prompt

    async def before_agent(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Pin the section when the thread starts."""
        if "memory_section" in state:
            return None
        return self._pin(await self._look())

    async def before_model(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Notify the model of files that changed since its last notice."""
        snapshot = await self._look()
        if "memory_section" not in state:
            return self._pin(snapshot)
        told = cast(MemoryTold, state.get("memory_told", MemoryTold()))
        now = _told(snapshot)
        if told == now:
            stale = state.get("memory_pinned") != now
            return self._pin(snapshot) if stale and is_cut(state, "memory") else None
        return {
            "messages": [HumanMessage(_notice(told, snapshot), source="memory")],
            "memory_told": now,
        }

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the pinned section to the system prompt."""
        section = cast(str, request.state.get("memory_section", ""))
        return await handler(request.with_section("memory", section) if section else request)

    def _pin(self, snapshot: MemorySnapshot) -> dict[str, Any]:
        parts = [_quoted(file) for file in snapshot.files if file.text]
        parts += [f"A memory file has a problem: {error}" for error in snapshot.errors.values()]
        texts = "\n\n".join(parts)
        section = self._template.replace(_SLOT, texts) if self._template and texts else ""
        told = _told(snapshot)
        return {"memory_section": section, "memory_pinned": told, "memory_told": told}

    async def _look(self) -> MemorySnapshot:
        if self._files.roots:
            await anyio.to_thread.run_sync(self._files.reload)
        return self._files.snapshot


def _told(snapshot: MemorySnapshot) -> MemoryTold:
    return MemoryTold({file.path: file.digest for file in snapshot.files}, dict(snapshot.errors))


def _quoted(file: MemoryFile) -> str:
    return f'<memory_file path="{file.path}">\n{file.text or "(empty)"}\n</memory_file>'


def _notice(told: MemoryTold, snapshot: MemorySnapshot) -> str:
    there = {file.path for file in snapshot.files}
    changed = [file for file in snapshot.files if told.files.get(file.path) != file.digest]
    parts = ["[Notice from the system, not from the user: memory files changed.]"]
    if changed:
        parts.append("This is their current content. It replaces what you read of them before.")
        parts += [_quoted(file) for file in changed]
    parts += [
        f"{path} is gone; what it said no longer applies."
        for path in told.files
        if path not in there
    ]
    parts += [
        f"A memory file has a problem: {error}"
        for path, error in snapshot.errors.items()
        if told.errors.get(path) != error
    ]
    parts += [
        f"The problem with {path} is fixed." for path in told.errors if path not in snapshot.errors
    ]
    return "\n\n".join(parts)
