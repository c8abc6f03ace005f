"""The tour with FastMCP's client, in both protocol eras; it runs in its own environment."""

import json
import sys
from typing import Any, Literal

import anyio
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport


def transport(target: dict[str, Any]) -> Any:
    if target["transport"] == "stdio":
        wanted = {key: target[key] for key in ("command", "args", "env", "cwd")}
        return StdioTransport(**wanted, keep_alive=False)
    if target["transport"] == "sse":
        return SSETransport(target["url"])
    return StreamableHttpTransport(target["url"])


async def tour(target: dict[str, Any], mode: Literal["auto", "legacy"]) -> dict[str, Any]:
    asked: list[Any] = []
    progress: list[str] = []

    async def answer(message: str, _kind: Any, params: Any, _context: Any) -> Any:
        asked.append(params.model_dump(mode="json", by_alias=True))
        return {"decision": "approve"}

    async def hear(_done: float, _total: float | None, message: str | None) -> None:
        progress.append(message or "")

    async with Client(
        transport(target), mode=mode, elicitation_handler=answer, progress_handler=hear
    ) as client:

        async def call(tool: str, **args: Any) -> dict[str, Any]:
            return (await client.call_tool(tool, args)).structured_content or {}

        tools = await client.list_tools()
        todos = [{"content": "look at it", "status": "in_progress"}]
        listed = await call("write_todos", todos=todos)
        thread_id = listed["thread_id"]
        here = {"thread_id": thread_id}
        await call("write_file", path="/tour.txt", content="a line of the tour\n", **here)
        read = await client.call_tool("read_file", {"path": "/tour.txt", **here})
        delegated = await call("task", goal="write a note", **here)
        resource = await client.read_resource(f"thread://{thread_id}/todos")
        prompt = await client.get_prompt("greeting")
        nowhere = {"path": "/nowhere", **here}
        wrong = await client.call_tool("read_file", nowhere, raise_on_error=False)
        assert wrong.is_error
        approved = await call("task", goal="change the note", thread_id="new")
        return {
            "server": "deep-agent-mcp",
            "protocol": client.protocol_version,
            "tools": [one.name for one in tools],
            "thread_id": thread_id,
            "todos": listed,
            "read": read.content[0].text,
            "delegated": delegated,
            "progress": progress,
            "resource": resource[0].text,
            "prompt": prompt.messages[0].content.text,
            "error": wrong.content[0].text,
            "asked": asked,
            "approved": approved,
        }


if __name__ == "__main__":
    given = json.loads(sys.argv[-1])
    print(json.dumps(anyio.run(tour, given, sys.argv[-2])))
