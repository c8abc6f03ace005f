"""Servers that the tests share. Each is one process, used from the event loops of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import anyio
import mcp.server  # noqa: F401  a second that no test shall be charged with
import pytest

from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware
from tests.mcp_servers.support import raw_server, sdk_server


def _shared(tmp_path_factory: pytest.TempPathFactory, era: str) -> Iterator[SimpleNamespace]:
    log = tmp_path_factory.mktemp(era) / "log"
    tools = MCPToolsMiddleware({"sdk": sdk_server(log, era)})
    anyio.run(tools._pool.refresh, tools.servers)  # start it here, so that no test waits for it
    yield SimpleNamespace(tools=tools, log=log, era=era)
    anyio.run(tools.aclose)


@pytest.fixture(scope="session")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A server of protocol 2026-07-28."""
    yield from _shared(tmp_path_factory, "new")


@pytest.fixture(scope="session")
def _old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    yield from _shared(tmp_path_factory, "old")


@pytest.fixture
def old(_old: SimpleNamespace) -> SimpleNamespace:
    """A server that only supports older protocols, and is not known to send requests."""
    _old.tools._pool.connection("sdk")._floor._asks = False
    return _old


@pytest.fixture(params=["new", "old"])
def server(request: pytest.FixtureRequest) -> SimpleNamespace:
    """Both servers, one after the other."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def mount() -> Iterator[Callable[..., MCPToolsMiddleware]]:
    """Create middleware that is closed after the test."""
    made: list[MCPToolsMiddleware] = []

    def make(**servers) -> MCPToolsMiddleware:
        made.append(MCPToolsMiddleware(servers))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@pytest.fixture
def raw(mount, tmp_path: Path) -> MCPToolsMiddleware:
    """A small server that starts fast, for tests that break it."""
    return mount(raw=raw_server("behaves", tmp_path / "file"))
