from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client, types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from deep_agent_mcp.server.mcp.sessions import SessionRegistry

pytestmark = pytest.mark.anyio

URI = "thread://t/todos"


def make_server(registry: SessionRegistry) -> Server[Any]:
    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        registry.subscribe(ctx, str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        registry.unsubscribe(ctx, str(params.uri))
        return types.EmptyResult()

    server: Server[Any] = Server(
        "test",
        on_list_tools=list_tools,
        on_list_resources=list_resources,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
    )

    async def registering(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "initialize":
            return await call_next(ctx)
        return await registry.registering(ctx, call_next)

    server.middleware.append(registering)
    return server


@pytest.fixture
async def registry() -> AsyncGenerator[SessionRegistry]:
    """Yield a registry that sends what it is told to announce."""
    registry = SessionRegistry()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(registry.run)
        yield registry
        tasks.cancel_scope.cancel()


class Inbox:
    """What a client was told, in order."""

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[str](20)

    async def __call__(self, message: object) -> None:
        await self.send.send(getattr(message, "method", type(message).__name__))

    async def next(self) -> str:
        with anyio.fail_after(60):
            return await self.receive.receive()

    def close(self) -> None:
        self.send.close()
        self.receive.close()


async def test_older_clients_are_promised_notices_and_get_them(registry: SessionRegistry) -> None:
    inbox = Inbox()
    async with Client(make_server(registry), mode="legacy", message_handler=inbox) as client:
        await client.list_tools()
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed is True
        registry.tools_changed()
        assert await inbox.next() == "notifications/tools/list_changed"
        registry.resources_changed()
        assert await inbox.next() == "notifications/resources/list_changed"
    inbox.close()


@pytest.mark.filterwarnings("ignore:resources/:mcp.MCPDeprecationWarning")
async def test_a_resource_is_announced_to_those_who_watch_it_only(
    registry: SessionRegistry,
) -> None:
    inbox = Inbox()
    async with Client(make_server(registry), mode="legacy", message_handler=inbox) as client:
        registry.resource_updated(URI)
        await client.subscribe_resource(URI)
        registry.resource_updated("thread://t/other")
        registry.resource_updated(URI)
        assert await inbox.next() == "notifications/resources/updated"
        await client.unsubscribe_resource(URI)
        registry.resource_updated(URI)
        registry.prompts_changed()
        assert await inbox.next() == "notifications/prompts/list_changed"
    inbox.close()


async def test_a_closed_connection_is_forgotten(registry: SessionRegistry) -> None:
    async with Client(make_server(registry), mode="legacy"):
        assert len(registry) == 1
    assert len(registry) == 0
    registry.tools_changed()


HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


class Wire:
    """A connection of the handshake era on which nothing moves unless it is read."""

    def __init__(self) -> None:
        self._send, self.to_server = anyio.create_memory_object_stream[SessionMessage | Exception]()
        self.from_server, self._receive = anyio.create_memory_object_stream[SessionMessage]()

    @asynccontextmanager
    async def open(self, server: Server[Any]) -> AsyncGenerator[Wire]:
        options = server.create_initialization_options()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, self.to_server, self.from_server, options)
            await self.ask("initialize", **HELLO)
            note = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
            await self._send.send(SessionMessage(note))
            yield self
            self._send.close()
            self._receive.close()

    async def ask(self, method: str, **params: Any) -> None:
        request = types.JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params)
        await self._send.send(SessionMessage(request))
        with anyio.fail_after(60):
            assert isinstance((await self._receive.receive()).message, types.JSONRPCResponse)

    async def next(self) -> str:
        with anyio.fail_after(60):
            message = (await self._receive.receive()).message
        assert isinstance(message, types.JSONRPCNotification)
        return message.method


async def test_a_client_that_reads_nothing_holds_up_nobody_and_hears_it_all_later_once(
    registry: SessionRegistry,
) -> None:
    server = make_server(registry)
    said = ["tools/list_changed", "prompts/list_changed", "resources/updated"]
    async with (
        Wire().open(server) as other,
        Wire().open(server) as stuck,
    ):
        for one in (other, stuck):
            await one.ask("resources/subscribe", uri=URI)
        for _ in range(3):
            registry.tools_changed()
            registry.prompts_changed()
            registry.resource_updated(URI)
            heard = [await other.next() for _ in said]
            assert heard == [f"notifications/{one}" for one in said]
        late = [await stuck.next() for _ in range(4)]
        # The first was under way when the same news came again.
        assert late == [f"notifications/{one}" for one in (*said, said[0])]
        registry.resources_changed()
        assert await stuck.next() == "notifications/resources/list_changed"


async def test_a_connection_that_ends_while_it_is_told_is_forgotten(
    registry: SessionRegistry,
) -> None:
    server = make_server(registry)
    async with Wire().open(server):
        registry.tools_changed()
        registry.prompts_changed()
        await anyio.wait_all_tasks_blocked()
        assert len(registry) == 1
    assert len(registry) == 0
    async with Wire().open(server) as another:
        registry.tools_changed()
        assert await another.next() == "notifications/tools/list_changed"


async def test_newer_clients_are_not_registered(registry: SessionRegistry) -> None:
    async with Client(make_server(registry), mode="auto") as client:
        await client.list_tools()
        assert len(registry) == 0
