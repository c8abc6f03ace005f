"""A bench that runs file tools on a backend like the loop: path, validation, call, state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from deep_agent_mcp.harness.backends.base import Backend, Files
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.directory.descriptor_tree import DescriptorTree
from deep_agent_mcp.harness.backends.directory.realpath_tree import RealpathTree
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.requests import ToolCallOutcome, ToolCallRequest
from deep_agent_mcp.harness.messages.message import ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware, FilesystemState
from deep_agent_mcp.harness.state.channels import AgentState
from deep_agent_mcp.harness.state.schema import StateSchema
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.store.sqlite import SqliteStore
from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, ToolRuntime

BACKENDS = (
    *("state", "store", "sqlite-store", "composite"),
    *("descriptors", "realpath", "without-ripgrep"),
)
DISKS = ("descriptors", "realpath", "without-ripgrep")
SHARED = (*DISKS, "store", "sqlite-store")
"""Backends whose files are visible to other calls as soon as they are written."""

SCHEMA = StateSchema.of((AgentState, "agent"), (FilesystemState, "files"))


def make_backend(kind: str, root: Path, **options: Any) -> Backend:
    if kind == "state":
        return StateBackend()
    if kind == "store":
        return StoreBackend(MemoryStore(), ("files", "ann"))
    if kind == "sqlite-store":
        return StoreBackend(SqliteStore(root.parent / "store.db"), lambda _: ("files", "ann"))
    if kind == "composite":
        disk = root / "b"
        disk.mkdir(exist_ok=True)
        notes = StoreBackend(MemoryStore(), ("notes",))
        return CompositeBackend(StateBackend(), {"/b": DirectoryBackend(disk), "/s/": notes})
    if kind == "without-ripgrep":
        return DirectoryBackend(root, ripgrep=False, **options)
    tree = {"descriptors": DescriptorTree, "realpath": RealpathTree}[kind]
    return DirectoryBackend(root, tree=tree, **options)


@asynccontextmanager
async def opened(kind: str, directory: Path, **options: Any) -> AsyncGenerator[Bench]:
    """Create a bench, and close it after the block."""
    root = directory / "root"
    root.mkdir()
    bench = Bench(make_backend(kind, root), root, **options)
    try:
        yield bench
    finally:
        parts = getattr(bench.backend, "routes", {}).values()
        for backend in (bench.backend, *parts):
            if isinstance(backend, StoreBackend) and backend.store is not None:
                await backend.store.close()


async def _unused(*_: Any, **__: Any) -> Any:
    raise AssertionError("file tools neither ask nor start subagents")


class Bench:
    def __init__(self, backend: Backend, root: Path, **options: Any) -> None:
        self.backend = backend
        self.root = root
        self.forget()
        self.middleware = FilesystemMiddleware(backend, **options)

    def forget(self) -> None:
        """Start a new thread."""
        self.checkpointer = MemoryCheckpointer()
        self.state = SCHEMA.initial()

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

    @property
    def mounts(self) -> set[str]:
        """Directories that exist from the start."""
        return set(self.backend.routes) if isinstance(self.backend, CompositeBackend) else set()

    def files(self) -> Files:
        return self.backend.open(self.runtime)

    def tool(self, name: str) -> Tool:
        return next(tool for tool in self.middleware.tools if tool.name == name)

    async def seed(self, path: str, data: bytes) -> None:
        """Create a file without the tools."""
        await self.seed_all({path: data})

    async def seed_all(self, contents: Mapping[str, bytes]) -> None:
        """Create several files without the tools."""
        if isinstance(self.backend, DirectoryBackend):
            for path, data in contents.items():
                real = self.root / path[1:]
                real.parent.mkdir(parents=True, exist_ok=True)
                real.write_bytes(data)
        else:
            files = self.files()
            for path, data in contents.items():
                await files.write(path, data)
            self.apply(dict(files.update()))

    async def data(self, path: str) -> bytes:
        return await self.files().read(path)

    def apply(self, update: dict[str, Any]) -> None:
        """Merge an update into the state after a round trip through the journal's bytes."""
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
