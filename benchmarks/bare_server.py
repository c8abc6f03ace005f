"""The baseline for our server: one no-op tool on the bare SDK, over the SDK's transports.

`python -m benchmarks.bare_server [http] [--ours]` serves on stdio, or over HTTP on a free port,
which it prints like our server. With `--ours`, the same no-op is served over our transports, to
compare them with the SDK's. With `--rows FILE`, the tool stores its arguments as one row of a
SQLite file, which is the minimum for a durable tool.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiosqlite
import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Handler = Callable[[Any, Any], Awaitable[types.CallToolResult]]

NOOP = types.Tool(
    name="noop",
    description="Does nothing.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    },
)


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[NOOP])


async def call_tool(_ctx: Any, _params: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="done")])


@asynccontextmanager
async def rows() -> AsyncGenerator[Handler]:
    """Yield a tool that stores its arguments as one row of the file in `--rows`."""
    async with aiosqlite.connect(sys.argv[sys.argv.index("--rows") + 1]) as conn:
        await conn.execute("PRAGMA journal_mode = WAL")
        await conn.execute("PRAGMA synchronous = NORMAL")
        await conn.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")

        async def call(_ctx: Any, params: Any) -> types.CallToolResult:
            value = json.dumps(params.arguments)
            await conn.execute("INSERT INTO rows (value) VALUES (?)", (value,))
            await conn.commit()
            return types.CallToolResult(content=[types.TextContent(type="text", text="done")])

        yield call


async def main() -> None:
    async with AsyncExitStack() as stack:
        call = call_tool
        if "--rows" in sys.argv:
            call = await stack.enter_async_context(rows())
        server = _server(call)
        read, write = await stack.enter_async_context(stdio_server())
        await server.run(read, write, server.create_initialization_options())


async def main_http() -> None:
    import socket

    import uvicorn

    app = _server().streamable_http_app()
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    # Set the protocol explicitly, like uvicorn. Otherwise Nagle's algorithm delays each answer.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        print(json.dumps({"event": "listening", "url": url}), flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


async def main_ours(transport: str) -> None:
    from deep_agent_mcp.server.settings.sources import load_settings
    from deep_agent_mcp.server.transports.signals import stop_on_signals
    from deep_agent_mcp.server.transports.transports import bind, serve_http, serve_stdio

    settings = load_settings({"transport": transport, "port": 0}, {})
    with stop_on_signals() as stop:
        if transport == "stdio":
            await serve_stdio(_server(), stop)
        else:
            listener = bind(settings.host, settings.port)
            await serve_http(_server(), settings, stop, listener=listener)


def _server(call: Handler = call_tool) -> Server[Any]:
    return Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call)


if __name__ == "__main__":
    over_http = "http" in sys.argv[1:]
    if "--ours" in sys.argv[1:]:
        anyio.run(main_ours, "http" if over_http else "stdio")
    else:
        anyio.run(main_http if over_http else main)
