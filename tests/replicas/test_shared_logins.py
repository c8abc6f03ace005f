"""A login to a mounted server counts on all replicas, and its refresh token is used by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from psycopg.sql import SQL, Identifier

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.mcp_servers import HttpServer, MCPToolsMiddleware, OAuth
from deep_agent_mcp.harness.mcp_servers.oauth import log_in
from deep_agent_mcp.harness.mcp_servers.oauth_revocation import log_out
from deep_agent_mcp.harness.mcp_servers.oauth_tokens import Login, TokensUnusable
from deep_agent_mcp.server.auth.login_table import LoginTable
from deep_agent_mcp.server.replicas.sealed_values import ValueSealer
from tests.databases import Database, made_database
from tests.loop.models import call
from tests.mcp_servers.oauth_server import OAuthServer, oauth_server
from tests.mcp_servers.support import agent_with, results
from tests.mcp_servers.test_oauth import browse
from tests.replicas.servers import journal_url

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture
def remote() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        server.lifetime = 3600.0
        yield server


class Replicas:
    """Tables of logins as several replicas have them, and what they mount."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.url = journal_url(database)
        self.key = Keyring.generate()
        self._mounted: list[MCPToolsMiddleware] = []

    def logins(self, key: str | None = None) -> LoginTable:
        return LoginTable(self.url, ValueSealer(Keyring.parse(key or self.key)))

    async def ping(self, remote: OAuthServer) -> tuple[str, Any]:
        """Call the server's tool on a replica that has just begun."""
        server = HttpServer(remote.url, auth=OAuth(self.logins()))
        self._mounted.append(MCPToolsMiddleware({"guarded": server}))
        agent = agent_with(self._mounted[-1], (call("1", "guarded_ping"),))
        (message,) = results(await agent.ainvoke("go"))
        return message.status, message.content

    async def aclose(self) -> None:
        for one in self._mounted:
            await one.aclose()


@pytest.fixture
async def replicas(database: Database) -> AsyncIterator[Replicas]:
    made = Replicas(database)
    yield made
    await made.aclose()


async def logged_in(replicas: Replicas, remote: OAuthServer) -> None:
    await log_in("guarded", HttpServer(remote.url, auth=OAuth(replicas.logins())), browse)


async def in_thread(work: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(work)


async def test_a_login_on_one_machine_counts_on_all(
    replicas: Replicas, remote: OAuthServer
) -> None:
    status, text = await replicas.ping(remote)
    assert status == "error" and "deep-agent-mcp mcp login guarded" in text
    await logged_in(replicas, remote)
    assert await replicas.ping(remote) == ("success", "pong")
    assert await log_out("guarded", replicas.logins()) is None
    status, text = await replicas.ping(remote)
    assert status == "error" and "needs a login" in text


async def test_a_refresh_token_is_used_once_by_all_replicas(
    replicas: Replicas, remote: OAuthServer
) -> None:
    remote.lifetime = 0
    await logged_in(replicas, remote)
    remote.lifetime, remote.dawdles = 3600.0, True
    said: list[Any] = []

    async def one() -> None:
        said.append(await replicas.ping(remote))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert said == [("success", "pong")] * 3
    assert remote.refreshed == 1


async def test_nobody_reads_a_login_without_the_key(
    replicas: Replicas, remote: OAuthServer
) -> None:
    await logged_in(replicas, remote)
    table = Identifier(replicas.url.rpartition("=")[2] + "_replicas", "logins")
    ((stored,),) = replicas.database.execute(SQL("SELECT body FROM {}").format(table))
    assert remote.issued
    assert not any(one.encode() in bytes(stored) for one in remote.issued)
    others = replicas.logins(Keyring.generate())
    with pytest.raises(TokensUnusable, match="encrypted with the key"):
        await in_thread(lambda: others.read("guarded"))


async def test_a_newer_login_is_seen_within_a_second_or_at_once_by_who_refreshes(
    replicas: Replicas,
) -> None:
    a, b = replicas.logins(), replicas.logins()
    first, second = (Login("https://x.test/mcp", {}, {"access_token": one}) for one in "12")
    await in_thread(lambda: a.write("x", first))
    before = await in_thread(lambda: b.stamp("x"))
    assert before is not None
    await in_thread(lambda: a.write("x", second))
    assert await in_thread(lambda: a.stamp("x")) != before

    def alone() -> Any:
        with b.alone("x"):
            return b.stamp("x")

    assert await in_thread(alone) == await in_thread(lambda: a.stamp("x")) != before
    assert (await in_thread(lambda: b.read("x"))).tokens == {"access_token": "2"}
    assert await in_thread(lambda: b.read("x", "https://other.test/mcp")) is None
    assert await in_thread(lambda: b.remove("x")) is True
    assert await in_thread(lambda: b.remove("x")) is False


async def test_a_database_that_is_away_is_named(replicas: Replicas) -> None:
    away = LoginTable("postgresql://postgres@127.0.0.1:1/none", ValueSealer(None))
    with pytest.raises(TokensUnusable, match="refused"):
        await in_thread(lambda: away.read("x"))
