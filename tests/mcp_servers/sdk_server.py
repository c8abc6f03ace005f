"""A server written with the SDK: `python -m tests.mcp_servers.sdk_server TRANSPORT ERA LOG`.

TRANSPORT is `stdio` or `http` (which serves SSE too, and prints its port). ERA is `new`, or `old`
for a server without protocol 2026-07-28. The file LOG records the actions of its tools.
"""

import base64
import json
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import AcceptedElicitation, ElicitationResult
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    METHOD_NOT_FOUND,
    BlobResourceContents,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCRequest,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import JSONResponse

TRANSPORT, ERA, LOG = sys.argv[1], sys.argv[2], Path(sys.argv[3])
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()

mcp = MCPServer("everything")
waiting: dict[str, tuple[list[int], anyio.Event]] = {}


def note(text: str) -> None:
    with LOG.open("a", encoding="utf-8") as log:
        log.write(text + "\n")


@mcp.tool(title="Add numbers", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b


@mcp.tool(
    name="Wipe.Disk",
    annotations=ToolAnnotations(idempotent_hint=True, open_world_hint=False),
)
def wipe() -> str:
    """Erase everything."""
    note("wiped")
    return "gone"


@mcp.tool(annotations=ToolAnnotations(destructive_hint=False))
def show() -> CallToolResult:
    """Return content of every kind."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="first"),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            ImageContent(type="image", data=PIXEL, mime_type="image/tiff"),
            ImageContent(type="image", data="not base64!", mime_type="image/png"),
            ResourceLink(name="log", uri="file:///log", description="the log"),
            EmbeddedResource(
                resource=TextResourceContents(
                    uri="file:///a", text="inside", mime_type="text/plain"
                )
            ),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///b", blob=PIXEL, mime_type="image/png")
            ),
        ]
    )


@mcp.tool()
def only_data() -> CallToolResult:
    """Return structured content alone."""
    return CallToolResult(content=[], structured_content={"täble": [1, 2]})


@mcp.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("no such row")


@mcp.tool()
def refuse() -> str:
    """Answer with a protocol error."""
    raise MCPError(-32000, "not today")


@mcp.tool()
async def hang(key: str) -> str:
    """Never answer."""
    note(f"hang {key}")
    try:
        await anyio.sleep_forever()
    finally:
        note(f"stopped {key}")
    return ""


@mcp.tool()
async def together(key: str, number: int, count: int) -> int:
    """Answer once `count` calls are here."""
    numbers, all_here = waiting.setdefault(key, ([], anyio.Event()))
    numbers.append(number)
    if len(numbers) == count:
        all_here.set()
    await all_here.wait()
    return number


@mcp.tool()
async def hold(path: str) -> str:
    """Answer once a file is there."""
    while not Path(path).exists():  # noqa: ASYNC110
        await anyio.sleep(0.01)
    return "released"


@mcp.tool()
async def steps(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    await ctx.report_progress(2, 2, "all")
    return "done"


class Amount(BaseModel):
    amount: int


class Colour(BaseModel):
    colour: Literal["red", "blue"]


def ask_amount(item: str) -> Elicit[Amount]:
    return Elicit(f"How many {item}?", Amount)


def ask_colour(item: str) -> Elicit[Colour]:
    return Elicit(f"Which colour of {item}?", Colour)


@mcp.tool()
def order(item: str, amount: Annotated[ElicitationResult[Amount], Resolve(ask_amount)]) -> str:
    """Order as many as a person says."""
    if not isinstance(amount, AcceptedElicitation):
        return f"no {item}: {amount.action}"
    note(f"ordered {amount.data.amount} {item}")
    return f"{amount.data.amount} {item}"


@mcp.tool()
def paint(
    item: str,
    amount: Annotated[Amount, Resolve(ask_amount)],
    colour: Annotated[Colour, Resolve(ask_colour)],
) -> str:
    """Ask two things at once."""
    return f"{amount.amount} {colour.colour} {item}"


@mcp.tool()
async def act_then_ask(key: str, ctx: Context) -> str:
    """Act, and ask afterwards (only before protocol 2026-07-28)."""
    note(f"acted {key}")
    try:
        result = await ctx.elicit(f"Keep {key}?", Amount)
    except BaseException:
        note(f"stopped {key}")
        raise
    note(f"{result.action} {key}")
    return f"{result.action} {key}"


@mcp.tool()
async def staged(key: str, ctx: Context) -> str | InputRequiredResult:
    """Act, seal what was done, ask, and go on from there (only protocol 2026-07-28)."""
    answers = ctx.input_responses
    if answers is None:
        note(f"stage 1 {key}")
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        form = ElicitRequestFormParams(message="Go on?", requested_schema=schema)
        return InputRequiredResult(
            input_requests={"go": ElicitRequest(params=form)}, request_state=f"after {key}"
        )
    note(f"stage 2 {key} {ctx.request_state} {answers['go'].action}")
    return "finished"


@mcp.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool."""
    mcp.add_tool(fail, name=name)
    if ERA == "old":
        await ctx.session.send_tool_list_changed()
    else:
        await ctx.notify_tools_changed()
    return f"added {name}"


@mcp.tool()
def forget() -> str:
    """Forget all sessions, as a server that was restarted has."""
    mcp.session_manager._server_instances.clear()
    return "who are you?"


@mcp.tool()
def header(name: str, ctx: Context) -> str:
    """Return a header of the request."""
    return (ctx.headers or {}).get(name, "none")


def is_new(message: Any) -> bool:
    return isinstance(message, JSONRPCRequest) and message.method == "server/discover"


async def serve_stdio() -> None:
    send, receive = anyio.create_memory_object_stream[Any](0)
    server = mcp._lowlevel_server
    async with stdio_server() as (read, write), anyio.create_task_group() as group:

        async def filter_new() -> None:
            async with send:
                async for item in read:
                    if ERA == "old" and is_new(getattr(item, "message", None)):
                        error = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
                        answer = JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await send.send(item)

        group.start_soon(filter_new)
        await server.run(receive, write, server.create_initialization_options())


class OldOnly:
    """ASGI app that answers requests of protocol 2026-07-28 like a server without it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if ERA == "old" and headers.get(b"mcp-protocol-version") == b"2026-07-28":
            await JSONResponse({"error": "unsupported"}, 400)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def serve_http() -> None:
    app = Starlette(
        routes=[*mcp.streamable_http_app().routes, *mcp.sse_app().routes],
        lifespan=lambda app: mcp.session_manager.run(),
    )
    listener = socket.create_server(("127.0.0.1", int(sys.argv[4]) if sys.argv[4:] else 0))
    print(json.dumps(listener.getsockname()[1]), flush=True)
    config = uvicorn.Config(OldOnly(app), log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if TRANSPORT == "http":
        serve_http()
    else:
        anyio.run(serve_stdio)
