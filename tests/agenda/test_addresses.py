"""Where webhooks may go: only to public addresses of hosts that are listed."""

from __future__ import annotations

import socket
from typing import Any

import anyio
import pytest

from deep_agent_mcp.server.agenda.webhooks import Refused, target_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses by name, in place of those of the network."""
    known: dict[str, list[str]] = {}

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror("unknown")
        return [(0, 0, 0, "", (one, port)) for one in known[host]]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    return known


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.5", "172.16.1.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1"),
        *("fec0::1", "::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "2001:0:7f00:1::"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1"),
    ],
)
async def test_a_name_with_an_address_that_is_not_public_is_not_called(
    names: dict[str, list[str]], address: str
) -> None:
    names["example.com"] = ["93.184.216.34", address]
    with pytest.raises(Refused, match="which is not public"):
        await target_of("https://example.com/hook", frozenset({"example.com"}))


@pytest.mark.parametrize("address", ["2606:2800:220:1::1", "64:ff9b::5db8:d822"])
async def test_a_public_address_is_called_also_behind_nat64(
    names: dict[str, list[str]], address: str
) -> None:
    names["example.com"] = [address]
    target = await target_of("https://example.com/", frozenset({"example.com"}))
    assert target.url == f"https://[{address}]:443/"


async def test_the_address_that_was_checked_is_called(names: dict[str, list[str]]) -> None:
    names["example.com"] = ["93.184.216.34", "2606:2800:220:1::1"]
    target = await target_of("https://example.com:8443/a?b=c", frozenset({"example.com"}))
    assert target.url == "https://93.184.216.34:8443/a?b=c"
    assert (target.host, target.name) == ("example.com:8443", "example.com")
    names["example.com"] = ["2606:2800:220:1::1"]
    target = await target_of("https://example.com/", frozenset({"example.com"}))
    assert target.url == "https://[2606:2800:220:1::1]:443/"


@pytest.mark.parametrize(
    ("url", "allowed", "why"),
    [
        ("https://example.com/", "example.org", "example.com is not in webhook_hosts"),
        ("http://example.com/", "example.com", "not https"),
        ("https://127.0.0.1/", "example.com", "not in webhook_hosts"),
        ("https://10.0.0.1/", "10.0.0.1", "not public"),
        ("https://nowhere.example/", "nowhere.example", "has no address"),
        ("https://example.com:99999/", "example.com", "not a URL: Port out of range"),
        ("https://[::1/", "[::1]", "not a URL: Invalid IPv6 URL"),
    ],
)
async def test_what_may_not_be_called_says_why(
    names: dict[str, list[str]], url: str, allowed: str, why: str
) -> None:
    names["example.com"] = ["93.184.216.34"]
    names["10.0.0.1"] = ["10.0.0.1"]
    with pytest.raises(Refused, match=why):
        await target_of(url, frozenset({allowed}))


@pytest.mark.parametrize(("url", "name"), [("http://127.0.0.1:1/", "127.0.0.1"),
                                           ("http://[::1]:1/", "[::1]")])  # fmt: skip
async def test_a_loopback_address_that_is_listed_is_called(url: str, name: str) -> None:
    assert (await target_of(url, frozenset({name}))).url == url
    with pytest.raises(Refused):
        await target_of("http://localhost:1/", frozenset({"localhost"}))
