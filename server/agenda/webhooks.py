"""Webhooks: signed requests that tell other programs when a run has paused or ended.

For each delivery, the host name is looked up once, all its addresses are checked, and the request
is sent to a checked address. So no name can lead to this machine or to a private network.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets as random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup
from pydantic import SecretStr

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError
from ..runs.active_run import ActiveRun
from ..settings.hosts import is_loopback_address
from ..settings.setting_groups import SECRET_PREFIX, parse_secrets
from ..settings.settings import Settings
from ..version import NAME, version
from .outbox import Delivery, Outbox

__all__ = ["Refused", "Webhooks", "new_secret", "send", "target_of"]

_NAT64: Final = IPv6Network("64:ff9b::/96")
_UNICAST: Final = IPv6Network("2000::/3")
"""The public IPv6 addresses; some others contain an IPv4 address."""

_LOOKUP_SECONDS: Final = 10.0


class Refused(Exception):
    """A URL must not be called; the text says why."""


@record
class Target:
    """A checked place to send a request to.

    Attributes:
        url: The URL with the checked address in place of the host name.
        host: The host and port as the URL names them.
        name: The host name alone, for the certificate.
    """

    url: str
    host: str
    name: str


async def target_of(url: str, allowed: frozenset[str]) -> Target:
    """Return the checked target of a URL.

    Args:
        url: The URL.
        allowed: Hosts that may be called, as `host_name` writes them. A loopback address in it
            stands for itself, and is reached without TLS too.

    Raises:
        Refused: It must not be called, or its name has no address.
    """
    try:
        parts = urlsplit(url)
        name, given_port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise Refused(f"it is not a URL: {error}") from error
    listed = f"[{name}]" if ":" in name else name
    if listed not in allowed:
        raise Refused(f"host {listed} is not in webhook_hosts")
    own = is_loopback_address(name)
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


def _is_public(text: str) -> bool:
    """Whether an address is public, and so is an IPv4 address that it contains."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return _is_public(str(IPv4Address(int(address) & 0xFFFF_FFFF)))
        if address.sixtofour is not None and not _is_public(str(address.sixtofour)):
            return False
        return address in _UNICAST and address.is_global
    return address.is_global and not address.is_multicast


