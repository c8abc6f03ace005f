from typing import Any

import anyio
import pytest
from mcp import Client, types
from mcp.server.lowlevel import Server

from server.sessions import SessionRegistry

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
    server.middleware.append(registry.middleware)
    return server


class Inbox:
    """What a client was told, in order."""

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[str](20)

    async def __call__(self, message: object) -> None:
        await self.send.send(getattr(message, "method", type(message).__name__))

    async def next(self) -> str:
        with anyio.fail_after(5):
            return await self.receive.receive()

    def close(self) -> None:
        self.send.close()
        self.receive.close()


async def test_older_clients_are_promised_notices_and_get_them() -> None:
    registry = SessionRegistry()
    inbox = Inbox()
    async with Client(make_server(registry), mode="legacy", message_handler=inbox) as client:
        await client.list_tools()
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed is True
        await registry.tools_changed()
        assert await inbox.next() == "notifications/tools/list_changed"
        await registry.resources_changed()
        assert await inbox.next() == "notifications/resources/list_changed"
    inbox.close()


@pytest.mark.filterwarnings("ignore:resources/:mcp.MCPDeprecationWarning")
async def test_a_resource_is_announced_to_those_who_watch_it_only() -> None:
    registry = SessionRegistry()
    inbox = Inbox()
    async with Client(make_server(registry), mode="legacy", message_handler=inbox) as client:
        await registry.resource_updated(URI)
        await client.subscribe_resource(URI)
        await registry.resource_updated("thread://t/other")
        await registry.resource_updated(URI)
        assert await inbox.next() == "notifications/resources/updated"
        await client.unsubscribe_resource(URI)
        await registry.resource_updated(URI)
        await registry.prompts_changed()
        assert await inbox.next() == "notifications/prompts/list_changed"
    inbox.close()


async def test_a_closed_connection_is_forgotten() -> None:
    registry = SessionRegistry()
    async with Client(make_server(registry), mode="legacy"):
        assert len(registry) == 1
    assert len(registry) == 0
    await registry.tools_changed()


async def test_newer_clients_are_not_registered() -> None:
    registry = SessionRegistry()
    async with Client(make_server(registry), mode="auto") as client:
        await client.list_tools()
        assert len(registry) == 0
