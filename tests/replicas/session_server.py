"""A server process with a few tools that shares its sessions with other replicas.

`python -m tests.replicas.session_server URL NAME FLAG...`: a Postgres URL, a name for this replica,
and flags as `name=value` of `load_settings`. Replicas detect each other by the names of their
database connections, and send signals with `NOTIFY`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
from mcp import types
from mcp.server.lowlevel import Server

from deep_agent_mcp.server.mcp.sessions import SessionRegistry
from deep_agent_mcp.server.replicas.database import open_database
from deep_agent_mcp.server.replicas.sessions.manager import SharedSessions
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.signals import stop_on_signals
from deep_agent_mcp.server.transports.transports import bind, serve_http

KEY = b"the key of all replicas in tests"
CHANNEL = "session_server"
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "path": {"type": "string"}},
}
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
TOOLS = ("where", "ask", "work", "change")


class Replica:
    """This replica among the others."""

    def __init__(self, url: str, owner: str) -> None:
        self.owner = owner
        self._url = url
        self._handlers: dict[str, list[Callable[[str, str], None]]] = defaultdict(list)
        self._told: list[str] = []
        self._wake = anyio.Event()
        self._others: tuple[str, ...] = ()

    @asynccontextmanager
    async def present(self) -> AsyncGenerator[None]:
        """Announce this replica, and receive signals of the others, until the block ends."""
        async with (
            await self._connected() as listening,
            await self._connected() as asking,
            anyio.create_task_group() as tasks,
        ):
            self._asking = asking
            self._turn = anyio.Lock()
            await listening.execute(f"LISTEN {CHANNEL}".encode())
            tasks.start_soon(self._hear, listening)
            tasks.start_soon(self._send)
            yield
            tasks.cancel_scope.cancel()

    def on(self, kind: str, handler: Callable[[str, str], None]) -> None:
        self._handlers[kind].append(handler)

    def tell(self, kind: str, id_: str, more: str = "") -> None:
        self._told.append(f"{self.owner} {kind} {id_} {more}")
        self._wake.set()

    async def others(self) -> Sequence[str]:
        await self._count()
        return self._others

    async def is_alive(self, owner: str) -> bool:
        await self._count()
        return owner == self.owner or owner in self._others

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, application_name=self.owner
        )

    async def _count(self) -> None:
        async with self._turn:
            found = await self._asking.execute(
                "SELECT DISTINCT application_name FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name LIKE 'replica-%'"
            )
            self._others = tuple(row[0] for row in await found.fetchall() if row[0] != self.owner)

    async def _hear(self, conn: psycopg.AsyncConnection[Any]) -> None:
        async for notice in conn.notifies():
            sender, kind, id_, more = notice.payload.split(" ", 3)
            await self._count()
            if sender != self.owner:
                for handler in self._handlers[kind]:
                    handler(id_, more)

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self._count()
            told, self._told = self._told, []
            async with self._turn:
                for text in told:
                    await self._asking.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))


class Repeats:
    """Support for calls that may be repeated; a key identifies repetitions."""

    def prepared(self, request: types.JSONRPCRequest) -> types.JSONRPCRequest:
        params = request.params or {}
        given = params.get("arguments") or {}
        if given.get("text") != "again":
            return request
        keyed = {**params, "arguments": {**given, "key": uuid4().hex}}
        return request.model_copy(update={"params": keyed})

    def can_repeat(self, request: types.JSONRPCRequest) -> bool:
        return "key" in ((request.params or {}).get("arguments") or {})


class Tools:
    """The server's handlers."""

    def __init__(self, replica: Replica, registry: SessionRegistry) -> None:
        self._replica = replica
        self._registry = registry
        replica.on("resource", lambda uri, _: registry.resource_updated(uri))

    def server(self) -> Server[Any]:
        server: Server[Any] = Server(
            "sessions",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
        )
        server.middleware.append(self._registering)
        return server

    async def _registering(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method == "initialize":
            return await self._registry.registering(ctx, call_next)
        return await call_next(ctx)

    async def _list(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema=SCHEMA) for name in TOOLS]
        )

    async def _resources(self, _ctx: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def _subscribe(self, ctx: Any, params: Any) -> types.EmptyResult:
        self._registry.subscribe(ctx, str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Any, params: Any) -> types.EmptyResult:
        self._registry.unsubscribe(ctx, str(params.uri))
        return types.EmptyResult()

    async def _call(self, ctx: Any, params: Any) -> types.CallToolResult:
        given = params.arguments or {}
        match params.name:
            case "ask":
                answer = await ctx.session.elicit_form("Which colour?", FORM, ctx.request_id)
                said = json.dumps({"action": answer.action, "content": answer.content})
            case "work":
                said = await self._work(ctx, Path(given["path"]), given.get("key", ""))
            case "change":
                self._registry.resource_updated(given["text"])
                self._replica.tell("resource", given["text"])
                said = "changed"
            case _:
                said = ctx.session.client_params.client_info.name
        text = f"{self._replica.owner}: {said}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def _work(self, ctx: Any, path: Path, key: str) -> str:
        """Report the start, and wait for a file."""
        await ctx.session.report_progress(1, None, f"begun {key}")
        try:
            while not path.exists():  # noqa: ASYNC110  no event tells
                await anyio.sleep(0.02)
        except anyio.get_cancelled_exc_class():
            path.with_suffix(".cancelled").touch()
            raise
        await ctx.session.report_progress(2, None, "nearly")
        return path.read_text(encoding="utf-8")


async def main(url: str, owner: str, flags: dict[str, Any]) -> None:
    """Print a free port and serve on it until a signal."""
    flags["auth"] = tuple(str(flags.pop("auth", "")).split())
    settings = load_settings({**flags, "transport": "http", "port": "0"}, {})
    replica, registry = Replica(url, owner), SessionRegistry()
    database = open_database(url)
    listener = bind(settings.host, settings.port)
    with stop_on_signals() as stop:
        async with replica.present(), anyio.create_task_group() as tasks:
            tasks.start_soon(registry.run)
            await serve_http(
                Tools(replica, registry).server(),
                settings,
                stop,
                listener=listener,
                sessions_of=lambda server, checks: SharedSessions(
                    server, checks, database, KEY, replica, replica, Repeats()
                ),
            )
            tasks.cancel_scope.cancel()
    await database.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], dict(pair.split("=", 1) for pair in sys.argv[3:]))
