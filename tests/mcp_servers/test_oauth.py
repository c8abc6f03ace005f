"""Remote servers that need a login: a person logs in once, and the tokens are used from then on."""

import logging
import os
import stat
from dataclasses import replace

import anyio
import httpx2
import pytest

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.mcp_servers import HttpServer, OAuth, TokenFiles
from deep_agent_mcp.harness.mcp_servers.oauth import LoginFailed, log_in
from deep_agent_mcp.harness.mcp_servers.oauth_revocation import log_out
from deep_agent_mcp.harness.mcp_servers.oauth_tokens import Login, TokensUnusable
from tests.loop.models import call
from tests.mcp_servers.oauth_server import oauth_server
from tests.mcp_servers.support import agent_with, results

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def _serving():
    with oauth_server() as server:
        yield server


@pytest.fixture
def remote(_serving):
    """A server that nobody has logged in to."""
    _serving.lifetime, _serving.refreshed = 3600.0, 0
    _serving.refuses = _serving.open = _serving.dawdles = False
    _serving.asked = 0
    _serving.revocation = f"{_serving.base}/revoke"
    _serving.revoked.clear()
    _serving.access.clear()
    _serving.refresh.clear()
    return _serving


@pytest.fixture
def tokens(tmp_path):
    return TokenFiles(tmp_path / "logins")


def guarded(remote, tokens) -> HttpServer:
    return HttpServer(remote.url, auth=OAuth(tokens))


async def browse(url: str) -> None:
    """Open the page and follow where it leads, as a browser does."""
    async with httpx2.AsyncClient() as browser:
        await browser.get(url, follow_redirects=True)


async def ping(mount, server: HttpServer):
    middleware = mount(guarded=server)
    result = await agent_with(middleware, (call("1", "guarded_ping"),)).ainvoke("go")
    (message,) = results(result)
    return message, middleware.status()["guarded"]


async def test_without_a_login_a_call_says_what_to_run(remote, tokens, mount):
    message, status = await ping(mount, guarded(remote, tokens))
    assert message.status == "error"
    assert "deep-agent-mcp mcp login guarded" in message.content
    assert status.state == "failed"
    assert "needs a login" in status.reason


async def test_after_a_login_the_tools_can_be_called(remote, tokens, mount):
    await log_in("guarded", guarded(remote, tokens), browse)
    message, status = await ping(mount, guarded(remote, tokens))
    assert (message.status, message.content) == ("success", "pong")
    assert (status.state, status.tools) == ("connected", 1)


async def test_an_access_token_that_has_ended_is_refreshed_and_kept(remote, tokens, mount):
    remote.lifetime = 0
    await log_in("guarded", guarded(remote, tokens), browse)
    remote.lifetime = 3600.0
    message, _ = await ping(mount, guarded(remote, tokens))
    assert (message.content, remote.refreshed) == ("pong", 1)
    message, _ = await ping(mount, guarded(remote, tokens))  # as another process would
    assert (message.content, remote.refreshed) == ("pong", 1)


async def test_a_refresh_token_is_used_once_by_all_processes(remote, tokens, mount):
    remote.lifetime = 0
    await log_in("guarded", guarded(remote, tokens), browse)
    remote.lifetime, remote.dawdles = 3600.0, True
    said = []

    async def one() -> None:  # with middleware of its own, as another process has
        message, _ = await ping(mount, guarded(remote, TokenFiles(tokens.folder)))
        said.append(message.content)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert (said, remote.refreshed) == (["pong"] * 3, 1)


async def test_a_token_that_was_revoked_is_refreshed(remote, tokens, mount):
    await log_in("guarded", guarded(remote, tokens), browse)
    remote.access.clear()
    message, _ = await ping(mount, guarded(remote, tokens))
    assert (message.content, remote.refreshed) == ("pong", 1)


async def test_a_login_that_has_ended_says_what_to_run(remote, tokens, mount):
    await log_in("guarded", guarded(remote, tokens), browse)
    remote.access.clear()
    remote.refresh.clear()
    message, _ = await ping(mount, guarded(remote, tokens))
    assert message.status == "error"
    assert "its login has ended" in message.content
    assert "deep-agent-mcp mcp login guarded" in message.content


async def test_tokens_go_to_no_other_url(remote, tokens, mount):
    await log_in("guarded", guarded(remote, tokens), browse)
    elsewhere = HttpServer(remote.url + "?other=1", auth=OAuth(tokens))
    message, _ = await ping(mount, elsewhere)
    assert "it needs a login" in message.content


