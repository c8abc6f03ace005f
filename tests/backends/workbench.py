"""Runs file tools against a backend the way the loop does: path, validation, call, state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.backends.base import Backend, Files
from harness.backends.descriptor_tree import DescriptorTree
from harness.backends.directory import DirectoryBackend
from harness.backends.realpath_tree import RealpathTree
from harness.backends.state import FileData, StateBackend
from harness.checkpoint.memory import MemoryCheckpointer
from harness.loop.requests import ToolCallOutcome, ToolCallRequest
from harness.messages import ToolCall, ToolMessage
from harness.middleware.filesystem import FilesystemMiddleware, FilesystemState
from harness.state import AgentState, StateSchema
from harness.tools import Tool, ToolResult, ToolRuntime

BACKENDS = ("state", "descriptors", "realpath")
SCHEMA = StateSchema.of((AgentState, "agent"), (FilesystemState, "files"))


def make_backend(kind: str, root: Path, **options: Any) -> Backend:
    if kind == "state":
        return StateBackend()
    tree = {"descriptors": DescriptorTree, "realpath": RealpathTree}[kind]
    return DirectoryBackend(root, tree=tree, **options)


async def _unused(*_: Any, **__: Any) -> Any:
    raise AssertionError("file tools neither ask nor start subagents")


class Bench:
    def __init__(self, backend: Backend, root: Path, **options: Any) -> None:
        self.backend = backend
        self.root = root
        self.checkpointer = MemoryCheckpointer()
        self.state = SCHEMA.initial()
        self.middleware = FilesystemMiddleware(backend, **options)

    @property
    def runtime(self) -> ToolRuntime:
        return ToolRuntime(
            state=self.state,
            tool_call_id="call_1",
            thread_id="thr_1",
            run_id="run_1",
            ns="",
            agent_path=("agent",),
            context=None,
            journal=self.checkpointer,
            stream_writer=lambda _: None,
            interrupt=_unused,  # type: ignore[arg-type]
            run_subagent=_unused,
        )

    def files(self) -> Files:
        return self.backend.open(self.runtime)

    def tool(self, name: str) -> Tool:
        return next(tool for tool in self.middleware.tools if tool.name == name)

    def seed(self, path: str, data: bytes) -> None:
        """Put a file where it is without the tools noticing."""
        if isinstance(self.backend, StateBackend):
            self.apply({"files": {path: FileData.of(data)}})
        else:
            real = self.root / path[1:]
            real.parent.mkdir(parents=True, exist_ok=True)
            real.write_bytes(data)

    async def data(self, path: str) -> bytes:
        return await self.files().read(path)

    def apply(self, update: dict[str, Any]) -> None:
        """Fold an update after a round trip through the journal's bytes."""
        for channel, write in SCHEMA.writes(update, "test"):
            stored = SCHEMA[channel].decode(SCHEMA[channel].encode(write))
            self.state = SCHEMA.fold(self.state, [(channel, stored)])  # type: ignore[list-item]

    async def result(self, name: str, _id: str = "call_1", **args: Any) -> ToolResult:
        async def execute(request: ToolCallRequest) -> ToolCallOutcome:
            tool = self.tool(name)
            value = await tool.function(tool.validate(request.call.args), request.runtime)
            assert isinstance(value, ToolResult)
            self.apply(dict(value.update))
            results.append(value)
            return ToolCallOutcome(ToolMessage(_id, value.content, name))

        results: list[ToolResult] = []
        runtime = replace(self.runtime, tool_call_id=_id)
        request = ToolCallRequest(ToolCall(_id, name, args), self.tool(name), runtime)
        await self.middleware.wrap_tool_call(request, execute)
        return results[0]

    async def call(self, name: str, **args: Any) -> str:
        content = (await self.result(name, **args)).content
        assert isinstance(content, str)
        return content
