"""The demo's side of the protocol: calls through the official client, shown as they are made."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent, TextResourceContents

from .evidence import DemoFailed
from .run_tree import RunTree
from .view import View

__all__ = ["Conversation", "Facts"]

Facts: TypeAlias = dict[str, Any]
"""The structured content of a result."""

MAX_SHOWN = 48
MAX_ROUNDS = 20


class Conversation:
    """Calls tools over one connection.

    Args:
        client: Connected.
        view: Where calls are shown.
        thread_id: The thread to work in, once there is one.
    """

    def __init__(self, client: Client, view: View, thread_id: str = "") -> None:
        self._client = client
        self._view = view
        self.thread_id = thread_id

    async def call(self, tool: str, /, **args: Any) -> tuple[str, Facts]:
        """Call a tool on the thread; return its text and its facts.

        Raises:
            DemoFailed: It failed.
        """
        self._view.call(tool, _shown(args))
        if self.thread_id:
            args["thread_id"] = self.thread_id
        return _checked(tool, await self._client.call_tool(tool, args))

    async def delegate(
        self,
        tool: str,
        tree: RunTree,
        begins_to_think: Callable[[tuple[str, ...]], object] = lambda _: None,
        /,
        **args: Any,
    ) -> Facts:
        """Call `task`, `wait` or `reply` until the run is done or asks something.

        Args:
            tool: The tool.
            tree: Hears the progress.
            begins_to_think: Called with the names of an agent whose model is called.
            args: Of the tool.

        Raises:
            DemoFailed: The run failed.
            MCPError: The connection broke.
        """
        self._view.call(tool, _shown(args))
        with self._view.waiting("waiting for the run") as show:

            async def on_progress(
                progress: float, total: float | None, message: str | None
            ) -> None:
                show(message or "")
                agents = tree.hear(message or "")
                if agents:
                    begins_to_think(agents)

            for _ in range(MAX_ROUNDS):
                result = await self._client.call_tool(tool, args, progress_callback=on_progress)
                _, facts = _checked(tool, result)
                if facts["status"] != "running":
                    return facts
                tool, args = "wait", {"run_id": facts["run_id"]}
        raise DemoFailed(f"run {args['run_id']} is still working after {MAX_ROUNDS} waits")

    async def read(self, part: str) -> str:
        """Return a resource of the thread, such as `todos` or `transcript`.

        Raises:
            DemoFailed: It is not text, or not there.
        """
        uri = f"thread://{self.thread_id}/{part}"
        try:
            result = await self._client.read_resource(uri, cache_mode="bypass")
        except MCPError as error:
            raise DemoFailed(f"resource {uri}: {error}") from error
        content = result.contents[0]
        if not isinstance(content, TextResourceContents):
            raise DemoFailed(f"resource {uri} is not text")
        return content.text


def _checked(tool: str, result: CallToolResult) -> tuple[str, Facts]:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = texts[0] if texts else ""
    if result.is_error:
        raise DemoFailed(f"{tool} failed: {text}")
    return text, dict(result.structured_content or {})


def _shown(args: Facts) -> str:
    parts: list[str] = []
    for name, value in args.items():
        text = json.dumps(value, ensure_ascii=False)
        parts.append(f"{name}={text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + '...'}")
    return ", ".join(parts)