@pytest.mark.parametrize("sealed", [False, True])
async def test_tokens_are_the_users_alone_and_nowhere_in_logs(
    remote, tmp_path, mount, caplog, sealed
):
    keys = Keyring.parse(Keyring.generate()) if sealed else None
    tokens = TokenFiles(tmp_path / "logins", keys)
    with caplog.at_level(logging.DEBUG):
        await log_in("guarded", guarded(remote, tokens), browse)
        message, _ = await ping(mount, guarded(remote, tokens))
    assert message.content == "pong"
    (file,) = (tmp_path / "logins").glob("*.json")
    if os.name == "posix":
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (file, file.parent)]
        assert modes == [0o600, 0o700]
    token = remote.issued[-2]
    assert (token.encode() in file.read_bytes()) is not sealed
    assert not [one for one in remote.issued if one in caplog.text]
    if sealed:
        message, _ = await ping(mount, guarded(remote, TokenFiles(tmp_path / "logins")))
        assert "encrypted with the journal's key" in message.content


@pytest.mark.parametrize("server", ["github", "My server's (1)"])
def test_logins_change_their_key_whatever_their_servers_are_called(tmp_path, server):
    old, new = (Keyring.parse(Keyring.generate()) for _ in range(2))
    login = Login("https://x.example.com", {}, {"access_token": "t"})
    TokenFiles(tmp_path, old).write(server, login)
    TokenFiles(tmp_path, old).reseal(new)
    assert TokenFiles(tmp_path, new).read(server) == login
    with pytest.raises(TokensUnusable, match="which is not set"):
        TokenFiles(tmp_path, old).reseal(new)
    TokenFiles(tmp_path, new).reseal(None)
    assert TokenFiles(tmp_path).read(server) == login


async def test_a_refused_login_stores_nothing(remote, tokens):
    remote.refuses = True
    with pytest.raises(LoginFailed, match=r"access_denied.*Nothing was stored"):
        await log_in("guarded", guarded(remote, tokens), browse)
    assert tokens.read("guarded", remote.url) is None


async def test_a_login_ends_when_nobody_comes(remote, tokens):
    async def nobody(url: str) -> None:
        async with httpx2.AsyncClient() as stranger:  # who does not know the state
            asked = httpx2.URL(url).params["redirect_uri"]
            assert (await stranger.get(f"{asked}?code=x&state=y")).status_code == 400
            assert (await stranger.get(asked.replace("callback", "other"))).status_code == 404

    with pytest.raises(LoginFailed, match=r"within 0\.5 s"), anyio.fail_after(10):
        await log_in("guarded", guarded(remote, tokens), nobody, seconds=0.5)


async def test_a_server_that_needs_no_login_says_so(remote, tokens):
    remote.open = True
    with pytest.raises(LoginFailed, match="did not ask for a login"):
        await log_in("guarded", guarded(remote, tokens), browse)


async def test_a_logout_counts_from_the_next_request_on(remote, tokens, mount):
    await log_in("guarded", guarded(remote, tokens), browse)
    assert tokens.remove("guarded")
    assert not tokens.remove("guarded")
    message, _ = await ping(mount, guarded(remote, tokens))
    assert "it needs a login" in message.content


async def test_a_logout_revokes_both_tokens_at_their_issuer(remote, tokens):
    await log_in("guarded", guarded(remote, tokens), browse)
    access, refresh = remote.issued[-2:]
    assert await log_out("guarded", tokens) is None
    assert {one["token_type_hint"]: one["token"] for one in remote.revoked} == {
        "refresh_token": refresh,
        "access_token": access,
    }
    assert not remote.access and refresh not in remote.refresh
    assert tokens.read("guarded") is None
    with pytest.raises(LookupError):
        await log_out("guarded", tokens)


@pytest.mark.parametrize(
    ("revocation", "told"),
    [
        (None, "offers no way"),
        ("http://issuer.example/revoke", "not encrypted"),
        ("http://127.0.0.1:1/revoke", "could not be reached"),
        ("https://[::1/revoke", "not encrypted"),
        ("ftp://127.0.0.1/revoke", "not encrypted"),
    ],
)
async def test_tokens_that_cannot_be_revoked_are_deleted_all_the_same(
    revocation, told, remote, tokens
):
    await log_in("guarded", guarded(remote, tokens), browse)
    login = tokens.read("guarded")
    metadata = {key: one for key, one in login.metadata.items() if key != "revocation_endpoint"}
    if revocation is not None:
        metadata["revocation_endpoint"] = revocation
    tokens.write("guarded", replace(login, metadata=metadata))
    assert told in await log_out("guarded", tokens)
    assert tokens.read("guarded") is None and remote.revoked == []


async def test_an_issuer_that_refuses_to_revoke_is_named(remote, tokens):
    await log_in("guarded", guarded(remote, tokens), browse)
    remote.clients.clear()
    assert await log_out("guarded", tokens) == "it refused to revoke them (HTTP 401)"


async def test_a_login_that_cannot_be_read_is_deleted(tokens):
    tokens.folder.mkdir()
    file = tokens._file("guarded")
    file.write_text("[")
    assert await log_out("guarded", tokens) == "the stored login could not be read"
    assert not file.exists()
