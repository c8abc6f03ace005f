"""Addresses of webhooks: only public ones, of hosts that the operator allows.

A name is looked up once for each delivery, every address it has is checked, and the request goes to
the one that was checked. So no name can lead to this machine or to the network behind it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio

from ...harness._internal.records import record

__all__ = ["Refused", "Target", "target_of"]

_NAT64: Final = IPv6Network("64:ff9b::/96")
_UNICAST: Final = IPv6Network("2000::/3")
"""The only IPv6 addresses of the internet; some of the others hide one of IPv4."""

_LOOKUP_SECONDS: Final = 10.0


class Refused(Exception):
    """A URL may not be called; the text says why."""


@record
class Target:
    """A checked place to send a request to.

    Attributes:
        url: The URL with the address in place of the host.
        host: The host and port as the URL names them.
        name: The host alone, whose certificate is asked for.
    """

    url: str
    host: str
    name: str


async def target_of(url: str, allowed: frozenset[str]) -> Target:
    """Return where a request to a URL goes.

    Args:
        url: The URL.
        allowed: Hosts that may be called, as `host_name` writes them. A loopback address in it
            stands for itself, and is reached without TLS too.

    Raises:
        Refused: It may not be called, or its name has no address.
    """
    try:
        parts = urlsplit(url)
        name, given_port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise Refused(f"it is not a URL: {error}") from error
    listed = f"[{name}]" if ":" in name else name
    if listed not in allowed:
        raise Refused(f"host {listed} is not in webhook_hosts")
    own = _is_loopback(name)
    if parts.scheme != "https" and not own:
        raise Refused("it is not https")
    port = given_port or (443 if parts.scheme == "https" else 80)
    addresses = [name] if own else await _addresses(name, port)
    for one in () if own else addresses:
        if not _is_public(one):
            raise Refused(f"{name} has the address {one}, which is not public")
    chosen = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    pinned = parts._replace(netloc=f"{chosen}:{port}").geturl()
    return Target(pinned, parts.netloc.rpartition("@")[2], name)


async def _addresses(name: str, port: int) -> list[str]:
    try:
        with anyio.fail_after(_LOOKUP_SECONDS):
            found = await anyio.getaddrinfo(name, port)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise Refused(f"{name} has no address: {error or 'it took too long'}") from error
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    if not addresses:
        raise Refused(f"{name} has no address")
    return addresses


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_public(text: str) -> bool:
    """Whether an address is one of the internet, also the one that it may hide."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return _is_public(str(IPv4Address(int(address) & 0xFFFF_FFFF)))
        if address.sixtofour is not None and not _is_public(str(address.sixtofour)):
            return False
        return address in _UNICAST and address.is_global
    return address.is_global and not address.is_multicast
