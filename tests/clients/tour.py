"""The tour with the Python SDK 1.x; it runs in that SDK's own environment."""

import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import ElicitResult
from pydantic import AnyUrl


def streams(target: dict[str, Any]) -> Any:
    if target["transport"] == "stdio":
        wanted = {key: target[key] for key in ("command", "args", "env", "cwd")}
        return stdio_client(StdioServerParameters(**wanted))
    if target["transport"] == "sse":
        return sse_client(target["url"])
    return streamablehttp_client(target["url"])


async def tour(target: dict[str, Any]) -> dict[str, Any]:
    asked: list[Any] = []

    async def answer(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.model_dump(mode="json", by_alias=True))
        return ElicitResult(action="accept", content={"decision": "approve"})

    progress: list[str] = []

    async def hear(_done: float, _total: float | None, message: str | None) -> None:
        progress.append(message or "")

    async with AsyncExitStack() as stack:
        read, write, *_ = await stack.enter_async_context(streams(target))
        session = await stack.enter_async_context(
            ClientSession(read, write, elicitation_callback=answer)
        )
        opened = await session.initialize()

        async def call(tool: str, **args: Any) -> dict[str, Any]:
            result = await session.call_tool(tool, args)
            assert not result.isError, result
            return result.structuredContent or {}

        tools = (await session.list_tools()).tools
        todos = [{"content": "look at it", "status": "in_progress"}]
        listed = await call("write_todos", todos=todos)
        thread_id = listed["thread_id"]
        here = {"thread_id": thread_id}
        await call("write_file", path="/tour.txt", content="a line of the tour\n", **here)
        read_back = await session.call_tool("read_file", {"path": "/tour.txt", **here})
        delegated = await session.call_tool(
            "task", {"goal": "write a note", **here}, progress_callback=hear
        )
        resource = await session.read_resource(AnyUrl(f"thread://{thread_id}/todos"))
        prompt = await session.get_prompt("greeting")
        wrong = await session.call_tool("read_file", {"path": "/nowhere", **here})
        assert wrong.isError
        approved = await session.call_tool("task", {"goal": "change the note", "thread_id": "new"})
        return {
            "server": opened.serverInfo.name,
            "protocol": opened.protocolVersion,
            "tools": [one.name for one in tools],
            "thread_id": thread_id,
            "todos": listed,
            "read": read_back.content[0].text,
            "delegated": delegated.structuredContent,
            "progress": progress,
            "resource": resource.contents[0].text,
            "prompt": prompt.messages[0].content.text,
            "error": wrong.content[0].text,
            "asked": asked,
            "approved": approved.structuredContent,
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(tour, json.loads(sys.argv[-1]))))
