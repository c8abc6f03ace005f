"""Host and Origin checks, which prevent other web sites from using this server.

A page of another site can reach a local server through its own host name (DNS rebinding) or with
requests across origins. Headers are parsed as a whole and compared part by part; invalid ones are
refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from ...harness._internal.records import record

__all__ = [
    "LOOPBACK_NAMES",
    "Refusal",
    "ServedHosts",
    "host_name",
    "is_loopback",
    "is_loopback_address",
]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine for itself, which are always allowed."""

MOST_CHARS = 300
"""The longest host has 255 characters, plus a scheme and a port."""

_HOST = r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)"
_PORT = r"(?::(?P<port>[1-9][0-9]{0,4}))?"
_AUTHORITY = re.compile(_HOST + _PORT, re.ASCII | re.IGNORECASE)
_ORIGIN = re.compile(r"(?P<scheme>https?)://" + _HOST + _PORT, re.ASCII | re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MOST_PORT = 65_535


@record
class Refusal:
    """Why a request is not served: an HTTP status, and a text for its sender."""

    status: int
    text: str


_WRONG_HOST = Refusal(
    421,
    "Invalid Host header: this server is not known by that name, so nothing was done. Use "
    "127.0.0.1 or localhost, or have its operator add the name with --allow-host.",
)
_WRONG_ORIGIN = Refusal(
    403,
    "Invalid Origin header: web pages of that origin may not use this server, so nothing was "
    "done. Its operator allows a host with --allow-host.",
)


def host_name(text: str) -> str:
    """Return a host name or address in lower case, an IPv6 address short and in brackets.

    Raises:
        ValueError: It is not a host, or has a scheme, a port, a path or a wildcard.
    """
    found = _AUTHORITY.fullmatch(text if text.count(":") < 2 or "[" in text else f"[{text}]")
    host = None if found is None or found["port"] else _normal(found["host"])
    if host is None:
        raise ValueError("a bare host name or address, without scheme, port, path or wildcard")
    return host


class ServedHosts:
    """The hosts by which clients reach a server.

    Args:
        allowed: Names besides the loopback ones. Pages of these hosts may use the server from any
            port; pages of this machine only from the same port as the server's.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(map(host_name, allowed))
        self._served = self._allowed.union(LOOPBACK_NAMES)

    def refusal(
        self, hosts: Sequence[str], origins: Sequence[str], *, by_address: bool = False
    ) -> Refusal | None:
        """Return why a request is refused, or None.

        Args:
            hosts: The values of all its Host headers.
            origins: The values of all its Origin headers; programs send none.
            by_address: Whether any IP address is allowed as the host. A page that reached the
                server through its own host name would send that name.
        """
        asked = _parsed(_AUTHORITY, hosts)
        if asked is None:
            return _WRONG_HOST
        if asked.host not in self._served and not (by_address and _is_address(asked.host)):
            return _WRONG_HOST
        if not origins:
            return None
        page = _parsed(_ORIGIN, origins)
        if page is None or page.host not in self._served:
            return _WRONG_ORIGIN
        if page.host in self._allowed:
            return None
        default = _DEFAULT_PORTS[page.scheme]
        return None if (page.port or default) == (asked.port or default) else _WRONG_ORIGIN

    def names_page(self, hosts: Sequence[str], origins: Sequence[str]) -> bool:
        """Return whether a request is accepted, and its page is of one of the allowed names.

        Such a page may have another origin than the server. See `refusal` for the arguments.
        """
        page = _parsed(_ORIGIN, origins)
        named = page is not None and page.host in self._allowed
        return named and self.refusal(hosts, origins) is None


@record
class _Address:
    scheme: str
    host: str
    port: int | None


def _parsed(pattern: re.Pattern[str], values: Sequence[str]) -> _Address | None:
    """Return the value of a header; None if it occurs more than once, or is empty."""
    if len(values) != 1 or len(values[0]) > MOST_CHARS:
        return None
    found = pattern.fullmatch(values[0])
    if found is None:
        return None
    parts = found.groupdict()
    host, port = _normal(parts["host"]), int(parts["port"] or 0)
    if host is None or port > _MOST_PORT:
        return None
    return _Address((parts.get("scheme") or "").lower(), host, port or None)


def _is_address(host: str) -> bool:
    if host.startswith("["):
        return True
    try:
        IPv4Address(host)
    except AddressValueError:
        return False
    return True


def _normal(host: str) -> str | None:
    if not host.startswith("["):
        return host.lower()
    try:
        return f"[{IPv6Address(host[1:-1]).compressed}]"
    except AddressValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    return host == "localhost" or is_loopback_address(host.strip("[]"))


def is_loopback_address(text: str) -> bool:
    """Whether a text is an address of this machine alone; a name is none, whatever it means."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False
