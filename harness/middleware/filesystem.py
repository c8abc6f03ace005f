"""Filesystem middleware: file tools over a backend, and eviction of long results to files.

Paths are made canonical before the policy sees a call, so its rules need one form of each path. The
tools themselves are in `harness.backends.file_tools.tools`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, NotRequired

from .._internal import in_file_name
from ..backends.base import Backend, FileError, artifact_path
from ..backends.file_tools.file_guards import CLAIMS, canonicaliser
from ..backends.file_tools.pages import call_text
from ..backends.file_tools.tools import ALL_FILE_TOOLS, FILE_TOOLS, file_tools
from ..backends.file_tools.visible_files import history_directory, long_messages, message_path
from ..backends.state import FilesState
from ..errors import AgentBuildError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from ..messages.message import Content, HumanMessage, Message, TextBlock
from ..state.channels import Mark, Reducer, State, merge_keys
from ..tools.tool import ToolRuntime
from .context.context_edits import EditedMessages

__all__ = ["FilesystemMiddleware", "FilesystemState"]

_PREVIEW_CHARS = 2_000
_MOST_THREADS = 128


class FilesystemState(FilesState):
    """State of the middleware: the files of `StateBackend`, and what this agent has seen.

    `file_digests` maps canonical paths to the SHA-256 of the content last read or written here.
    """

    file_digests: Annotated[
        NotRequired[dict[str, str]], Reducer(merge_keys, default=dict[str, str]), Mark.PRIVATE
    ]


class FilesystemMiddleware(AgentMiddleware):
    """Adds the file tools: `ls`, `read_file`, `write_file`, `edit_file`, `glob` and `grep`.

    Results of other tools that are longer than `evict_chars` are written to a file, and replaced by
    their beginning, their end and the path. A user's message that is longer than
    `evict_message_chars` is shown in the same way. The transcript keeps the full message, and
    `read_file` can read it below `/conversation_history`, like the whole transcript.

    Args:
        backend: The backend of the files.
        tools: Names of the tools to add. `read_file` must be one of them, because it reads evicted
            results. `delete_file` is only added if it is named.
        evict_chars: Length above which a result is evicted; None for never.
        evict_to: Directory for evicted results; by default `large_tool_results` at the backend's
            `artifacts_root`.
        evict_message_chars: Length above which a user's message, or a subagent's task, is
            shown as a preview; None for never.
        history: Whether the thread's messages can be read as files.
        page_chars: The most characters of text or results in one answer of a file tool.
        system_prompt: The section `filesystem` of the system prompt; None for the default text,
            empty for none.
        custom_tool_descriptions: Descriptions for the model, by tool, instead of the default ones.

    Raises:
        AgentBuildError: `tools` names an unknown tool or leaves out `read_file`, or a description
            is for a missing tool.
    """

    state_schema = FilesystemState
    supplies_tools = False

    def __init__(
        self,
        backend: Backend,
        *,
        tools: Sequence[str] = FILE_TOOLS,
        evict_chars: int | None = 60_000,
        evict_to: str | None = None,
        evict_message_chars: int | None = 200_000,
        history: bool = True,
        page_chars: int = 8_000,
        system_prompt: str | None = None,
        custom_tool_descriptions: Mapping[str, str] | None = None,
    ) -> None:
        unknown = sorted(set(tools) - set(ALL_FILE_TOOLS))
        if unknown or "read_file" not in tools:
            raise AgentBuildError(
                f"the file tools are {', '.join(ALL_FILE_TOOLS)}, and read_file is always needed; "
                f"got {', '.join(tools) or 'none'}"
            )
        described = custom_tool_descriptions or {}
        unknown = sorted(set(described) - set(tools))
        if unknown:
            raise AgentBuildError(
                f"custom_tool_descriptions names {', '.join(unknown)}; the tools of this "
                f"middleware are {', '.join(tools)}"
            )
        self.backend = backend
        self._message_chars = evict_message_chars if history else None
        self.tools = file_tools(
            backend,
            tools,
            page_chars=page_chars,
            history=history,
            message_chars=self._message_chars,
            descriptions=described,
        )
        self._names = frozenset(tools)
        self._canonical = canonicaliser(backend)
        self._evict_chars = evict_chars
        self._evict_to = evict_to or artifact_path(backend, "large_tool_results")
        self._section = self._prompt() if system_prompt is None else system_prompt
        self._views = EditedMessages()
        self._long = _LongMessages(self._message_chars)

    def after_agent(self, state: State, runtime: Runtime) -> None:
        """Drop the run's claims."""
        if not runtime.ns:
            CLAIMS.drop(runtime.run_id)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Explain paths in the system prompt, and show long messages as previews."""
        # The changes of subagents are in the state now.
        CLAIMS.settle(request.runtime.run_id, request.runtime.ns)
        if self._section:
            request = request.with_section("filesystem", self._section)
        key = f"{request.runtime.thread_id}/{request.runtime.ns}"
        terms = self._long.of(key, request.state.get("messages") or ())
        if terms:
            directory = history_directory(self.backend)
            shown = self._views.get(
                key, terms, request.messages, lambda one: _previewed(one, terms, directory)
            )
            request = request.override(messages=shown)
        return await handler(request)

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Make the path of a file tool's call canonical; the tool handles an invalid one."""
        call = request.call
        written = call.args.get("path")
        if call.name in self._names and isinstance(written, str):
            try:
                path = self._canonical(written)
            except FileError:
                path = written
            if path != written:
                request = request.override(call=replace(call, args={**call.args, "path": path}))
        return await handler(request)

    async def evict(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Move the text of a long result into a file."""
        message = outcome.message
        if self._evict_chars is None or request.call.name in self._names:
            return outcome
        text = message.text
        if len(text) <= self._evict_chars:
            return outcome
        note, update = await self._keep(request.runtime, request.call.id, text)
        preview = _preview("result", text, note)
        # Clients that show data instead of text would show all of it, so the data is evicted too.
        short = replace(message, content=_with_text(message.content, preview), artifact=None)
        return replace(outcome, message=short).with_update(**update)

    async def _keep(
        self, runtime: ToolRuntime, call_id: str, text: str
    ) -> tuple[str, Mapping[str, Any]]:
        """Write an evicted result; return the text for the model, and the state writes.

        Some models reuse ids of calls, and threads may share the directory.
        """
        data = text.encode("utf-8", "replace")
        name = f"{_file_name(call_id)}_{sha256(data).hexdigest()[:12]}"
        path = f"{self._evict_to.rstrip('/')}/{name}.txt"
        files = self.backend.open(runtime)
        try:
            await files.write(path, data)
        except FileError as error:
            return f"The rest could not be kept: {error} Ask for less at a time.", {}
        return f"All of it is in {path}; read on with {call_text('read_file', path=path)}.", (
            files.update()
        )

    def _prompt(self) -> str:
        parts = [f"## Files\n{self.backend.description} Paths start at the root, /."]
        if "edit_file" in self._names:
            parts.append("Read a file before you edit it.")
        parts.append("Long answers come in pages; their first line has the call for the next.")
        if self._evict_chars is not None:
            parts.append(f"Results too long to show are kept in {self._evict_to}.")
        return " ".join(parts)


def _file_name(call_id: str) -> str:
    """Return a safe name that differs for different ids."""
    safe = in_file_name(call_id, 100)
    if safe == call_id and safe:
        return safe
    return f"{safe}_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


class _LongMessages:
    """Finds long messages of transcripts; a call only reads the messages that are new."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._known: dict[str, tuple[Sequence[Message], tuple[str, ...]]] = {}

    def of(self, key: str, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the ids of the long messages; `key` identifies the thread."""
        if self._most is None or not messages:
            return ()
        before, ids = self._known.pop(key, ((), ()))
        start = len(before)
        if start > len(messages) or not all(map(operator.is_, before, messages)):
            start, ids = 0, ()
        ids += tuple(one.id for one in long_messages(messages[start:], self._most))
        if len(self._known) >= _MOST_THREADS:
            del self._known[next(iter(self._known))]
        self._known[key] = messages, ids
        return ids


def _previewed(message: Message, long: Sequence[str], directory: str) -> Message:
    """Return a long message as its beginning, its end and its path; others unchanged."""
    if not isinstance(message, HumanMessage) or message.id not in long:
        return message
    path = message_path(message, directory)
    note = f"All of it is in {path}; read on with {call_text('read_file', path=path)}."
    return replace(
        message, content=_with_text(message.content, _preview("message", message.text, note))
    )


def _preview(what: str, text: str, note: str) -> str:
    hidden = len(text) - 2 * _PREVIEW_CHARS
    return (
        f"[The {what} has {len(text)} characters; the first and last {_PREVIEW_CHARS} follow. "
        f"{note}]\n{text[:_PREVIEW_CHARS]}\n[… {hidden} characters left out …]\n"
        f"{text[-_PREVIEW_CHARS:]}"
    )


def _with_text(content: Content, text: str) -> Content:
    """Return the content with its text replaced and its images kept."""
    if isinstance(content, str):
        return text
    return (TextBlock(text), *(block for block in content if not isinstance(block, TextBlock)))
