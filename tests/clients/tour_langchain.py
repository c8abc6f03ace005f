"""The tour with LangChain's adapters; it runs in the environment of the Python SDK 1.x."""

import json
import sys
from typing import Any

import anyio
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.prompts import load_mcp_prompt
from langchain_mcp_adapters.resources import load_mcp_resources
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult


def connection(target: dict[str, Any]) -> dict[str, Any]:
    if target["transport"] == "http":
        return {"transport": "streamable_http", "url": target["url"]}
    return target


async def tour(target: dict[str, Any]) -> dict[str, Any]:
    asked: list[Any] = []
    progress: list[str] = []

    async def answer(_context: Any, params: Any, _where: Any) -> ElicitResult:
        asked.append(params.model_dump(mode="json", by_alias=True))
        return ElicitResult(action="accept", content={"decision": "approve"})

    async def hear(_done: float, _total: float | None, message: str | None, _where: Any) -> None:
        progress.append(message or "")

    client = MultiServerMCPClient(
        {"deep-agent": connection(target)},  # type: ignore[dict-item]
        callbacks=Callbacks(on_progress=hear, on_elicitation=answer),
    )
    async with client.session("deep-agent") as session:
        callbacks = client.callbacks
        tools = {
            one.name: one
            for one in await load_mcp_tools(session, callbacks=callbacks, server_name="deep-agent")
        }

        async def call(tool: str, **args: Any) -> tuple[Any, dict[str, Any]]:
            request = {"name": tool, "args": args, "id": "call_1", "type": "tool_call"}
            message = await tools[tool].ainvoke(request)
            artifact: dict[str, Any] = message.artifact or {}
            return message.content, artifact.get("structured_content") or {}

        todos = [{"content": "look at it", "status": "in_progress"}]
        _, listed = await call("write_todos", todos=todos)
        thread_id = listed["thread_id"]
        here = {"thread_id": thread_id}
        await call("write_file", path="/tour.txt", content="a line of the tour\n", **here)
        read, _ = await call("read_file", path="/tour.txt", **here)
        _, delegated = await call("task", goal="write a note", **here)
        wrong, _ = await call("read_file", path="/nowhere", **here)
        uri = f"thread://{thread_id}/todos"
        (resource,) = await load_mcp_resources(session, uris=uri)
        (prompt,) = await load_mcp_prompt(session, "greeting")
        _, approved = await call("task", goal="change the note", thread_id="new")
    return {
        "server": "deep-agent-mcp",
        "tools": [*tools],
        "thread_id": thread_id,
        "todos": listed,
        "read": json.dumps(read),
        "delegated": delegated,
        "progress": progress,
        "resource": resource.as_string(),
        "prompt": prompt.content,
        "error": json.dumps(wrong),
        "asked": asked,
        "approved": approved,
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(tour, json.loads(sys.argv[-1]))))
