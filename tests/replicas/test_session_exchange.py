"""What sessions of one replica hear from others, without a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

import anyio
import pytest
from mcp.types import JSONRPCNotification, JSONRPCRequest
from starlette.requests import Request

from deep_agent_mcp.server.replicas.sessions.event_log import Event, EventLog
from deep_agent_mcp.server.replicas.sessions.exchange import SessionExchange
from deep_agent_mcp.server.replicas.sessions.store import Letter, SessionStore
from deep_agent_mcp.server.replicas.sessions.streams import SessionStreams
from deep_agent_mcp.server.replicas.sessions.transport import SharedTransport

pytestmark = pytest.mark.anyio


class Peers:
    owner = "me"

    async def others(self) -> Sequence[str]:
        return ()

    async def is_alive(self, owner: str) -> bool:
        return True


class Signals:
    def __init__(self) -> None:
        self.handlers: dict[str, list[Callable[[str, str], None]]] = defaultdict(list)

    def on(self, kind: str, handler: Callable[[str, str], None]) -> None:
        self.handlers[kind].append(handler)

    def tell(self, kind: str, id_: str, more: str = "") -> None: ...


class NoCalls:
    """Allows repetition of all requests except tool calls."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        return request

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        return request.method != "tools/call"


class Log:
    async def run(self) -> None:
        await anyio.sleep_forever()

    async def add(self, event: Event, *, awaited: bool) -> None: ...


class Mail:
    """Letters for this replica, which are fetched once."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []

    async def fetch(self, replica: str) -> list[Letter]:
        found, self.letters = self.letters, []
        return found


async def never(transport: SharedTransport) -> None:
    raise AssertionError(transport)


async def test_a_message_for_a_session_that_just_ends_leaves_the_replica_at_work() -> None:
    peers, signals, mail = Peers(), Signals(), Mail()
    log, store = cast("EventLog", Log()), cast("SessionStore", mail)
    exchange = SessionExchange(store, log, signals, peers, never, NoCalls())
    ends, stays = (
        SharedTransport(
            name,
            SessionStreams(log, peers, name),
            exchange,
            peers.owner,
            "",
            checks=None,
            retry_interval=None,
            idle_timeout=None,
        )
        for name in ("ends", "stays")
    )
    for one in (ends, stays):
        one.is_open, one.origin = True, Request({"type": "http", "headers": []})
        exchange.here[one.session_id] = one
    note = JSONRPCNotification(jsonrpc="2.0", method="notifications/roots/list_changed")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(exchange.work)
            async with ends.connect(), stays.connect() as (read, _):
                mail.letters = [Letter("ends", note), Letter("stays", note)]
                signals.handlers["message"][0](peers.owner, "")
                await anyio.wait_all_tasks_blocked()  # the first letter waits to be read
                await ends.terminate()
                item = await read.receive()
            group.cancel_scope.cancel()
    assert not isinstance(item, Exception) and item.message == note
