"""A server process with three tools on our transports: `python -m tests.server.tiny_server`.

The first argument is a transport; the rest are flags as `name=value` of `load_settings`.
"""

import sys
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server

from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.health import Health
from deep_agent_mcp.server.transports.signals import stop_on_signals
from deep_agent_mcp.server.transports.transports import bind, serve_http, serve_stdio

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


async def _list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    names = ("echo", "print", "hang")
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=_SCHEMA) for name in names]
    )


async def _call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    text = str((params.arguments or {}).get("text", ""))
    if params.name == "print":
        sys.stdout.write(text)  # unflushed on purpose
    elif params.name == "hang":
        print("hanging", file=sys.stderr, flush=True)
        await anyio.sleep_forever()
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def tiny_server() -> Server[Any]:
    return Server("tiny", version="1", on_list_tools=_list_tools, on_call_tool=_call_tool)


async def _main(transport: str, flags: dict[str, object]) -> None:
    lists = {
        name: tuple(str(flags.pop(name, "")).split())
        for name in ("allow_hosts", "auth", "trusted_proxies")
    }
    settings = load_settings({**flags, **lists, "transport": transport}, {})
    with stop_on_signals() as stop:
        try:
            if transport == "stdio":
                await serve_stdio(tiny_server(), stop)
            else:
                listener = bind(settings.host, settings.port)
                health = Health(status=lambda: {"runs": 3})
                await serve_http(tiny_server(), settings, stop, listener=listener, health=health)
        finally:
            print("closed", file=sys.stderr, flush=True)


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))
