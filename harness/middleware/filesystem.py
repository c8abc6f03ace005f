"""Files for an agent: six tools over a backend, and a place for results that are too long.

Paths are made canonical before the policy sees a call, so its rules need one form of each path
(peers E21). The tools themselves are in `harness.backends.file_tools`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, NotRequired, cast

from harness.backends.base import Backend, FileError
from harness.backends.file_tools import FILE_TOOLS, canonicaliser, file_tools
from harness.backends.pages import call_text
from harness.backends.state import FilesState
from harness.errors import AgentBuildError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from harness.messages import Content, TextBlock
from harness.state import Mark, Reducer
from harness.tools import ToolRuntime

__all__ = ["FilesystemMiddleware", "FilesystemState"]

_PREVIEW_CHARS = 2_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def _merge(current: Mapping[str, str], write: Mapping[str, str]) -> dict[str, str]:
    return {**current, **write}


class FilesystemState(FilesState):
    """State of the middleware: the files of `StateBackend`, and what this agent has seen.

    `file_digests` maps canonical paths to the SHA-256 of the content last read or written here.
    """

    file_digests: Annotated[
        NotRequired[dict[str, str]], Reducer(_merge, default=dict[str, str]), Mark.PRIVATE
    ]


class FilesystemMiddleware(AgentMiddleware):
    """Brings `ls`, `read_file`, `write_file`, `edit_file`, `glob` and `grep`.

    Results of other tools that are longer than `evict_chars` are written to a file and replaced by
    their beginning, their end and the path (peers C1.12).

    Args:
        backend: Where the files live.
        tools: Names of the tools to bring; `read_file` must be among them, because evicted results
            are read back through it (peers C1.1).
        evict_chars: Length above which a result is evicted; None for never.
        evict_to: Directory for evicted results.
        page_chars: Most characters of text or results in one answer of a file tool.

    Raises:
        AgentBuildError: `tools` names an unknown tool or leaves out `read_file`.
    """

    state_schema = FilesystemState

    def __init__(
        self,
        backend: Backend,
        *,
        tools: Sequence[str] = FILE_TOOLS,
        evict_chars: int | None = 60_000,
        evict_to: str = "/large_tool_results",
        page_chars: int = 8_000,
    ) -> None:
        unknown = sorted(set(tools) - set(FILE_TOOLS))
        if unknown or "read_file" not in tools:
            raise AgentBuildError(
                f"the file tools are {', '.join(FILE_TOOLS)}, and read_file is always needed; "
                f"got {', '.join(tools) or 'none'}"
            )
        self.backend = backend
        self.tools = file_tools(backend, tools, page_chars=page_chars)
        self._canonical = canonicaliser(backend)
        self._evict_chars = evict_chars
        self._evict_to = evict_to
        self._section = self._prompt()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Say in the system prompt where paths lead."""
        return await handler(request.with_section("filesystem", self._section))

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Make the path of a file tool's call canonical; a wrong one is left for the tool."""
        call = request.call
        written = call.args.get("path")
        if call.name in FILE_TOOLS and isinstance(written, str):
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
        if self._evict_chars is None or request.call.name in FILE_TOOLS:
            return outcome
        text = message.text
        if len(text) <= self._evict_chars:
            return outcome
        note, update = await self._keep(request.runtime, request.call.id, text)
        preview = _preview(text, note)
        # Clients that show data instead of text would show all of it, so it goes with the text.
        short = replace(message, content=_with_text(message.content, preview), artifact=None)
        return replace(outcome, message=short, update=_merged(outcome.update, update))

    async def _keep(
        self, runtime: ToolRuntime, call_id: str, text: str
    ) -> tuple[str, Mapping[str, Any]]:
        """Write an evicted result; return what to tell the model, and the state writes."""
        path = f"{self._evict_to.rstrip('/')}/{_file_name(call_id)}.txt"
        files = self.backend.open(runtime)
        try:
            await files.write(path, text.encode("utf-8", "replace"))
        except FileError as error:
            return f"The rest could not be kept: {error} Ask for less at a time.", {}
        return f"All of it is in {path}; read on with {call_text('read_file', path=path)}.", (
            files.update()
        )

    def _prompt(self) -> str:
        evicted = ""
        if self._evict_chars is not None:
            evicted = f" Results that are too long to show are kept in {self._evict_to}."
        return (
            f"## Files\n{self.backend.description} Paths start with / at the root of the files. "
            "Read a file before you edit it. Long answers come in pages: their first line names "
            f"the call that gets the next one.{evicted}"
        )


def _file_name(call_id: str) -> str:
    """Return a safe name that differs for different ids."""
    safe = _UNSAFE.sub("_", call_id)[:100]
    if safe == call_id and safe:
        return safe
    return f"{safe}_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _preview(text: str, note: str) -> str:
    hidden = len(text) - 2 * _PREVIEW_CHARS
    return (
        f"[The result has {len(text)} characters; the first and last {_PREVIEW_CHARS} follow. "
        f"{note}]\n{text[:_PREVIEW_CHARS]}\n[… {hidden} characters left out …]\n"
        f"{text[-_PREVIEW_CHARS:]}"
    )


def _with_text(content: Content, text: str) -> Content:
    """Return the content with its text replaced and its images kept."""
    if isinstance(content, str):
        return text
    return (TextBlock(text), *(block for block in content if not isinstance(block, TextBlock)))


def _merged(update: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Join two updates; keys that both have are joined as mappings."""
    merged = dict(update)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **cast(Mapping[str, Any], value)} if both else value
    return merged
