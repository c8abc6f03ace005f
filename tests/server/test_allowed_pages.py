"""Browsers let pages of the hosts that the operator named use the MCP endpoints, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from deep_agent_mcp.server.auth.tokens import TokenFile
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.transports import http_app
from tests.server.test_transports import OPENING
from tests.server.tiny_server import tiny_server

pytestmark = pytest.mark.anyio

PAGE = "https://app.example:8443"
ENDPOINTS = ("/mcp", "/sse", "/messages/")
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,last-event-id,mcp-method,"
    "mcp-name,mcp-protocol-version,mcp-session-id",
}
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def serving(place: Path, **flags: object) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve in this process, by default for the pages of one host, and with tokens."""
    given = {"allow_hosts": ("app.example",), "auth": ("token",), "port": 0, **flags}
    settings = load_settings({"transport": "http", "state_dir": str(place), **given}, {})
    app = http_app(tiny_server(), settings)
    with anyio.fail_after(60):
        async with app.router.lifespan_context(app):
            web = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=web, base_url="http://127.0.0.1") as http:
                yield http


def granted(answer: httpx2.Response) -> dict[str, str]:
    """Return what an answer tells a browser about other origins."""
    return {name: text for name, text in answer.headers.items() if name.startswith("access-")}


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_browser_may_ask_for_a_page_before_it_sends_the_token(
    path: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as http:
        answer = await http.options(path, headers={"Origin": PAGE, **PREFLIGHT})
    assert answer.is_success
    assert "Origin" in answer.headers["vary"]
    told = granted(answer)
    assert told["access-control-allow-origin"] == PAGE
    assert told["access-control-allow-methods"] == "GET, POST, DELETE"
    names = told["access-control-allow-headers"].lower().split(", ")
    assert set(PREFLIGHT["Access-Control-Request-Headers"].split(",")) <= set(names)
    assert "access-control-allow-credentials" not in told


async def test_a_page_of_a_named_host_reads_answers_and_refusals(tmp_path: Path) -> None:
    _, token = TokenFile(tmp_path / "tokens.json").create("ann", ["drive"])
    headers = {"Origin": PAGE, **JSON}
    async with serving(tmp_path, max_body_bytes=2_000) as http:
        refused = await http.post("/mcp", json=OPENING[0], headers=headers)
        headers["Authorization"] = f"Bearer {token}"
        answer = await http.post("/mcp", json=OPENING[0], headers=headers)
        large = await http.post("/mcp", content=b" " * 3_000, headers=headers)
    assert [one.status_code for one in (refused, answer, large)] == [401, 200, 413]
    assert answer.headers["mcp-session-id"]
    for one in (refused, answer, large):
        assert one.headers["vary"] == "Origin"
        assert granted(one) == {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": "Mcp-Session-Id, Retry-After, WWW-Authenticate",
        }


FOREIGN = (
    "https://evil.example",
    "https://app.example.evil.example",
    "https://evil-app.example",
    "https://app.example@evil.example",
    "https://evil.example/app.example",
    "http://localhost:3000",
    "null",
    "",
)


@pytest.mark.parametrize("auth", [(), ("token",)])
@pytest.mark.parametrize("origin", FOREIGN)
async def test_pages_of_other_hosts_are_granted_nothing(
    origin: str, auth: tuple[str, ...], tmp_path: Path
) -> None:
    async with serving(tmp_path, auth=auth) as http:
        for path in (*ENDPOINTS, "/ui", "/healthz"):
            for method in ("OPTIONS", "GET", "POST", "DELETE"):
                given = {"Origin": origin, **PREFLIGHT, **JSON}
                answer = await http.request(method, path, headers=given)
                assert (answer.status_code, granted(answer)) == (403, {}), (method, path)


async def test_a_named_host_grants_nothing_through_another_name_of_the_server(
    tmp_path: Path,
) -> None:
    twice = [("Origin", PAGE), ("Origin", "https://evil.example"), *PREFLIGHT.items()]
    async with serving(tmp_path) as http:
        rebound = {"Origin": PAGE, "Host": "evil.example", **PREFLIGHT}
        for path in ENDPOINTS:
            answer = await http.options(path, headers=rebound)
            assert (answer.status_code, granted(answer)) == (421, {})
            answer = await http.options(path, headers=twice)
            assert (answer.status_code, granted(answer)) == (403, {})


async def test_only_the_endpoints_of_mcp_are_granted(tmp_path: Path) -> None:
    async with serving(tmp_path) as http:
        for path in ("/", "/ui", "/healthz", "/readyz", "/metrics", "/mcp/x", "/messages", "/x"):
            for method in ("OPTIONS", "GET"):
                answer = await http.request(method, path, headers={"Origin": PAGE, **PREFLIGHT})
                assert not granted(answer), (method, path)


async def test_other_ports_of_this_machine_are_granted_once_it_is_named(tmp_path: Path) -> None:
    page = "http://localhost:3000"
    async with serving(tmp_path, allow_hosts=("localhost",)) as http:
        answer = await http.options("/mcp", headers={"Origin": page, **PREFLIGHT})
    assert granted(answer)["access-control-allow-origin"] == page


async def test_a_page_finds_out_where_to_get_a_token(tmp_path: Path) -> None:
    oauth = {"auth": ("oauth",), "oauth_issuer": "https://login.example"}
    async with serving(tmp_path, **oauth, public_url="https://app.example/mcp") as http:
        path = "/.well-known/oauth-protected-resource/mcp"
        answer = await http.get(path, headers={"Origin": PAGE})
        foreign = await http.get(path, headers={"Origin": "https://evil.example"})
        program = await http.get(path)
    assert program.headers["vary"] == "Origin"  # a cache must not give a page this answer
    assert answer.json()["authorization_servers"] == ["https://login.example"]
    assert granted(answer)["access-control-allow-origin"] == PAGE
    assert (foreign.status_code, granted(foreign)) == (403, {})
