"""A client of OAuth is told by the answer's headers where to get a token, and with which scopes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from deep_agent_mcp.server.auth.tokens import TokenFile
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import HttpServer, Setup
from tests.server.test_oauth import AUDIENCE, Issuer

pytestmark = pytest.mark.anyio

METADATA = "https://agent.example.com/.well-known/oauth-protected-resource/mcp"


@dataclass
class Guarded:
    """A server that takes tokens of an issuer, and static ones."""

    setup: Setup
    server: HttpServer
    issuer: Issuer

    async def call(self, token: str, tool: str, era: str = "2026-07-28") -> httpx2.Response:
        return await self.post(token, "tools/call", {"name": tool, "arguments": {}}, era)

    async def post(
        self, token: str, method: str, params: dict[str, Any], era: str = "2026-07-28"
    ) -> httpx2.Response:
        headers = {"Accept": "application/json, text/event-stream"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with httpx2.AsyncClient(headers=headers, verify=False) as http:
            if era == "2026-07-28":
                prefix = "io.modelcontextprotocol"
                meta = {f"{prefix}/protocolVersion": era, f"{prefix}/clientCapabilities": {}}
                params = {**params, "_meta": meta}
                sent = {"MCP-Protocol-Version": era, "Mcp-Method": method}
                sent["Mcp-Name"] = str(params.get("name", ""))
            else:
                hello = await http.post(self.url, json=_request("initialize", _HELLO))
                sent = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
            return await http.post(self.url, json=_request(method, params), headers=sent)

    @property
    def url(self) -> str:
        return str(self.server.listening["url"])


_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def challenge(response: httpx2.Response) -> dict[str, str]:
    scheme, _, rest = response.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    issuer = Issuer()
    flags = ["--auth", "oauth", "--auth", "token", "--oauth-issuer", issuer.url]
    flags += ["--public-url", AUDIENCE]
    setup = Setup(tmp_path_factory.mktemp("guarded"), flags=flags, script=SCRIPT)
    with setup.serving() as server:
        yield Guarded(setup, server, issuer)
    issuer.close()


async def test_who_has_no_token_is_told_where_to_get_one(guarded: Guarded) -> None:
    answer = await guarded.call("", "ls")
    assert answer.status_code == 401
    assert challenge(answer) == {"scope": "delegate drive", "resource_metadata": METADATA}
    refused = await guarded.call("nonsense", "ls")
    assert refused.status_code == 401
    assert challenge(refused)["error"] == "invalid_token"
    assert challenge(refused)["resource_metadata"] == METADATA
    assert refused.json()["error"] == "invalid_token"


@pytest.mark.parametrize("era", ["2026-07-28", "2025-06-18"])
@pytest.mark.parametrize(
    ("scope", "tool", "wanted"),
    [
        ("drive", "task", "delegate drive"),
        ("delegate", "write_file", "delegate drive"),
        ("drive other", "reply", "delegate drive"),
        ("approve", "cancel", "approve delegate"),
    ],
)
async def test_a_call_that_needs_another_scope_says_which_to_ask_for(
    guarded: Guarded, era: str, scope: str, tool: str, wanted: str
) -> None:
    answer = await guarded.call(guarded.issuer.token(scope=scope), tool, era)
    said = challenge(answer)
    assert answer.status_code == 403
    assert said["error"] == "insufficient_scope" and said["scope"] == wanted
    assert said["resource_metadata"] == METADATA
    assert tool in said["error_description"] and "nothing was done" in said["error_description"]


@pytest.mark.parametrize("era", ["2026-07-28", "2025-06-18"])
async def test_a_call_that_its_token_covers_is_served(guarded: Guarded, era: str) -> None:
    for scope, tool in (("drive", "ls"), ("approve", "threads"), ("admin", "ls")):
        answer = await guarded.call(guarded.issuer.token(scope=scope), tool, era)
        assert answer.status_code == 200 and "insufficient" not in answer.text
    unknown = await guarded.call(guarded.issuer.token(scope="drive"), "no_such_tool", era)
    assert "There is no tool" in unknown.text
    listed = await guarded.post(guarded.issuer.token(scope="drive"), "tools/list", {}, era)
    assert listed.status_code == 200 and "write_todos" in listed.text


async def test_a_token_for_something_else_entirely_gets_nowhere(guarded: Guarded) -> None:
    answer = await guarded.post(guarded.issuer.token(scope="mail"), "tools/list", {})
    assert answer.status_code == 403
    assert challenge(answer)["scope"] == "delegate drive"


async def test_the_bearer_of_a_static_token_reads_what_is_missing(guarded: Guarded) -> None:
    secret = TokenFile(guarded.setup.state / "tokens.json").create("eve", ("drive",))[1]
    answer = await guarded.call(secret, "task")
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result["isError"] and "it needs the scope 'delegate'" in json.dumps(result)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"method": "tools/call"}', 400),
        (b"[" * 100_000, 413),
    ],
)
async def test_a_body_that_is_no_call_is_answered_as_ever(
    guarded: Guarded, body: bytes, status: int
) -> None:
    headers = {
        "Authorization": f"Bearer {guarded.issuer.token(scope='drive')}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    async with httpx2.AsyncClient(headers=headers, verify=False) as http:
        answer = await http.post(guarded.url, content=body)
    assert answer.status_code == status and "error" in answer.json()