def new_secret() -> str:
    """Return a new secret, such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw…`."""
    return SECRET_PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def signed_headers(id_: str, timestamp: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers that prove to a receiver that a request is ours.

    Args:
        id_: Id of the event; the same for each attempt.
        timestamp: Unix time of this attempt.
        body: The request's body.
        keys: Secrets; two while one is being replaced.
    """
    content = b".".join((id_.encode(), str(timestamp).encode(), body))
    signatures = [
        "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        for key in keys
    ]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


LOOK_SECONDS: Final = 2.0
"""Seconds until a delivery that is due is noticed."""

SWEEP_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 15.0
_AT_ONCE: Final = 8
_GONE: Final = 410

logger = logging.getLogger(__name__)


@record
class Answer:
    """The answer of a receiver.

    Attributes:
        status: The HTTP status; 0 if none came.
        problem: Why it counts as not received; empty if it was.
        wait: Seconds that it asks us to wait.
    """

    status: int
    problem: str = ""
    wait: float | None = None


async def send(settings: Settings, url: str, id_: str, body: str) -> Answer:
    """Send a signed event to a URL; redirects are not followed.

    Args:
        settings: The secret, and the hosts that may be called.
        url: The URL.
        id_: The event's id.
        body: The event.
    """
    assert isinstance(settings.webhook_secret, SecretStr)  # `Settings` has checked that
    data = body.encode()
    keys = parse_secrets(settings.webhook_secret.get_secret_value())
    try:
        target = await target_of(url, frozenset(settings.webhook_hosts))
        headers = {
            **signed_headers(id_, int(time.time()), data, keys),
            "content-type": "application/json",
            "user-agent": f"{NAME}/{version()}",
            "host": target.host,
        }
        extensions = {"sni_hostname": target.name}
        request = httpx2.Request(
            "POST", target.url, content=data, headers=headers, extensions=extensions
        )
        with anyio.fail_after(REQUEST_SECONDS):
            # A client would log the URL, which may be a secret.
            async with httpx2.AsyncHTTPTransport(trust_env=False) as transport:
                response = await transport.handle_async_request(request)
                await response.aclose()
        return _answer(response)
    except Refused as refused:
        return Answer(0, f"it was not called: {refused}")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError) as error:
        return Answer(0, f"{type(error).__name__}: {error}".rstrip(": "))


def _answer(response: httpx2.Response) -> Answer:
    status = response.status_code
    if response.is_success:
        return Answer(status)
    text = response.headers.get("retry-after", "")
    wait = float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
    moved = "; redirects are not followed" if response.is_redirect else ""
    return Answer(status, f"it answered {status}{moved}", wait)


class Webhooks:
    """Sends signed requests when runs pause or end.

    Args:
        outbox: The events that are still to be sent.
        settings: Returns the settings in force.

    Attributes:
        counts: Attempts since the server was started: `delivered`, `retried` later, and
            `given_up` when there are no more attempts.
    """

    def __init__(self, outbox: Outbox, settings: Callable[[], Settings]) -> None:
        self._outbox = outbox
        self._settings = settings
        self._heard: list[str | Run] = []
        self._wake = anyio.Event()
        self._under_way = 0
        self.counts = Counter(delivered=0, retried=0, given_up=0)

    def hear(self, live: ActiveRun) -> None:
        """Note that a run starts, or has stopped; see `RunFigures.heard`."""
        if live.brief:
            return
        self._heard.append(live.run_id if live.result is None else live.result.run)
        self._wake.set()

    async def work(self) -> None:
        """Send events until it is cancelled."""
        swept = float("-inf")
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self._store_heard()
                    if anyio.current_time() - swept > SWEEP_SECONDS:
                        swept = anyio.current_time()
                        await self._outbox.look(self._settings().webhooks)
                    await self.deliver_due(group)
                except HarnessError as error:
                    logger.warning("webhooks wait, because the database cannot be used: %s", error)
                    await anyio.sleep(LOOK_SECONDS)
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._wake.wait()

    async def _store_heard(self) -> None:
        self._wake = anyio.Event()
        while self._heard:
            first = self._heard[0]
            if isinstance(first, Run):
                await self._outbox.stopped(first, self._settings().webhooks)
            else:
                await self._outbox.watch(first)
            del self._heard[0]

    async def deliver_due(self, group: TaskGroup) -> None:
        """Start the deliveries that are due, up to a limit at a time.

        Raises:
            HarnessError: The database cannot be used.
        """
        while self._under_way < _AT_ONCE and (one := await self._outbox.claim()) is not None:
            self._under_way += 1
            group.start_soon(self._deliver, one)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._try(delivery)
        except HarnessError as error:
            logger.warning("the result of a webhook cannot be stored: %s", error)
        finally:
            self._under_way -= 1
            self._wake.set()

    async def _try(self, delivery: Delivery) -> None:
        settings, outbox = self._settings(), self._outbox
        if delivery.url not in settings.webhooks:
            await outbox.delivered(delivery)  # the operator has removed it
            return
        answer = await send(settings, delivery.url, delivery.id, delivery.body)
        host = urlsplit(delivery.url).hostname  # the rest may be a secret
        if not answer.problem:
            await outbox.delivered(delivery)
            self.counts["delivered"] += 1
        elif answer.status == _GONE:
            self.counts["given_up"] += 1
            logger.error("webhook at %s is gone (410); %s is given up", host, delivery.id)
            await outbox.delivered(delivery)
        elif await outbox.failed(delivery, answer.problem, answer.wait):
            self.counts["retried"] += 1
            logger.warning("webhook at %s, try %d: %s", host, delivery.attempts, answer.problem)
        else:
            self.counts["given_up"] += 1
            logger.error("webhook at %s: %s is given up: %s", host, delivery.id, answer.problem)
